"""What `diffusion_speed` times: its configuration, our side of it, and whether a peer's is the same."""  # noqa: E501

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import devices, loop
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    EdmConfig,
    ResidualMlpConfig,
    SamplerConfig,
    TemporalUnetConfig,
    make_denoiser,
    make_denoiser_training,
    make_residual_mlp,
    make_temporal_unet,
    noise_levels,
    sample,
)
from jaxrl_rollouts.diffusion.sampler import churn_factors
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.peer import Peer, check_interpreter, check_outputs
from jaxrl_rollouts.experiments.speed.pde_speed_nets import shaken
from jaxrl_rollouts.experiments.speed.speed_cells import ACTIONS, OBSERVATIONS
from jaxrl_rollouts.networks import Network

NETS = ("mlp", "unet")
Net = Literal["mlp", "unet"]


@dataclass(frozen=True)
class AgentSpeed:
    """TD3+BC and IQL: `layers` layers of every width, by numbers of seeds side by side."""

    widths: tuple[int, ...] = (64, 256)
    layers: int = 2
    batch: int = 256
    rows: int = 50_000
    updates: int = 200
    seeds: tuple[int, ...] = (1, 2, 4, 8)


@dataclass(frozen=True)
class DenoiserSpeed:
    """Denoisers of HalfCheetah's rows and windows.

    Attributes:
        mlp, unet: networks.
        length: states of a window.
        mlp_batch, unet_batch: rows, or windows, per gradient step.
        rows: of the data both are trained on.
        updates: gradient steps that are timed.
        seeds: trained side by side, ascending; the first is compared with torch.
        sampler: N and churn.
        mlp_samples, unet_samples: drawn side by side.
    """

    mlp: ResidualMlpConfig = field(default_factory=lambda: ResidualMlpConfig(width=256))
    unet: TemporalUnetConfig = field(default_factory=TemporalUnetConfig)
    length: int = 32
    mlp_batch: int = 256
    unet_batch: int = 64
    rows: int = 4096
    updates: int = 50
    seeds: tuple[int, ...] = (1, 2)
    sampler: SamplerConfig = field(default_factory=lambda: SamplerConfig(32))
    mlp_samples: int = 4096
    unet_samples: int = 128


@dataclass(frozen=True)
class Config:
    """What is timed.

    Attributes:
        agents, denoisers: sizes.
        repeats: of every timing; medians are shown.
        torch_python: an interpreter with torch and d3rlpy; empty leaves both out.
        torch_compile: also time what `torch.compile` makes of the denoisers.
    """

    agents: AgentSpeed = field(default_factory=AgentSpeed)
    denoisers: DenoiserSpeed = field(default_factory=DenoiserSpeed)
    repeats: int = 5
    torch_python: str = ""
    torch_compile: bool = True

    def validate(self) -> None:
        at_least_one(self, "repeats")
        check_interpreter("torch_python", self.torch_python, "torch and d3rlpy")
        for name, part in (("agents", self.agents), ("denoisers", self.denoisers)):
            if not part.seeds or list(part.seeds) != sorted({1, *part.seeds}):
                raise ConfigError(f"{name}.seeds", part.seeds, "ascending, from 1")


class OurDenoiser(NamedTuple):
    """One network of ours, ready to be timed; compiled at the first calls.

    Attributes:
        net, params: the raw network, with noise on all parameters.
        shape: of a row, `(F,)` or `(L, C)`.
        train: number of seeds -> a timed training.
        draw: draws `samples` rows, spread over the cores.
        samples: how many.
        operations: of one row's forward pass, as XLA counts them.
    """

    net: Network
    params: Any
    shape: tuple[int, ...]
    train: Callable[[int], loop.Trained]
    draw: Callable[[], jax.Array]
    samples: int
    operations: float


def sizes(name: Net, config: DenoiserSpeed) -> tuple[Network, tuple[int, ...], int, int]:
    """Network, shape of a row, batch and samples."""
    if name == "mlp":
        features = 2 * OBSERVATIONS + ACTIONS + 1
        net = make_residual_mlp(config.mlp, features)
        return net, (features,), config.mlp_batch, config.mlp_samples
    channels = OBSERVATIONS + ACTIONS + 2
    net = make_temporal_unet(config.unet, config.length, channels)
    return net, (config.length, channels), config.unet_batch, config.unet_samples


def make_our_denoiser(name: Net, config: DenoiserSpeed) -> OurDenoiser:
    """The residual MLP on rows or the U-Net on windows, with its training and sampling."""
    net, shape, batch, samples = sizes(name, config)
    denoiser = make_denoiser(net)
    training = make_denoiser_training(
        denoiser,
        DenoiserTrainingConfig(updates=config.updates, per_iteration=config.updates, batch=batch),
    )
    data = jax.random.normal(jax.random.key(0), (config.rows, *shape))

    def train(seeds: int) -> loop.Trained:
        keys = jax.random.split(jax.random.key(1), seeds)
        return loop.train(training.update, training.init, keys, data, iterations=1, stage="speed")

    params = jax.jit(lambda key: shaken(net, key))(jax.random.key(2))  # type: ignore[arg-type]
    parts = len(jax.devices())
    each = -(-samples // parts)
    keys = jax.random.split(jax.random.key(3), parts)

    def part(key: jax.Array, params: Any) -> jax.Array:
        return sample(denoiser.denoise, params, key, (each, *shape), config=config.sampler)

    one = jax.ShapeDtypeStruct((1, *shape), np.float32), jax.ShapeDtypeStruct((1,), np.float32)
    analysis = jax.jit(net.apply).lower(params, *one).cost_analysis()
    return OurDenoiser(
        net, params, shape, train, lambda: devices.map_seeds(part, keys, params), parts * each,
        float((analysis or {}).get("flops", 0.0)),
    )  # fmt: skip


def check_same(ours: OurDenoiser, peer: Peer) -> float:
    """Largest difference between our network and the peer's on the same weights and rows.

    Raises:
        DataError: they are not the same network.
    """
    rows = jax.random.normal(jax.random.key(5), (3, *ours.shape))
    noise = np.array([-1.5, 0.1, 1.0], np.float32)
    asked = np.asarray(to_peer(rows))
    question = {"kind": "apply", "rows": asked.tolist(), "noise": noise.tolist()}
    said = np.array(peer.ask(question)["said"])
    mine = np.asarray(to_peer(jax.jit(ours.net.apply)(ours.params, rows, noise)))
    return check_outputs("torch", said, mine)


def to_peer(rows: Any) -> Any:
    """Channels first, as torch has them."""
    return rows.swapaxes(1, 2) if rows.ndim == 3 else rows


def denoiser_peer_settings(name: Net, config: DenoiserSpeed, weights: Path) -> dict[str, Any]:
    """The first question to the peer of denoisers: what to build, and where our weights are."""
    _, shape, batch, samples = sizes(name, config)
    edm, sampler = EdmConfig(), config.sampler
    levels = noise_levels(sampler.steps, edm)
    raised = levels[:-1] * (1.0 + churn_factors(levels, sampler))
    added = sampler.churn_noise * np.sqrt(np.maximum(raised**2 - levels[:-1] ** 2, 0.0))
    common = {
        "kind": "start", "net": name, "weights": str(weights), "batch": batch,
        "rows": config.rows, "samples": samples, "threads": os.cpu_count(),
        "rate": DenoiserTrainingConfig().rate, "levels": levels.tolist(),
        "raised": raised.tolist(), "added": added.tolist(),
    }  # fmt: skip
    if name == "mlp":
        net = config.mlp
        key = jax.random.key(net.frequency_seed, impl="threefry2x32")
        frequencies = np.asarray(jax.random.normal(key, (net.frequencies,))).tolist()
        return common | {
            "shape": shape, "features": shape[0], "width": net.width, "blocks": net.blocks,
            "embedding": net.embedding, "frequencies": frequencies,
        }  # fmt: skip
    return common | {
        "shape": shape[::-1], "channels": shape[1], "width": config.unet.features,
        "blocks": config.unet.blocks, "time_scale": config.unet.time_scale,
    }  # fmt: skip

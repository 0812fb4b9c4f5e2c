"""What `diffusion_speed` times: TD3+BC, IQL and two denoisers, ours and the peers'."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import devices, diffusion, loop
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion.sampler import churn_factors
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Network, parameter_count
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..kit import peer as peers
from ..kit.peer import Peer
from ..kit.timing import Timing, in_turns, timed
from .speed_cells import ACTIONS, OBSERVATIONS, OurAgents, d3rlpy_settings, our_agents

AGENTS = {"td3_bc": Td3BcConfig, "iql": IqlConfig}
Net = Literal["mlp", "unet"]
NETS: tuple[Net, ...] = ("mlp", "unet")


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

    mlp: diffusion.ResidualMlpConfig = field(
        default_factory=lambda: diffusion.ResidualMlpConfig(width=256)
    )
    unet: diffusion.TemporalUnetConfig = field(default_factory=diffusion.TemporalUnetConfig)
    length: int = 32
    mlp_batch: int = 256
    unet_batch: int = 64
    rows: int = 4096
    updates: int = 50
    seeds: tuple[int, ...] = (1, 2)
    sampler: diffusion.SamplerConfig = field(default_factory=lambda: diffusion.SamplerConfig(32))
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
        peers.check_interpreter("torch_python", self.torch_python, "torch and d3rlpy")
        for name, part in (("agents", self.agents), ("denoisers", self.denoisers)):
            if not part.seeds or list(part.seeds) != sorted({1, *part.seeds}):
                raise ConfigError(f"{name}.seeds", part.seeds, "ascending, from 1")


def make_our_agents(name: str, config: AgentSpeed, width: int) -> OurAgents:
    """TD3+BC or IQL."""
    return our_agents(AGENTS[name](hidden=(width,) * config.layers), config)


def learned_parameters(ours: OurAgents) -> int:
    """Numbers in the networks that learn, targets left out."""
    state = ours.init(jax.random.key(0), ours.data).agent
    nets = [state.actor.net, state.critic.net, getattr(state, "value", None)]
    return sum(parameter_count(net) for net in nets if net is not None)


def time_agents(config: Config, context: RunContext, name: str, width: int) -> Timing:
    """Updates per second of every number of our seeds together, and of d3rlpy's ways.

    d3rlpy takes one seed after the other, on all cores or one thread; a process per core is the
    most a user gets out of it with several seeds; "no draws" is what its networks alone would do.
    """
    sizes, cores = config.agents, os.cpu_count() or 1
    ours = make_our_agents(name, sizes, width)
    compiling = {n: ours.train(n).compile_seconds for n in sizes.seeds}

    def train(seeds: int) -> float:
        return seeds * sizes.updates / ours.train(seeds).run_seconds

    timers: peers.Timers = {("train", n): partial(train, n) for n in sizes.seeds}
    settings, parameters = d3rlpy_settings(name, sizes, width, 2), learned_parameters(ours)
    ways = {
        "all cores": {"threads": cores, "drawn": True},
        "1 thread": {"threads": 1, "drawn": True},
        "no draws": {"threads": 1, "drawn": False},
    }
    versions: dict[str, str] = {}
    with ExitStack() as stack:
        alone = []
        for _ in range(cores if config.torch_python else 0):
            script, option = "d3rlpy_agents.py", "torch_python"
            peer = Peer(config.torch_python, script, option=option, needs="d3rlpy")
            stack.enter_context(peer)
            what = f"{name}'s parameters"
            versions = peer.start(settings, parameters=parameters, what=what)
            work = {"train": sizes.updates}
            theirs = peers.peer_timers(peer, {"updates": sizes.updates}, work, ways)
            alone.append(theirs["train", "1 thread"])
            if len(alone) == 1:
                timers |= theirs
        if alone:
            pool = stack.enter_context(ThreadPoolExecutor(cores))
            together = ("train", "a process per core")
            timers[together] = lambda: sum(pool.map(lambda timer: timer(), alone))
        rates = in_turns(context, f"{name}, {sizes.layers} x {width}", config.repeats, timers)
    return Timing(rates.of("train"), {"compile s": compiling}, versions=versions)


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
    params: PyTree
    shape: tuple[int, ...]
    train: Callable[[int], loop.Trained]
    draw: Callable[[], jax.Array]
    samples: int
    operations: float


def sizes(name: Net, config: DenoiserSpeed) -> tuple[Network, tuple[int, ...], int, int]:
    """Network, shape of a row, batch and samples."""
    if name == "mlp":
        features = 2 * OBSERVATIONS + ACTIONS + 1
        net = diffusion.make_residual_mlp(config.mlp, features)
        return net, (features,), config.mlp_batch, config.mlp_samples
    channels = OBSERVATIONS + ACTIONS + 2
    net = diffusion.make_temporal_unet(config.unet, config.length, channels)
    return net, (config.length, channels), config.unet_batch, config.unet_samples


def make_our_denoiser(name: Net, config: DenoiserSpeed) -> OurDenoiser:
    """The residual MLP on rows or the U-Net on windows, with its training and sampling."""
    net, shape, batch, samples = sizes(name, config)
    denoiser = diffusion.make_denoiser(net)
    budget = {"updates": config.updates, "per_iteration": config.updates, "batch": batch}
    training = diffusion.make_denoiser_training(
        denoiser, diffusion.DenoiserTrainingConfig(**budget)
    )
    data = jax.random.normal(jax.random.key(0), (config.rows, *shape))

    def train(seeds: int) -> loop.Trained:
        keys = jax.random.split(jax.random.key(1), seeds)
        return loop.train(training.update, training.init, keys, data, iterations=1, stage="speed")

    params = jax.jit(lambda key: peers.shaken(net, key))(jax.random.key(2))
    parts = len(jax.devices())
    each = -(-samples // parts)
    keys = jax.random.split(jax.random.key(3), parts)

    def part(key: jax.Array, params: PyTree) -> jax.Array:
        return diffusion.sample(
            denoiser.denoise, params, key, (each, *shape), config=config.sampler
        )

    def draw() -> jax.Array:
        return devices.map_seeds(part, keys, params)

    one = jax.ShapeDtypeStruct((1, *shape), np.float32), jax.ShapeDtypeStruct((1,), np.float32)
    analysis = jax.jit(net.apply).lower(params, *one).cost_analysis() or {}
    operations = float(analysis.get("flops", 0.0))
    return OurDenoiser(net, params, shape, train, draw, parts * each, operations)


def check_same(ours: OurDenoiser, peer: Peer) -> float:
    """Largest difference between our network and the peer's on the same weights and rows.

    Raises:
        DataError: they are not the same network.
    """
    rows = jax.random.normal(jax.random.key(5), (3, *ours.shape))
    noise = np.array([-1.5, 0.1, 1.0], np.float32)
    asked = np.asarray(to_peer(rows))
    question = {"kind": "apply", "rows": asked.tolist(), "noise": noise.tolist()}
    theirs = np.array(peer.ask(question)["said"])
    mine = np.asarray(to_peer(jax.jit(ours.net.apply)(ours.params, rows, noise)))
    return peers.check_outputs("torch", theirs, mine)


def to_peer(rows: Any) -> Any:
    """Channels first, as torch has them."""
    return rows.swapaxes(1, 2) if rows.ndim == 3 else rows


def denoiser_peer_settings(name: Net, config: DenoiserSpeed, weights: Path) -> dict[str, Any]:
    """The first question to the peer of denoisers: what to build, and where our weights are."""
    _, shape, batch, samples = sizes(name, config)
    edm, sampler = diffusion.EdmConfig(), config.sampler
    levels = diffusion.noise_levels(sampler.steps, edm)
    raised = levels[:-1] * (1.0 + churn_factors(levels, sampler))
    added = sampler.churn_noise * np.sqrt(np.maximum(raised**2 - levels[:-1] ** 2, 0.0))
    common = {
        "net": name,
        "weights": str(weights),
        "batch": batch,
        "rows": config.rows,
        "samples": samples,
        "rate": diffusion.DenoiserTrainingConfig().rate,
        "levels": levels.tolist(),
        "raised": raised.tolist(),
        "added": added.tolist(),
    }
    if name == "unet":
        unet = config.unet
        nets = {"width": unet.features, "blocks": unet.blocks, "time_scale": unet.time_scale}
        return common | nets | {"shape": shape[::-1], "channels": shape[1]}
    mlp = config.mlp
    key = jax.random.key(mlp.frequency_seed, impl="threefry2x32")
    frequencies = np.asarray(jax.random.normal(key, (mlp.frequencies,))).tolist()
    nets = {"width": mlp.width, "blocks": mlp.blocks, "embedding": mlp.embedding}
    return common | nets | {"shape": shape, "features": shape[0], "frequencies": frequencies}


def time_denoiser(config: Config, context: RunContext, name: Net) -> Timing:
    """Training steps and samples per second, ours and torch's with the same network.

    Columns: those `first` and `last` in its row, and the `operations` of a training step.
    """
    speed = config.denoisers
    ours = make_our_denoiser(name, speed)
    _, _, batch, samples = sizes(name, speed)
    first: dict[str, Any] = {"net": name, "parameters": parameter_count(ours.params)}

    def train(seeds: int) -> float:
        return seeds * speed.updates / ours.train(seeds).run_seconds

    timers: peers.Timers = {
        ("train", f"ours, {seeds_of(n)}"): partial(train, n) for n in speed.seeds
    }
    timers["sample", "ours"] = lambda: ours.samples / timed(ours.draw)
    python, script, notes, versions = config.torch_python, "torch_denoisers.py", [], {}
    with peers.peer_or_none(python, script, option="torch_python", needs="torch") as peer:
        if peer is not None:
            weights = context.folder.path / f"weights_{name}.npz"
            peers.write_weights(weights, ours.params)
            settings, what = denoiser_peer_settings(name, speed, weights), f"{name}'s parameters"
            versions = peer.start(settings, parameters=first["parameters"], what=what)
            first["networks differ by"] = check_same(ours, peer)
            compiling = f"of the {name}" if config.torch_compile else None
            ways, notes = peers.torch_ways(peer, compiling)
            question = {"updates": speed.updates, "samples": samples}
            work = {"train": speed.updates, "sample": samples}
            timers |= peers.peer_timers(peer, question, work, ways)
        compiling = {n: ours.train(n).compile_seconds for n in speed.seeds}
        drawing = timed(ours.draw)
        rates = in_turns(context, name, config.repeats, timers)
    drawing -= ours.samples / rates.median(("sample", "ours"))
    last = {"training compile s": compiling[1], "sampling compile s": drawing}
    columns = {"first": first, "last": last, "operations": 3.0 * batch * ours.operations}
    return Timing(rates, columns, notes, versions)


def seeds_of(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"

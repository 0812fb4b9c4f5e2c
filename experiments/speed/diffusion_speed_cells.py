"""What `diffusion_speed` times: TD3+BC, IQL and two denoisers, ours and the peers'."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices, diffusion, loop
from jaxrl_rollouts.compare.peer import (
    Outputs,
    Peer,
    Theirs,
    Timers,
    check_interpreter,
    shaken,
    time_beside,
)
from jaxrl_rollouts.compare.timing import Timing, in_turns, timed, trainer
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.diffusion.sampler import churn_factors
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Network, parameter_count
from jaxrl_rollouts.offline.agents.agent import first_state
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.registry import make_agent
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .goals import PEERS
from .speed import ACTIONS, OBSERVATIONS, d3rlpy_settings, our_training

AGENTS = {"td3_bc": Td3BcConfig, "iql": IqlConfig}
Net = Literal["mlp", "unet"]
NETS: tuple[Net, ...] = ("mlp", "unet")


@dataclass(frozen=True)
class AgentSpeed:
    """TD3+BC and IQL: `layers` layers of every width, by numbers of seeds side by side.

    Attributes:
        widths: of hidden layers that are timed.
        layers: hidden ones of each network.
        batch: transitions in a gradient step.
        rows: of the dataset.
        updates: gradient steps that are timed.
        seeds: numbers of them that are timed side by side.
    """

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
    repeats: int = positive(5)
    torch_python: str = ""
    torch_compile: bool = True

    def validate(self) -> None:
        check_interpreter("torch_python", self.torch_python, "torch and d3rlpy")
        for name, part in (("agents", self.agents), ("denoisers", self.denoisers)):
            if not part.seeds or list(part.seeds) != sorted({1, *part.seeds}):
                raise ConfigError(f"{name}.seeds", part.seeds, "ascending, from 1")


def agent_settings(name: str, config: AgentSpeed, width: int) -> Td3BcConfig | IqlConfig:
    """TD3+BC or IQL."""
    return AGENTS[name](hidden=(width,) * config.layers)


def learned_parameters(name: str, config: AgentSpeed, width: int) -> int:
    """Numbers in the networks that learn, targets left out."""
    agent = make_agent(agent_settings(name, config, width), OBSERVATIONS, ACTIONS)
    rows = jnp.zeros((1, OBSERVATIONS))
    state = jax.eval_shape(partial(first_state, agent), jax.random.key(0), rows)
    nets = [state.actor.net, state.critic.net, getattr(state, "value", None)]
    return sum(parameter_count(net) for net in nets if net is not None)


def time_agents(config: Config, context: RunContext, name: str, width: int) -> Timing:
    """Updates per second of every number of our seeds together, and of d3rlpy's ways.

    d3rlpy takes one seed after the other, on all cores or one thread; a process per core is the
    most a user gets out of it with several seeds; "no draws" is what its networks alone would do.
    """
    sizes, cores = config.agents, os.cpu_count() or 1
    train = our_training(agent_settings(name, sizes, width), sizes)
    compiling = {n: train(n).compile_seconds for n in sizes.seeds}
    rate = partial(seeds_rate, train, sizes.updates)
    timers: Timers = {("train", n): partial(rate, n) for n in sizes.seeds}
    settings, work = d3rlpy_settings(name, sizes, width, 2), {"train": sizes.updates}
    parameters = learned_parameters(name, sizes, width)
    python, script = config.torch_python, PEERS / "d3rlpy_agents.py"
    theirs = Theirs(python, script, "d3rlpy", settings, work, parameters=parameters)
    ways = {
        "all cores": {"threads": cores, "drawn": True},
        "1 thread": {"threads": 1, "drawn": True},
        "no draws": {"threads": 1, "drawn": False},
    }
    versions: dict[str, str] = {}
    with ExitStack() as stack:
        if config.torch_python:
            peers = [stack.enter_context(Peer(theirs)) for _ in range(cores)]
            versions = [peer.start(context.folder.path) for peer in peers][0]
            each = [peer.timers(ways) for peer in peers]
            alone = [timers["train", "1 thread"] for timers in each]
            pool = stack.enter_context(ThreadPoolExecutor(cores))
            timers |= each[0]
            timers["train", "a process per core"] = lambda: sum(pool.map(lambda t: t(), alone))
        rates = in_turns(context, f"{name}, {sizes.layers} x {width}", config.repeats, timers)
    return Timing(rates.of("train"), {"compile s": compiling}, versions=versions)


def seeds_rate(train: Callable[[int], loop.Trained], updates: int, seeds: int) -> float:
    """Gradient steps per second of so many seeds together."""
    return seeds * updates / train(seeds).run_seconds


class OurDenoiser(NamedTuple):
    """One network of ours, ready to be timed; compiled at the first calls.

    Attributes:
        net, params: the raw network, with noise on all parameters.
        shape: of a row, `(F,)` or `(L, C)`.
        batch: of a gradient step.
        train: number of seeds -> a timed training.
        draw: draws `samples` rows, spread over the cores.
        samples: how many.
    """

    net: Network
    params: PyTree
    shape: tuple[int, ...]
    batch: int
    train: Callable[[int], loop.Trained]
    draw: Callable[[], jax.Array]
    samples: int

    def operations(self) -> float:
        """Of a training step: three times a forward pass, as XLA counts it."""
        row, noise = ((1, *self.shape), (1,))
        one = (jax.ShapeDtypeStruct(shape, np.float32) for shape in (row, noise))
        counted = jax.jit(self.net.apply).lower(self.params, *one).cost_analysis() or {}
        return 3.0 * self.batch * float(counted.get("flops", 0.0))

    def outputs(self) -> Outputs:
        """What it makes of some rows, channels first, as torch has them."""

        def first(rows: Any) -> np.ndarray:
            return np.asarray(rows.swapaxes(1, 2) if rows.ndim == 3 else rows)

        rows = jax.random.normal(jax.random.key(5), (3, *self.shape))
        noise = np.array([-1.5, 0.1, 1.0], np.float32)
        said = jax.jit(self.net.apply)(self.params, rows, noise)
        return [({"rows": first(rows), "noise": noise}, first(said))]


def make_our_denoiser(name: Net, config: DenoiserSpeed) -> OurDenoiser:
    """The residual MLP on rows or the U-Net on windows, with its training and sampling."""
    if name == "mlp":
        shape, batch, samples = (
            (2 * OBSERVATIONS + ACTIONS + 1,),
            config.mlp_batch,
            config.mlp_samples,
        )
        net = diffusion.make_residual_mlp(config.mlp, *shape)
    else:
        shape = (config.length, OBSERVATIONS + ACTIONS + 2)
        batch, samples = config.unet_batch, config.unet_samples
        net = diffusion.make_temporal_unet(config.unet, *shape)
    denoiser, updates = diffusion.make_denoiser(net), config.updates
    budget = diffusion.DenoiserTrainingConfig(updates, batch, per_iteration=updates)
    data = jax.random.normal(jax.random.key(0), (config.rows, *shape))
    train = trainer(diffusion.make_denoiser_training(denoiser, budget), data)
    params = jax.jit(partial(shaken, net))(jax.random.key(2))
    parts = len(jax.devices())
    each = -(-samples // parts)
    keys = jax.random.split(jax.random.key(3), parts)

    def part(key: jax.Array, params: PyTree) -> jax.Array:
        rows = (each, *shape)
        return diffusion.sample(denoiser.denoise, params, key, rows, config=config.sampler)

    def draw() -> jax.Array:
        return devices.map_seeds(part, keys, params)

    return OurDenoiser(net, params, shape, batch, train, draw, parts * each)


def denoiser_settings(name: Net, config: DenoiserSpeed, ours: OurDenoiser) -> dict[str, Any]:
    """What torch builds beside the weights: its data, and the noise levels of the sampler."""
    edm, sampler = diffusion.EdmConfig(), config.sampler
    levels = diffusion.noise_levels(sampler.steps, edm)
    raised = levels[:-1] * (1.0 + churn_factors(levels, sampler))
    added = sampler.churn_noise * np.sqrt(np.maximum(raised**2 - levels[:-1] ** 2, 0.0))
    common = {"net": name, "shape": ours.shape[::-1], "batch": ours.batch, "rows": config.rows}
    common |= {"updates": config.updates, "samples": getattr(config, f"{name}_samples")}
    common |= {"rate": diffusion.DenoiserTrainingConfig().rate, "levels": levels.tolist()}
    common |= {"raised": raised.tolist(), "added": added.tolist()}
    if name == "unet":
        return common | {"blocks": config.unet.blocks, "time_scale": config.unet.time_scale}
    key = jax.random.key(config.mlp.frequency_seed, impl="threefry2x32")
    frequencies = jax.random.normal(key, (config.mlp.frequencies,))
    return common | {"frequencies": np.asarray(frequencies).tolist()}


def time_denoiser(config: Config, context: RunContext, name: Net) -> Timing:
    """Training steps and samples per second, ours and torch's with the same network.

    Columns: those `first` and `last` in its row, and the `operations` of a training step.
    """
    speed = config.denoisers
    ours = make_our_denoiser(name, speed)
    compiling, drawing = {n: ours.train(n).compile_seconds for n in speed.seeds}, timed(ours.draw)
    rate = partial(seeds_rate, ours.train, speed.updates)
    timers: Timers = {("train", f"ours, {seeds_of(n)}"): partial(rate, n) for n in speed.seeds}
    timers["sample", "ours"] = lambda: ours.samples / timed(ours.draw)
    settings, parameters = denoiser_settings(name, speed, ours), parameter_count(ours.params)
    work = {"train": speed.updates, "sample": settings["samples"]}
    same = {"weights": ours.params, "parameters": parameters, "outputs": ours.outputs()}
    compiled = f"of the {name}" if config.torch_compile else ""
    python, script = config.torch_python, PEERS / "torch_denoisers.py"
    theirs = Theirs(python, script, "torch", settings, work, compiling=compiled, **same)
    timing = time_beside(context, name, config.repeats, timers, theirs)
    drawing -= ours.samples / timing.rates.median(("sample", "ours"))
    first = {"net": name, "parameters": parameters, **timing.columns}
    last = {"training compile s": compiling[1], "sampling compile s": drawing}
    columns = {"first": first, "last": last, "operations": ours.operations()}
    return replace(timing, columns=columns)


def seeds_of(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"

"""What `pde_speed` times: our networks, APEBench's in our layers, their training and rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices, loop
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.pde.emulator import FIRST_INDEX, FieldNetwork
from jaxrl_rollouts.pde.evaluation import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.pde.operators.layers import PeriodicConv
from jaxrl_rollouts.pde.training import TrainingConfig, make_training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..kit import peer as peers
from ..kit.peer import Peer
from ..kit.timing import Timing, compile_columns, in_turns, timed

CHANNELS = 1
SCRIPTS = {"torch": "torch_resnet.py", "apebench": "apebench_run.py"}


@dataclass(frozen=True)
class Config:
    """What is timed. An empty `torch_python` or `apebench_python` leaves that peer out.

    Attributes:
        widths: of the networks; the rest of them is `blocks` and `dilation_factor`, the power of
            two of the widest dilation, as APEBench counts.
        torch_compile: also time what `torch.compile` makes; the faster one is compared.
    """

    widths: tuple[int, ...] = (32, 64)
    blocks: int = 2
    dilation_factor: int = 3
    points: int = 64
    batch: int = 32
    trajectories: int = 256
    frames: int = 36
    updates: int = 50
    fields: int = 256
    steps: int = 25
    repeats: int = 5
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    seeds_width: int = 32
    torch_python: str = ""
    torch_compile: bool = True
    apebench_python: str = ""

    def validate(self) -> None:
        at_least_one(self, "blocks", "batch", "updates", "fields", "steps", "repeats")
        for name in SCRIPTS:
            peers.check_interpreter(f"{name}_python", getattr(self, f"{name}_python"), name)

    @property
    def dilations(self) -> tuple[int, ...]:
        rising = [2**i for i in range(self.dilation_factor + 1)]
        return (*rising, *rising[-2::-1])


class PlainResnet(nn.Module):
    """PDEquinox's `DilatedResNet`, which APEBench calls `Dil`, in our layers: `[N, 1] -> [N, 1]`.

    Normalisation, convolution, then the activation (GELU's tanh form, as theirs); lifted and
    projected by convolutions of width 1; no second input and nothing it is told.
    """

    width: int
    blocks: int
    dilations: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = PeriodicConv(self.width, width=1)(x)
        for _ in range(self.blocks):
            h = x
            for dilation in self.dilations:
                h = PeriodicConv(self.width, dilation=dilation)(GroupNorm()(h))
                h = nn.gelu(h, approximate=True)
            x = x + h
        return PeriodicConv(CHANNELS, width=1)(x)


def make_plain(width: int, blocks: int, dilations: tuple[int, ...], points: int) -> FieldNetwork:
    """`PlainResnet` behind the signature of all networks; it sees the field only."""
    module = PlainResnet(width, blocks, dilations)

    def init(key: jax.Array) -> PyTree:
        return module.init(key, jnp.zeros((points, CHANNELS)))["params"]

    def apply(params: PyTree, field: jax.Array, *_: Any) -> jax.Array:
        outputs: Any = module.apply({"params": params}, field.T)
        return outputs.T

    return FieldNetwork(init, apply)


def forward_operations(
    width: int, blocks: int, dilations: tuple[int, ...], points: int, *, plain: bool
) -> float:
    """Operations of one field's convolutions: 2 for every weight and grid point."""
    ends = 2 * CHANNELS * width if plain else 9 * CHANNELS * width  # 1 and 1; 3 on two, and 3
    return 2.0 * points * (blocks * len(dilations) * 3 * width**2 + ends)


def step_operations(config: Config, width: int, *, plain: bool) -> dict[str, float]:
    """Operations of a gradient step and of a rollout's step of all fields.

    A gradient step costs three forward passes: forward, gradients of inputs and of weights.
    """
    each = forward_operations(width, config.blocks, config.dilations, config.points, plain=plain)
    return {"training": 3.0 * config.batch * each, "rollout": config.fields * each}


class Ours(NamedTuple):
    """One network of ours, ready to be timed; compiled at the first calls.

    Attributes:
        net, params: the raw network, with noise on all parameters.
        train: number of seeds -> a timed training.
        roll: rolls `config.fields` fields out.
    """

    net: FieldNetwork
    params: PyTree
    train: Callable[[int], loop.Trained]
    roll: Callable[[], jax.Array]


def random_fields(config: Config) -> Fields:
    """Rows of the right shape; speed does not depend on what they say."""
    shape = (config.trajectories, config.frames, CHANNELS, config.points)
    none = jnp.zeros((config.trajectories, 0))
    return Fields(jax.random.normal(jax.random.key(0), shape), none)


def make_ours(config: Config, width: int, *, plain: bool) -> Ours:
    """The plain network (APEBench's) or the conditioned one, with its training and rollout."""
    resnet = ResnetConfig(width=width, blocks=config.blocks, dilations=config.dilations)
    net = make_resnet(resnet, CHANNELS, config.points)
    if plain:
        net = make_plain(width, config.blocks, config.dilations, config.points)
    emulator, updates = make_one_step(net, OneStepConfig()), config.updates
    budget = {"updates": updates, "per_iteration": updates, "warmup": updates // 10}
    training = make_training(emulator, TrainingConfig(**budget, batch=config.batch))
    data = random_fields(config)
    params = weights = peers.shaken(net, jax.random.key(2))
    start = jax.random.normal(jax.random.key(3), (config.fields, CHANNELS, config.points))
    given = jnp.zeros((config.fields, 0))
    if (mesh := devices.mesh_for(config.fields)) is not None:  # fields are spread over the cores
        start, given = devices.shard_seeds((start, given), mesh)
        weights = devices.replicate(params, mesh)
    roll = jax.jit(
        lambda p, s, g, k: roll_emulator(emulator, p, s, g, k, config.steps)[:, : config.fields]
    )

    def train(seeds: int) -> loop.Trained:
        keys = jax.random.split(jax.random.key(1), seeds)
        return loop.train(training.update, training.init, keys, data, iterations=1, stage="speed")

    return Ours(net, params, train, lambda: roll(weights, start, given, jax.random.key(4)))


def check_same(config: Config, ours: Ours, peer: Peer, name: str) -> float:
    """Largest difference between our network and the peer's on the same weights and fields.

    Raises:
        DataError: they are not the same network.
    """
    fields = jax.random.normal(jax.random.key(5), (2, CHANNELS, config.points))
    theirs = np.array(peer.ask({"kind": "apply", "fields": fields.tolist()})["said"])
    mine = jax.vmap(
        lambda u: ours.net.apply(ours.params, u, jnp.zeros_like(u), FIRST_INDEX, jnp.zeros(0))
    )(fields)
    return peers.check_outputs(name, theirs, np.asarray(mine))


def peer_settings(config: Config, width: int, weights: Path) -> dict[str, Any]:
    """The first question to a peer: what to build, and where our weights are."""
    names = "blocks dilations dilation_factor points batch trajectories frames updates fields steps"
    return {name: getattr(config, name) for name in names.split()} | {
        "weights": str(weights),
        "width": width,
        "embedding": ResnetConfig().embedding,
        "rate": TrainingConfig().rate,
        "scale": OneStepConfig().residual_scale,
    }


def time_against(config: Config, context: RunContext, name: str, width: int) -> Timing:
    """Training and rollout steps per second, ours and the peer's with the same network.

    Columns are those of both tables ("both") and of each ("training", "rollout").
    """
    ours = make_ours(config, width, plain=name == "apebench")
    both: dict[str, Any] = {"width": width, "parameters": parameter_count(ours.params)}
    setting, work = f"{name}_python", {"train": config.updates, "roll": config.steps}
    timers: peers.Timers = {
        ("train", "ours"): lambda: config.updates / ours.train(1).run_seconds,
        ("roll", "ours"): lambda: config.steps / timed(ours.roll),
    }
    notes, versions = [], {}
    python = getattr(config, setting)
    with peers.peer_or_none(python, SCRIPTS[name], option=setting, needs=name) as peer:
        if peer is not None:
            weights = context.folder.path / f"weights_{name}_{width}.npz"
            peers.write_weights(weights, ours.params)
            settings = peer_settings(config, width, weights)
            versions = peer.start(settings, parameters=both["parameters"])
            both["networks differ by"] = check_same(config, ours, peer, name)
            question = {"updates": config.updates, "fields": config.fields, "steps": config.steps}
            ways: dict[str, Any] = {name: {}}
            if name == "torch":
                compiling = f"at width {width}" if config.torch_compile else None
                ways, notes = peers.torch_ways(peer, compiling)
            timers |= peers.peer_timers(peer, question, work, ways)
        training = compile_columns(lambda: ours.train(1))
        first = timed(ours.roll)
        rates = in_turns(context, f"{name}, width {width}", config.repeats, timers)
    rollout = {"compile s": first - config.steps / rates.median(("roll", "ours"))}
    columns = {"both": both, "training": training, "rollout": rollout}
    return Timing(rates, columns, notes, versions)

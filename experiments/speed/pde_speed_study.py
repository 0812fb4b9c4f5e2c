"""What `pde_speed` times: its configuration, our side of it, and whether a peer's is the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices, loop
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.experiments.kit.peer import Peer, check_interpreter, check_outputs
from jaxrl_rollouts.experiments.speed.pde_speed_nets import (
    CHANNELS,
    forward_operations,
    make_plain,
    shaken,
)
from jaxrl_rollouts.pde.emulator import FIRST_INDEX, FieldNetwork
from jaxrl_rollouts.pde.evaluation import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.pde.training import TrainingConfig, make_training


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
        for name, needed in (("torch_python", "torch"), ("apebench_python", "apebench")):
            check_interpreter(name, getattr(self, name), needed)

    @property
    def dilations(self) -> tuple[int, ...]:
        rising = [2**i for i in range(self.dilation_factor + 1)]
        return (*rising, *rising[-2::-1])


class Ours(NamedTuple):
    """One network of ours, ready to be timed; `train` and `roll` are compiled at the first call."""

    net: FieldNetwork
    params: Any
    train: Callable[[], loop.Trained]
    roll: Callable[[], jax.Array]
    operations: float


def random_fields(config: Config) -> Fields:
    """Rows of the right shape; speed does not depend on what they say."""
    shape = (config.trajectories, config.frames, CHANNELS, config.points)
    none = jnp.zeros((config.trajectories, 0))
    return Fields(jax.random.normal(jax.random.key(0), shape), none)


def make_ours(config: Config, width: int, *, plain: bool, seeds: int = 1) -> Ours:
    """The plain network (APEBench's) or the conditioned one, with its training and rollout."""
    made = (width, config.blocks, config.dilations, config.points)
    net = (
        make_plain(*made)
        if plain
        else make_resnet(
            ResnetConfig(width=width, blocks=config.blocks, dilations=config.dilations),
            CHANNELS, config.points,
        )
    )  # fmt: skip
    emulator = make_one_step(net, OneStepConfig())
    updates = config.updates
    training = make_training(
        emulator,
        TrainingConfig(
            updates=updates, per_iteration=updates, warmup=updates // 10, batch=config.batch
        ),
    )
    keys = jax.random.split(jax.random.key(1), seeds)
    data = random_fields(config)
    params = shaken(net, jax.random.key(2))
    start = jax.random.normal(jax.random.key(3), (config.fields, CHANNELS, config.points))
    given = jnp.zeros((config.fields, 0))
    weights = params
    if (mesh := devices.mesh_for(config.fields)) is not None:  # fields are spread over the cores
        start, given = devices.shard_seeds((start, given), mesh)
        weights = devices.replicate(params, mesh)
    roll = jax.jit(
        lambda p, s, g, k: roll_emulator(emulator, p, s, g, k, config.steps)[:, : config.fields]
    )
    return Ours(
        net, params,
        lambda: loop.train(
            training.update, training.init, keys, data, iterations=1, stage="speed"
        ),
        lambda: roll(weights, start, given, jax.random.key(4)),
        forward_operations(*made, plain=plain),
    )  # fmt: skip


def check_same(config: Config, ours: Ours, peer: Peer, name: str) -> float:
    """Largest difference between our network and the peer's on the same weights and fields.

    Raises:
        DataError: they are not the same network.
    """
    fields = jax.random.normal(jax.random.key(5), (2, CHANNELS, config.points))
    said = np.array(peer.ask({"kind": "apply", "fields": fields.tolist()})["said"])
    mine = jax.vmap(
        lambda u: ours.net.apply(ours.params, u, jnp.zeros_like(u), FIRST_INDEX, jnp.zeros(0))
    )(fields)
    return check_outputs(name, said, np.asarray(mine))


def peer_settings(config: Config, width: int, weights: Path) -> dict[str, Any]:
    """The first question to a peer: what to build, and where our weights are."""
    return {
        "kind": "start", "weights": str(weights), "width": width, "blocks": config.blocks,
        "dilations": config.dilations, "dilation_factor": config.dilation_factor,
        "embedding": ResnetConfig().embedding, "points": config.points, "batch": config.batch,
        "trajectories": config.trajectories, "frames": config.frames, "updates": config.updates,
        "fields": config.fields, "steps": config.steps, "rate": TrainingConfig().rate,
        "scale": OneStepConfig().residual_scale, "threads": os.cpu_count(),
    }  # fmt: skip

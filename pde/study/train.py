"""What every Kuramoto-Sivashinsky experiment does: solve, train an emulator, roll it, look.

Seeds are side by side, in training and in evaluation; what was evaluated is kept in the run's
folder, so that a resumed run does not do it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.averaged import AveragedState
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..emulator import Emulator, FieldNetwork
from ..fieldset import Fields, to_fields
from ..files import read_pdearena, write_pdearena
from ..generate import GenerateConfig, generate
from ..operators import (
    FnoConfig,
    ResnetConfig,
    UnetConfig,
    make_fno,
    make_resnet,
    make_unet,
)
from ..training import TrainingConfig, make_training


@dataclass(frozen=True)
class StudyConfig:
    """Data, network, training and evaluation; the same for every method of a comparison.

    Attributes:
        train, test: what is solved.
        points: the emulators' grid; the solver's is strided down to it.
        every: frames of the files per step of an emulator.
        conditions: what an emulator is told: dt, dx, the equation's parameter.
        history: frames an emulator sees.
        network: which of `resnet`, `unet` and `fno` is used.
        steps: of a rollout; the test trajectories must be longer.
        samples: stochastic rollouts per trajectory, of the first `sampled` test trajectories and
            for `sampled_steps`.
    """

    seeds: int = 4
    seed: int = 0
    train: GenerateConfig = field(default_factory=GenerateConfig)
    test: GenerateConfig = field(default_factory=GenerateConfig)
    points: int = 64
    every: int = 1
    conditions: tuple[str, ...] = ()
    history: int = 1
    network: Literal["resnet", "unet", "fno"] = "resnet"
    resnet: ResnetConfig = field(default_factory=ResnetConfig)
    unet: UnetConfig = field(default_factory=UnetConfig)
    fno: FnoConfig = field(default_factory=FnoConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    residual_scale: float = 0.2
    steps: int = 250
    samples: int = 16
    sampled: int = 256
    sampled_steps: int = 150

    def validate(self) -> None:
        at_least_one(self, "seeds", "points", "every", "history", "steps", "sampled")
        at_least_one(self, "sampled_steps")
        if self.samples < 2:
            raise ConfigError("samples", self.samples, "at least 2")
        if self.sampled_steps > self.steps:
            raise ConfigError("sampled_steps", self.sampled_steps, f"at most steps ({self.steps})")
        needed = (self.steps + self.history - 1) * self.every
        if self.test.frames <= needed:
            expected = f"more than {needed}: steps and history, times every"
            raise ConfigError("test.frames", self.test.frames, expected)


class KsData(NamedTuple):
    """Training windows and test trajectories, on the device.

    Attributes:
        train, test: fields.
        dt: mean time of an emulator's step.
        parameter: `[B]` of the test trajectories.
    """

    train: Fields
    test: Fields
    dt: float
    parameter: np.ndarray

    def opening(self, history: int, at: int = 0) -> jax.Array:
        """Fields `[B, history * C, N]` to step from, the first frame being number `at`."""
        fields = self.test.fields[:, at : at + history]
        return fields.reshape(len(fields), -1, fields.shape[-1])

    def truth(self, steps: int, history: int = 1) -> jax.Array:
        """What follows `opening(history)`: `[steps, B, C, N]`."""
        return jnp.swapaxes(self.test.fields[:, history : history + steps], 0, 1)


def prepare(study: StudyConfig, context: RunContext) -> KsData:
    """Solve both sets into the run's folder, or read what an earlier session solved."""
    sets = {}
    for split, solved in (("train", study.train), ("test", study.test)):
        path = context.folder.stage("data") / f"ks_{split}.h5"
        if not path.exists():
            chunks = generate(solved, progress=context.progress)
            write_pdearena(path, chunks, split=split, viscosity=True)
        sets[split] = read_pdearena(path)
    # Training windows begin at any frame of the file, also between an emulator's steps.
    train_set, test_set = (
        to_fields(sets[split], every=every, points=study.points, conditions=study.conditions)
        for split, every in (("train", 1), ("test", study.every))
    )
    test = sets["test"]
    dt = study.every * float(test.dt.mean())
    return KsData(train_set, test_set, dt, test.parameters["viscosity"])


def make_network(study: StudyConfig) -> FieldNetwork:
    """The network of the study on its grid."""
    sizes = (1, study.points, len(study.conditions), study.history)
    if study.network == "unet":
        return make_unet(study.unet, *sizes)
    if study.network == "fno":
        return make_fno(study.fno, *sizes)
    return make_resnet(study.resnet, *sizes)


def train_emulator(
    name: str, emulator: Emulator, training: TrainingConfig, study: StudyConfig, data: Fields,
    context: RunContext, *, start: PyTree | None = None,
) -> Trained:  # fmt: skip
    """Train all seeds side by side; the stage is called `name`.

    Args:
        start: parameters `[seeds, ...]` to begin with instead of fresh ones.
    """
    functions = make_training(emulator, replace(training, every=study.every))
    keys = jax.random.split(jax.random.key(study.seed), study.seeds)
    begin, first = functions.init, keys
    if start is not None:
        begin, first = _from_params(functions.init), (keys, start)
    return train(
        functions.update, begin, first, data, iterations=functions.iterations, stage=name,
        units_per_iteration=training.per_iteration, context=context,
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def _from_params(init: Callable[..., AveragedState]) -> Callable[..., AveragedState]:
    def begin(given: tuple[jax.Array, PyTree], data: PyTree) -> AveragedState:
        key, params = given
        return init(key, data)._replace(params=params, average=params)

    return begin


def kept(
    context: RunContext, stage: str, name: str, make: Any, cells: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """`make()`'s arrays, from the stage's folder if an earlier session left them there."""
    path = context.folder.stage(stage) / f"{name}.npz"
    if path.exists():
        with np.load(path) as found:
            return {cell: found[cell] for cell in cells}
    made = {cell: np.asarray(value) for cell, value in zip(cells, make(), strict=True)}
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **made)  # type: ignore[arg-type]
    part.replace(path)
    return made


def per_seed_keys(study: StudyConfig, what: int) -> jax.Array:
    """Keys `[seeds]` of one use, apart from training's."""
    return jax.random.split(jax.random.fold_in(jax.random.key(study.seed), what), study.seeds)

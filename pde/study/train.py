"""Solve an equation and train emulators on it, all seeds side by side.

study = StudyConfig(seeds=4, points=64)
data = prepare(study, context)
emulator = make_emulator("refiner", study, RefinerConfig())
outcome = train_and_roll("refiner", emulator, study, data, context)  # of `look`
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.averaged import AveragedState
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.devices import BATCH
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.record.sealed import is_sealed, seal_file
from jaxrl_rollouts.trees import PyTree

from ..emulator import Emulator, FieldNetwork
from ..fieldset import Fields, Scaling, from_units, to_fields
from ..files import read_pdearena, write_pdearena
from ..generate import GenerateConfig, generate
from ..objectives import OneStepConfig, make_one_step
from ..operators import NETWORKS, DriftConfig, FnoConfig, ResnetConfig, UnetConfig
from ..refiner import RefinerConfig, make_refiner
from ..training import TrainingConfig, make_training
from .flow import Flow


@dataclass(frozen=True)
class StudyConfig:
    """Data, network, training and evaluation; the same for every method of a comparison.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        train, test: what is solved.
        points: the emulators' grid; the solver's is strided down to it.
        every: frames of the files per step of an emulator.
        conditions: what an emulator is told: dt, dx, the equation's parameter.
        history: frames an emulator sees.
        network: which of `resnet`, `unet`, `fno` and `drift` is used.
        resnet: the network, if it is this one.
        unet: the network, if it is this one.
        fno: the network, if it is this one.
        drift: the network, if it is this one.
        training: of every emulator.
        residual_scale: the size of a frame's change, which networks are scaled by.
        steps: of a rollout; the test trajectories must be longer.
        samples: stochastic rollouts per trajectory, of the first `sampled` test trajectories and
            for `sampled_steps`.
        sampled: trajectories that stochastic emulators are sampled on.
        sampled_steps: frames that samples are rolled.
    """

    seeds: int = positive(4)
    seed: int = 0
    train: GenerateConfig = field(default_factory=GenerateConfig)
    test: GenerateConfig = field(default_factory=GenerateConfig)
    points: int = positive(64)
    every: int = positive(1)
    conditions: tuple[str, ...] = ()
    history: int = positive(1)
    network: Literal["resnet", "unet", "fno", "drift"] = "resnet"
    resnet: ResnetConfig = field(default_factory=ResnetConfig)
    unet: UnetConfig = field(default_factory=UnetConfig)
    fno: FnoConfig = field(default_factory=FnoConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    residual_scale: float = number(0.2, above=0)
    steps: int = positive(250)
    samples: int = number(16, least=2)
    sampled: int = positive(256)
    sampled_steps: int = positive(150)

    def validate(self) -> None:
        if self.sampled_steps > self.steps:
            raise ConfigError("sampled_steps", self.sampled_steps, f"at most steps ({self.steps})")
        needed = (self.steps + self.history - 1) * self.every
        if self.test.frames <= needed:
            expected = f"more than {needed}: steps and history, times every"
            raise ConfigError("test.frames", self.test.frames, expected)


class StudyData(NamedTuple):
    """Training windows and test trajectories, on the device.

    Attributes:
        train, test: fields.
        dt: mean time of an emulator's step.
        parameter: `[B]` of the test trajectories.
        units: of every channel, where fields are standardised.
        flow: where a flow in the plane is among the channels.
    """

    train: Fields
    test: Fields
    dt: float
    parameter: np.ndarray
    units: tuple[Scaling, ...] = ()
    flow: Flow | None = None

    def own(self, fields: jax.Array) -> jax.Array:
        """Fields `[..., C, *space]` in the data's units."""
        return in_own_units(self.units, self.test.fields.ndim - 3, fields)

    def opening(self, history: int, at: int = 0) -> jax.Array:
        """Fields `[B, history * C, *space]` to step from, the first frame being number `at`."""
        fields = self.test.fields[:, at : at + history]
        return fields.reshape(len(fields), -1, *fields.shape[3:])

    def truth(self, steps: int, history: int = 1) -> jax.Array:
        """What follows `opening(history)`: `[steps, B, C, *space]`."""
        return jnp.swapaxes(self.test.fields[:, history : history + steps], 0, 1)

    def first(self, share: float) -> StudyData:
        """With a share of the training trajectories, the first ones."""
        count = max(1, round(share * len(self.train.fields)))
        return self._replace(train=jax.tree.map(lambda x: x[:count], self.train))

    def step_scale(self, every: int = 1) -> float:
        """Standard deviation of a step's change in training, two digits: the residual scale."""
        fields = np.asarray(self.train.fields[:256])
        change = fields[:, every:] - fields[:, :-every]
        return float(f"{change.std():.2g}")


def in_own_units(units: tuple[Scaling, ...], axes: int, fields: jax.Array) -> jax.Array:
    """Fields `[..., C, *space]` over so many axes in the data's units; none leaves them."""
    return from_units(units, fields, axes) if units else fields


def prepare(study: StudyConfig, context: RunContext, stage: str = "data") -> StudyData:
    """Solve both sets into a stage's folder of the run, or read what an earlier session solved.

    Raises:
        Interrupted: the context's stop flag was raised; the set that was begun is solved anew.
    """
    sets = {}
    for split, solved in (("train", study.train), ("test", study.test)):
        path = context.folder.stage(stage) / f"ks_{split}.h5"
        if not is_sealed(path):
            if path.exists():
                warnings.warn(f"{path}: damaged or not finished, solved again", stacklevel=2)
            chunks = generate(solved, progress=context.progress)
            write_pdearena(path, _polled(chunks, context), split=split, viscosity=True)
            seal_file(path)
        sets[split] = read_pdearena(path)
    # Training windows begin at any frame of the file, also between an emulator's steps.
    train_set, test_set = (
        to_fields(sets[split], every=every, points=study.points, conditions=study.conditions)
        for split, every in (("train", 1), ("test", study.every))
    )
    test = sets["test"]
    dt = study.every * float(test.dt.mean())
    return StudyData(train_set, test_set, dt, test.parameters["viscosity"])


def _polled(chunks: Iterable[Any], context: RunContext) -> Iterator[Any]:
    for chunk in chunks:
        poll(context, "while solving")
        yield chunk


def make_network(study: StudyConfig) -> FieldNetwork:
    """The network of the study on its grid."""
    make: Any = NETWORKS[study.network][1]
    sizes = (1, study.points, len(study.conditions), study.history)
    return make(getattr(study, study.network), *sizes)


def make_emulator(
    method: str, study: StudyConfig, refiner: RefinerConfig | None = None
) -> Emulator:
    """A method's emulator.

    Args:
        method: `refiner`, or an objective of `OneStepConfig`.
        study: the network and the residual scale.
        refiner: schedule and forms; the paper's if left out.
    """
    net, scale = make_network(study), study.residual_scale
    if method == "refiner":
        config = refiner or RefinerConfig()
        return make_refiner(net, replace(config, residual_scale=scale))
    objective: Any = method
    return make_one_step(net, OneStepConfig(objective=objective, residual_scale=scale))


def train_emulator(
    stage: str,
    emulator: Emulator,
    study: StudyConfig,
    data: Fields,
    context: RunContext | None,
    *,
    training: TrainingConfig | None = None,
    start: PyTree | None = None,
    iterations: int | None = None,
) -> Trained:
    """Train all seeds side by side.

    Args:
        stage: its folder in the run.
        emulator: what is trained.
        study: seeds, step and training.
        data: training windows.
        context: of the run; None keeps nothing.
        training: instead of the study's.
        start: parameters `[seeds, ...]` to begin with instead of fresh ones.
        iterations: of the loop; None for all of the training's.
    """
    training = training or study.training
    functions = make_training(emulator, replace(training, every=study.every))
    keys = jax.random.split(jax.random.key(study.seed), study.seeds)
    begin, first = functions.init, keys
    if start is not None:
        begin, first = _from_params(functions.init), (keys, start)
    return train(
        functions.update,
        begin,
        first,
        data,
        iterations=iterations or functions.iterations,
        stage=stage,
        units_per_iteration=training.per_iteration,
        alone=(BATCH, training.batch),
        context=context,
        # Beside the training, whose own `every` is not the study's: earlier records have it so.
        about={
            "training": training,
            "every": study.every,
            "history": study.history,
            "conditions": study.conditions,
            **dict(emulator.about),
        },
    )


@functools.lru_cache(maxsize=8)
def _from_params(init: Callable[..., AveragedState]) -> Callable[..., AveragedState]:
    def begin(given: tuple[jax.Array, PyTree], data: PyTree) -> AveragedState:
        key, params = given
        return init(key, data)._replace(params=params, average=params)

    return begin


def per_seed_keys(study: StudyConfig, what: int) -> jax.Array:
    """Keys `[seeds]` of one use, apart from training's."""
    return jax.random.split(jax.random.fold_in(jax.random.key(study.seed), what), study.seeds)

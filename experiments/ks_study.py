"""Emulators of one equation at equal networks and updates: data, training, rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import RunContext
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.evaluation import compare, roll_emulator, sampled_horizon
from jaxrl_rollouts.pde.fieldset import Fields, to_device
from jaxrl_rollouts.pde.files import read_pdearena, write_pdearena
from jaxrl_rollouts.pde.generate import GenerateConfig, generate
from jaxrl_rollouts.pde.metrics import correlation_horizons, high_correlation_time
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.operators import ResnetConfig, make_resnet
from jaxrl_rollouts.pde.refiner import RefinerConfig, make_refiner
from jaxrl_rollouts.pde.training import TrainingConfig, make_training

METHODS = ("mse", "pushforward", "correction", "refiner")


@dataclass(frozen=True)
class KsConfig:
    """Data, network and budget; the same for every method.

    Attributes:
        methods: out of mse, pushforward, correction (two calls, no noise) and refiner.
        train, test: what is solved.
        points: the emulators' grid; the solver's is strided down to it.
        steps: of a rollout; the test trajectories must be longer.
        samples: stochastic rollouts per trajectory, of the first `sampled` test trajectories.
    """

    seeds: int = 3
    seed: int = 0
    methods: tuple[str, ...] = METHODS
    train: GenerateConfig = field(default_factory=GenerateConfig)
    test: GenerateConfig = field(default_factory=GenerateConfig)
    points: int = 64
    net: ResnetConfig = field(default_factory=ResnetConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    steps: int = 250
    samples: int = 16
    sampled: int = 128

    def validate(self) -> None:
        for name in ("seeds", "points", "steps", "sampled"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "at least 1")
        if self.samples < 2:
            raise ConfigError("samples", self.samples, "at least 2")
        if not self.methods or set(self.methods) - set(METHODS):
            raise ConfigError("methods", self.methods, f"names out of {', '.join(METHODS)}")
        if self.test.frames <= self.steps:
            raise ConfigError("test.frames", self.test.frames, f"more than steps ({self.steps})")


class KsData(NamedTuple):
    """Training windows and test trajectories, on the device."""

    train: Fields
    test: Fields
    dt: float


def prepare(config: KsConfig, context: RunContext) -> KsData:
    """Solve both sets into the run's folder, or read what an earlier session solved."""
    sets = {}
    for split, solved in (("train", config.train), ("test", config.test)):
        path = context.folder.stage("data") / f"ks_{split}.h5"
        if not path.exists():
            chunks = generate(solved, progress=context.progress)
            write_pdearena(path, chunks, split=split)
        sets[split] = read_pdearena(path)
    train_set, test_set = (to_device(sets[s], points=config.points) for s in ("train", "test"))
    return KsData(train_set, test_set, float(sets["test"].dt.mean()))


def make_emulator(name: str, config: KsConfig, *, applied: int | None = None) -> Emulator:
    """One method's emulator; `applied` refinements when stepping."""
    net = make_resnet(config.net, 1, config.points)
    if name == "refiner":
        return make_refiner(net, replace(config.refiner, applied=applied))
    objective: Any = name
    scale = config.refiner.residual_scale
    return make_one_step(net, OneStepConfig(objective=objective, residual_scale=scale))


class Emulated(NamedTuple):
    """A trained method, all seeds; `K = points // 2 + 1`.

    Attributes:
        trained: what the loop returned.
        correlation: `[seeds, T, B]`.
        first_error: `[seeds, K]` error spectrum after a step.
        last_spectrum: `[seeds, K]` amplitudes late in the rollout.
        one_step: `[seeds, calls]` mean square error after 0, 1, ... refinements.
        rollout: `[T, N]` of seed 0 and test trajectory 0.
        cross: `[seeds, T, sampled]` cross-correlation of samples; None if deterministic.
    """

    trained: Trained
    correlation: np.ndarray
    first_error: np.ndarray
    last_spectrum: np.ndarray
    one_step: np.ndarray
    rollout: np.ndarray
    cross: np.ndarray | None


def train_and_roll(name: str, config: KsConfig, data: KsData, context: RunContext) -> Emulated:
    """Train one method, all seeds side by side, and roll it over the test trajectories."""
    emulator = make_emulator(name, config)
    training = make_training(emulator, config.training)
    train_key, roll_key = jax.random.split(jax.random.key(config.seed))
    start = jax.jit(jax.vmap(training.init))(jax.random.split(train_key, config.seeds))
    trained = train(
        training.update, start, data.train, iterations=training.iterations, stage=name,
        units_per_iteration=config.training.per_iteration, context=context,
    )  # fmt: skip
    truth = jnp.swapaxes(data.test.fields[:, : config.steps + 1], 0, 1)
    given = data.test.conditions
    roll = jax.jit(
        lambda params, key: roll_emulator(emulator, params, truth[0], given, key, config.steps)
    )
    look = jax.jit(compare)
    applied = range(config.refiner.steps + 1) if name == "refiner" else (None,)
    steps = [_one_step(make_emulator(name, config, applied=n)) for n in applied]
    some = slice(0, config.sampled)
    sample = jax.jit(
        lambda params, key: sampled_horizon(
            emulator, params, truth[0, some], given[some], key, config.steps, config.samples
        )
    )
    found: dict[str, list] = {k: [] for k in ("correlation", "error", "late", "one", "cross")}
    shown: np.ndarray | None = None
    for seed in range(config.seeds):
        params = jax.tree.map(lambda x, s=seed: x[s], trained.state.average)
        key, one_key, sample_key = jax.random.split(jax.random.fold_in(roll_key, seed), 3)
        rolled = roll(params, key)
        shown = np.asarray(rolled[:, 0, 0]) if shown is None else shown
        rolled = look(rolled, truth[1:])
        found["correlation"].append(rolled.correlation)
        found["error"].append(rolled.first_error)
        found["late"].append(rolled.last_spectrum)
        found["one"].append([step(params, one_key, truth[:2], given) for step in steps])
        if name == "refiner":
            found["cross"].append(sample(params, sample_key))
    arrays = {k: np.asarray(v) for k, v in found.items()}
    assert shown is not None  # at least one seed
    return Emulated(
        trained, arrays["correlation"], arrays["error"], arrays["late"], arrays["one"], shown,
        arrays["cross"] if name == "refiner" else None,
    )  # fmt: skip


def _one_step(emulator: Emulator) -> Any:
    """Mean square error of one step over the test trajectories."""

    @jax.jit
    def error(params: Any, key: jax.Array, frames: jax.Array, given: jax.Array) -> jax.Array:
        rolled = roll_emulator(emulator, params, frames[0], given, key, 1)
        return jnp.square(rolled[0] - frames[1]).mean()

    return error


def times(results: Mapping[str, Emulated], dt: float, threshold: float = 0.8) -> dict[str, Any]:
    """High-correlation times: method -> (mean-curve `[seeds]`, per-trajectory mean `[seeds]`)."""
    return {
        name: (
            np.array([high_correlation_time(c, dt, threshold) for c in e.correlation]),
            np.array([correlation_horizons(c, dt, threshold).mean() for c in e.correlation]),
        )
        for name, e in results.items()
    }

"""Mixers in one network: what `operators` trains, for how long, and what it measures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.devices import BATCH, map_seeds
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.baselines import fit_linear, make_linear
from jaxrl_rollouts.pde.comparison import holdout
from jaxrl_rollouts.pde.emulator import Emulator, FieldShape, persistence
from jaxrl_rollouts.pde.evaluation import Holdout, evaluate
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import FieldSet, from_units, to_units
from jaxrl_rollouts.pde.fitting import Fitted, fit, untrained
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.objectives import Mse
from jaxrl_rollouts.pde.operators import Drift, Fno
from jaxrl_rollouts.pde.training import Training, make_training
from jaxrl_rollouts.pde.units import standardised
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..kit.fields import solved

MIXERS = ("drift", "attention", "fourier", "conv")
# What is taken away from DRIFT's mixer.
PARTS: Mapping[str, dict[str, Any]] = {
    "no low mixing": {"mix": False},
    "no gate": {"gate": False},
    "no local branch": {"local": False},
}
DRIFT = Drift(dims=(24, 48), depths=(2, 1))
BASELINES = ("persistence", "linear")
STARTS = 8  # frames per test trajectory from which single steps are measured


def flow(start: str, trajectories: int, frames: int, seed: int, points: int) -> Simulation:
    """A decaying flow on a square of side 2 pi, velocities about one, frames a quarter apart."""
    return Simulation(
        equation="navier_stokes_2d",
        initial_condition=start,
        trajectories=trajectories,
        frames=frames,
        seed=seed,
        points=points,
        oversampling=2,
        dt=(0.25, 0.25),
        substeps=12,
    )


@dataclass(frozen=True)
class DriftNetConfig:
    """What every arm shares.

    Attributes:
        seeds, seed: networks side by side, and what decides everything that is drawn.
        starts: initial conditions; every emulator is trained on all and tested on each.
        train, test: what is solved, from each of them.
        mixers: arms with as many updates, the FNO beside them.
        seconds: arms with as many CPU seconds.
        parts: names out of `PARTS`, which are taken away.
        drift, attention, fourier, conv: the network with each mixer, of as many parameters.
        fno: a plain Fourier neural operator of about as many parameters.
        training: training settings of every arm; `steps` are DRIFT's.
        within: largest relative difference of the mixers' parameters.
        steps: steps of a rollout.
        repeats: number of timings of the updates.
    """

    seeds: int = positive(3)
    seed: int = 0
    starts: tuple[str, ...] = ("shear_layer", "piecewise")
    train: Simulation = field(default_factory=lambda: flow("", 64, 41, 0, 32))
    test: Simulation = field(default_factory=lambda: flow("", 16, 113, 1, 32))
    mixers: tuple[str, ...] = MIXERS
    seconds: tuple[str, ...] = ("attention", "fourier", "conv", "fno")
    parts: tuple[str, ...] = tuple(PARTS)
    drift: Drift = DRIFT
    attention: Drift = replace(DRIFT, mixer="attention", head=12)
    fourier: Drift = replace(DRIFT, mixer="fourier", dims=(13, 26), modes=3, embedding=28)
    conv: Drift = replace(DRIFT, mixer="conv", dims=(28, 56))
    fno: Fno = Fno(width=12, modes=7, embedding=16)
    training: Training = field(default_factory=lambda: Training(per_iteration=20))
    within: float = 0.05
    steps: int = positive(112)
    repeats: int = positive(3)

    def validate(self) -> None:
        if self.training.steps % self.training.per_iteration:
            expected = f"a multiple of per_iteration, {self.training.per_iteration}"
            raise ConfigError("training.steps", self.training.steps, expected)
        if self.test.frames <= self.steps:
            raise ConfigError("test.frames", self.test.frames, f"more than steps ({self.steps})")
        known = {"mixers": MIXERS, "seconds": (*MIXERS[1:], "fno"), "parts": tuple(PARTS)}
        for setting, names in known.items():
            if set(getattr(self, setting)) - set(names):
                raise ConfigError(setting, getattr(self, setting), f"out of {', '.join(names)}")
        if not {"drift", "attention"} <= {*self.mixers}:
            raise ConfigError("mixers", self.mixers, "drift and attention among them")
        sizes = {name: parameters(self.arm(name), self.train.points) for name in self.mixers}
        for name, size in sizes.items():
            if abs(size / sizes["drift"] - 1.0) > self.within:
                expected = f"{sizes['drift']:,} within {100 * self.within:g} %, as DRIFT's mixer"
                raise ConfigError(name, f"{size:,} parameters", expected)

    def arm(self, name: str) -> Drift | Fno:
        """The network of an arm."""
        if name in PARTS:
            return replace(self.drift, **PARTS[name])
        return getattr(self, name)


def parameters(network: Drift | Fno, points: int) -> int:
    """Real numbers of a network on vorticities."""
    net = network.make(FieldShape(1, (points, points)))
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0))))


class Flows(NamedTuple):
    """What emulators are trained and tested on; flows of one start follow those of another."""

    train: FieldSet
    test: FieldSet
    data: Holdout

    def of(self, config: DriftNetConfig, start: str) -> slice:
        """Where the test trajectories of a start are."""
        each, at = config.test.trajectories, config.starts.index(start)
        return slice(at * each, (at + 1) * each)


def prepare(config: DriftNetConfig, context: RunContext | None) -> Flows:
    """Solve, or read what an earlier session of the run solved."""
    train_set, test_set = (
        solved(split, [replace(one, initial_condition=start) for start in config.starts], context)
        for split, one in (("train", config.train), ("test", config.test))
    )
    own = untrained(Mse(), config.drift, train_set, train_set.array(), ())
    data = holdout(own, test_set, config.steps, config.seeds, config.seed)
    return Flows(train_set, test_set, data)


def updates_of(config: DriftNetConfig, name: str, cells: Grid) -> int:
    """Gradient steps of an arm that take as many CPU seconds as DRIFT's."""
    rates = [float(np.median(speed(cells["updates", arm]))) for arm in (name, "drift")]
    ratio = rates[0] / rates[1] if np.isfinite(rates).all() else 1.0
    per = config.training.per_iteration
    return per * max(1, round(config.training.steps * ratio / per))


def speed(cell: Cell) -> np.ndarray:
    """Gradient steps per CPU second `[repeats]`, all seeds side by side; NaN if it diverged."""
    return np.asarray(cell.extra["speed"]) if not cell.diverged else np.full(1, np.nan)


def train_arm(
    name: str, updates: int, stage: str, config: DriftNetConfig, flows: Flows, context: RunContext
) -> Cell:
    """Train one arm by the mean square error of a step, and measure it."""
    warmup = min(config.training.warmup, updates // 10)
    fitted = fit(
        Mse(),
        flows.train,
        network=config.arm(name),
        conditions=(),
        seeds=config.seeds,
        key=config.seed,
        training=replace(config.training, steps=updates, warmup=warmup),
        stage=stage,
        context=context,
    )

    def measure() -> dict[str, np.ndarray]:
        found = measured(stage, fitted.emulator.emulator, fitted.params, flows, context)
        return found | {"speed": _speed(fitted, config, flows)}

    extra = {"updates": updates, "parameters": parameters(config.arm(name), config.train.points)}
    return Cell.of(
        fitted.trained, extra, measure=measure, per_iteration=config.training.per_iteration
    )


def _speed(fitted: Fitted, config: DriftNetConfig, flows: Flows) -> np.ndarray:
    """Gradient steps per second of this process, which the others of a machine do not slow down."""
    training = fitted.training
    functions = make_training(fitted.emulator.emulator, training)
    data = standardised(flows.train, flows.train.array(), fitted.emulator.units, {})
    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    run: dict[str, Any] = {"iterations": 1, "units_per_iteration": training.per_iteration}

    def once() -> float:
        begin, axis = time.process_time(), (BATCH, training.batch)
        train_loop(
            functions.update, functions.init, keys, data, stage="speed", batch_axis=axis, **run
        )
        return training.per_iteration / (time.process_time() - begin)

    return np.array([once() for _ in range(config.repeats)])


def measured(
    stage: str, emulator: Emulator, params: PyTree, flows: Flows, context: RunContext
) -> dict[str, np.ndarray]:
    """Single steps and rollouts of an emulator of standardised fields, all seeds.

    `one_step_l1` `[seeds, B, STARTS]` is the relative L1 of single steps from some frames of every
    test trajectory; the rest are the arrays of `Evaluation`.
    """
    found = evaluate(stage, emulator, params, flows.data, context)
    fields, given = flows.data.fields
    at = np.linspace(0, fields.shape[1] - 2, STARTS).astype(int)
    before, after = (fields[:, at + n].reshape(-1, *fields.shape[2:]) for n in (0, 1))

    def single(params: PyTree, shared: tuple) -> jax.Array:
        before, after, given = shared
        following = roll_emulator(emulator, params, before, given, jax.random.key(0), 1)[0]
        own = (from_units(flows.data.units, x, 2) for x in (following, after))
        return metrics.relative_l1(*own, batch_dims=1).reshape(-1, STARTS)

    one = map_seeds(single, params, (before, after, jnp.repeat(given, STARTS, 0)))
    return found._asdict() | {"one_step_l1": np.asarray(one)}


def baseline(
    name: str, stage: str, config: DriftNetConfig, flows: Flows, context: RunContext
) -> Cell:
    """Persistence, or the best linear map per wavenumber."""
    seeds = config.seeds
    if name == "persistence":
        emulator, params = persistence(), jnp.zeros((seeds,))
    else:
        linear = fit_linear([to_units(flows.data.units, flows.train.array(), 2)])
        emulator, params = make_linear(2), jnp.broadcast_to(linear, (seeds, *linear.shape))
    return Cell(None, measured(stage, emulator, params, flows, context), seeds=seeds)

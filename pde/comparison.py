"""Baselines in the report of `pde train`."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .baselines import fit_linear, low_pass_cut, make_linear, make_low_pass, make_solver
from .constant import changing
from .emulator import Emulator
from .equations import equation
from .evaluation import Evaluation, Holdout, evaluate, one_step_errors
from .fieldset import FieldSet, take_trajectories, to_units
from .flows import find_flow
from .frames import narrowed
from .generate_settings import Simulation
from .spectral import lengths
from .streaming import all_fields, trajectories
from .trained import TrainedEmulator
from .units import conditions_of, standardised

Baseline = Literal["linear", "low_pass", "solver"]
_WITHOUT = "leave the solver out: --baselines linear low_pass"
TRAINING_ROWS = 64  # training trajectories of which the low-pass takes its cut


class Comparison(NamedTuple):
    """Emulators on the same trajectories.

    Attributes:
        own: the emulator, for its units and boundaries.
        train, test: trajectories.
        data: test data and settings of the measurement.
        stride: frames per step.
        context: context of the run.
    """

    own: TrainedEmulator
    train: FieldSet
    test: FieldSet
    data: Holdout
    stride: int
    context: RunContext

    @property
    def periodic(self) -> bool:
        """Whether every axis is a circle, as far as is known."""
        return not {*self.own.boundaries} - {"", "periodic"}

    def measure(self, name: str, emulator: Emulator, params: PyTree) -> Evaluation:
        """On the test trajectories."""
        return evaluate(name, emulator, params, self.data, self.context)


def holdout(
    own: TrainedEmulator,
    test: FieldSet,
    steps: int,
    seeds: int,
    seed: int,
    u: np.ndarray | None = None,
) -> Holdout:
    """Test trajectories in the units of an emulator, to measure rollouts of so many steps on.

    Args:
        u: their changing channels `[N, T, C, *space]` at the emulator's steps; None reads them.
    """
    moving = changing(test)
    u = narrowed(moving.read(slice(None), slice(0, None, own.stride))) if u is None else u
    return Holdout(
        standardised(test, u, own.units, own.conditions, own.constant),
        steps,
        own.history,
        seeds,
        seed,
        own.dt or 1.0,
        own.units,
        find_flow(moving),
        own.lengths,
        own.boundaries,
    )


def linear(arms: Comparison, stream: Stream, name: str = "linear") -> Evaluation:
    """The best linear map per wavenumber; kept under `name`."""
    own = arms.own

    def measure() -> dict[str, np.ndarray]:
        u = all_fields(changing(arms.train), stream)
        axes = len(own.grid)
        parts = (to_units(own.units, u[part], axes) for part in trajectories(u.shape))
        constant = None
        if own.constant:
            fields = conditions_of(arms.train, {}, own.constant).constant
            constant = (fields[part] for part in trajectories(u.shape))
        return {"map": fit_linear(parts, own.history, arms.stride, constant)}

    found = remember(arms.context, name, "fitted", measure)["map"]
    emulator = make_linear(len(own.grid), own.history)
    params = jnp.broadcast_to(jnp.asarray(found), (arms.data.seeds, *found.shape))
    return arms.measure(name, emulator, params)


def low_pass(
    arms: Comparison, name: str, trained: TrainedEmulator
) -> tuple[Evaluation, np.ndarray]:
    """An emulator cut off where its training error is larger than the field; the cuts `[seeds]`."""
    own, train = trained, take_trajectories(arms.train, slice(0, TRAINING_ROWS))
    axes, emulator = len(own.grid), trained.emulator

    def measure() -> dict[str, np.ndarray]:
        u = narrowed(changing(train).read(slice(None), slice(0, None, arms.stride)))
        fields = standardised(train, u, own.units, own.conditions, own.constant)
        return cut_off(emulator, own.params, arms.data._replace(fields=fields))

    found = remember(arms.context, f"{name}_low_pass", "cut", measure)
    gain = kept_bins(own.grid, own.lengths, found["cuts"], len(found["amplitude"]))
    filtered = make_low_pass(emulator, axes)
    params = (own.params, jnp.asarray(gain, jnp.float32))
    return arms.measure(f"{name}_low_pass", filtered, params), found["cuts"]


def kept_bins(
    grid: tuple[int, ...], extent: tuple[float, ...], cuts: np.ndarray, count: int
) -> np.ndarray:
    """Which bins lie below the cuts `[seeds]`, `[seeds, *bins]`; all where nothing is to be cut.

    Bins of the grid's corners lie beyond the last of `count` wavenumbers: then they stay, too.
    """
    first = cuts.reshape(-1, *(1,) * len(grid))
    return (lengths(grid, extent) < first - 0.5) | (first >= count)


def cut_off(emulator: Emulator, params: PyTree, training: Holdout) -> dict[str, np.ndarray]:
    """`low_pass_cut` on training fields: `cuts` `[seeds]`, from `error` `[seeds, K]` of a step and
    `amplitude` `[K]`."""
    error, amplitude = one_step_errors(emulator, params, training)
    cuts = [low_pass_cut(one, amplitude) for one in error]
    return {"cuts": np.array(cuts), "error": error, "amplitude": amplitude}


def solver_conditions(fields: FieldSet, stride: int) -> np.ndarray:
    """Extent, time per step and parameter of every trajectory, `[N, 3]`."""
    which = equation(fields.equation)
    channels, *grid = fields.shape[2:]
    if len(grid) != which.axes or channels != len(which.channels) or len({*grid}) > 1:
        seen = f"{channels} channel(s) on {' x '.join(map(str, grid))} points"
        expected = f"{len(which.channels)} over {which.axes} equal axes, for {which.name}"
        raise DataError(fields.path, "fields", seen, expected, _WITHOUT)
    value = fields.parameters.get(which.parameter)
    if value is None:
        known = ", ".join(fields.parameters) or "no parameters"
        expected = f"{which.parameter}, for {which.name}"
        raise DataError(fields.path, "parameters", known, expected, _WITHOUT)
    known = np.stack([fields.extent[:, 0], stride * fields.dt, value], 1)
    if not np.isfinite(known).all():
        expected = "both, for a solver"
        raise DataError(fields.path, "extent, dt", "not in the file", expected, _WITHOUT)
    return known


def solver(arms: Comparison) -> Evaluation:
    """The equation's own solver on the emulator's grid, in float32."""
    conditions = solver_conditions(arms.test, arms.stride)
    test, own = arms.test, arms.own
    which = equation(test.equation)
    substeps = Simulation(which.name).substeps * arms.stride
    emulator = make_solver(which, own.grid[0], own.units, substeps)
    fields = arms.data.fields._replace(conditions=jnp.asarray(conditions, jnp.float32))
    return arms._replace(data=arms.data._replace(fields=fields)).measure("solver", emulator, ())

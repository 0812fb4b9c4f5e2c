"""What stands beside a trained emulator in the report of `pde train`."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..baselines import fit_linear, low_pass_cut, make_linear, make_low_pass, make_solver
from ..constant import changing
from ..emulator import Emulator
from ..equations import equation
from ..fieldset import Fields, FieldSet, take_trajectories
from ..generate_settings import GenerateConfig
from ..saved import TrainedEmulator
from ..spectral import lengths
from ..streaming import all_fields, trajectories
from .look import Evaluation, evaluate, one_step_errors
from .train import StudyConfig, StudyData
from .units import scaled, standardised, told

Baseline = Literal["linear", "low_pass", "solver"]
_WITHOUT = "leave the solver out: --baselines linear low_pass"
TRAINING_ROWS = 64  # training trajectories of which the low-pass takes its cut


class Beside(NamedTuple):
    """What is needed to judge emulators on the same trajectories.

    Attributes:
        own: the emulator, for its units and boundaries.
        train, test: trajectories.
        study, data: how emulators are tested, and on what.
        every: frames per step.
        context: of the run.
    """

    own: TrainedEmulator
    train: FieldSet
    test: FieldSet
    study: StudyConfig
    data: StudyData
    every: int
    context: RunContext

    @property
    def periodic(self) -> bool:
        """Whether every axis is a circle, as far as the file says."""
        return not {*self.own.boundaries} - {"", "periodic"}

    def judge(self, name: str, emulator: Emulator, params: PyTree) -> Evaluation:
        """On the test trajectories."""
        return evaluate(name, emulator, params, self.study, self.data, self.context)


def linear(beside: Beside, stream: Stream, name: str = "linear") -> Evaluation:
    """The best linear map per wavenumber; kept under `name`."""
    own = beside.own

    def measure() -> dict[str, np.ndarray]:
        u = all_fields(changing(beside.train), stream)
        axes = len(own.grid)
        parts = (scaled(own.units, u[part], axes=axes) for part in trajectories(u.shape))
        constant = None
        if own.constant:
            fields = told(beside.train, {}, own.constant).constant
            constant = (fields[part] for part in trajectories(u.shape))
        return {"map": fit_linear(parts, own.history, beside.every, constant)}

    found = remember(beside.context, name, "fitted", measure)["map"]
    emulator = make_linear(len(own.grid), own.history)
    params = jnp.broadcast_to(jnp.asarray(found), (beside.study.seeds, *found.shape))
    return beside.judge(name, emulator, params)


def low_pass(beside: Beside, name: str, trained: TrainedEmulator) -> tuple[Evaluation, np.ndarray]:
    """An emulator cut off where its training error is larger than the field; the cuts `[seeds]`."""
    own, train = trained, take_trajectories(beside.train, slice(0, TRAINING_ROWS))
    axes, emulator = len(own.grid), trained.emulator

    def measure() -> dict[str, np.ndarray]:
        u = changing(train).read(slice(None), slice(0, None, beside.every))
        u = np.asarray(u, np.float32)
        fields = standardised(train, u, own.units, own.conditions, own.constant)
        return cut_off(emulator, own.params, beside.study, fields)

    found = remember(beside.context, f"{name}_low_pass", "cut", measure)
    gain = lengths(own.grid) < found["cuts"].reshape(-1, *(1,) * axes) - 0.5
    filtered = make_low_pass(emulator, axes)
    params = (own.params, jnp.asarray(gain, jnp.float32))
    return beside.judge(f"{name}_low_pass", filtered, params), found["cuts"]


def cut_off(
    emulator: Emulator, params: PyTree, study: StudyConfig, fields: Fields
) -> dict[str, np.ndarray]:
    """`low_pass_cut` on training fields: `cuts` `[seeds]`, from `error` `[seeds, K]` of a step and
    `amplitude` `[K]`."""
    error, amplitude = one_step_errors(emulator, params, study, fields)
    cuts = [low_pass_cut(one, amplitude) for one in error]
    return {"cuts": np.array(cuts), "error": error, "amplitude": amplitude}


def solver_conditions(found: FieldSet, every: int) -> np.ndarray:
    """Extent, time per step and parameter of every trajectory, `[N, 3]`.

    Raises:
        DataError: other fields than the equation's, or a file that does not say one of the three.
    """
    which = equation(found.equation)
    channels, *grid = found.shape[2:]
    if len(grid) != which.axes or channels != len(which.channels) or len({*grid}) > 1:
        fields = f"{channels} channel(s) on {' x '.join(map(str, grid))} points"
        expected = f"{len(which.channels)} over {which.axes} equal axes, for {which.name}"
        raise DataError(found.path, "fields", fields, expected, _WITHOUT)
    value = found.parameters.get(which.parameter)
    if value is None:
        known = ", ".join(found.parameters) or "no parameters"
        expected = f"{which.parameter}, for {which.name}"
        raise DataError(found.path, "parameters", known, expected, _WITHOUT)
    told = np.stack([found.extent[:, 0], every * found.dt, value], 1)
    if not np.isfinite(told).all():
        expected = "both, for a solver"
        raise DataError(found.path, "extent, dt", "not in the file", expected, _WITHOUT)
    return told


def solver(beside: Beside) -> Evaluation:
    """The equation's own solver on the emulator's grid, in float32.

    Raises:
        DataError: as `solver_conditions`.
    """
    told = solver_conditions(beside.test, beside.every)
    test, own = beside.test, beside.own
    which = equation(test.equation)
    substeps = GenerateConfig(which.name).substeps * beside.every
    emulator = make_solver(which, own.grid[0], own.units, substeps)
    fields = beside.data.test._replace(conditions=jnp.asarray(told, jnp.float32))
    return beside._replace(data=beside.data._replace(test=fields)).judge("solver", emulator, ())

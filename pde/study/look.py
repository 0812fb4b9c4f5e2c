"""How good a trained emulator is: one step, long rollouts, and what its samples know.

What was measured is kept in the run's folder, so that a resumed run does not measure it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.record.loggers import Progress
from jaxrl_rollouts.trees import PyTree

from .. import metrics
from ..emulator import Emulator
from ..equations import equation
from ..evaluation import Rolled, compare, late_spectrum, roll_emulator
from ..fieldset import Fields, Scaling
from ..training import TrainingConfig
from .flow import Flow, FlowErrors, flow_errors
from .train import StudyConfig, StudyData, in_own_units, per_seed_keys, train_emulator

STARTS = 4  # frames per test trajectory from which single steps are judged


class Evaluation(NamedTuple):
    """All seeds of one method; `K = min(points) // 2 + 1`, shells where space has several axes.

    Attributes:
        correlation: `[seeds, T, B]` of the rollouts.
        late: `[seeds, K]` amplitudes over the last quarter of the rollouts.
        one_step: `[seeds, calls]` mean square error of a step after 0, 1, ... refinements.
        first_error: `[seeds, calls, K]` its spectrum.
        rollout: `[T, *space]` of seed 0 and test trajectory 0, first channel.
        nrmse, relative_l1, vrmse: `[seeds, T, B]` of the rollouts, the last two in own units.
        vorticity, energy: `[seeds, T, B]` of `FlowErrors`, where there is a flow in the plane.
        structure: `[seeds, B]` likewise.
    """

    correlation: np.ndarray
    late: np.ndarray
    one_step: np.ndarray
    first_error: np.ndarray
    rollout: np.ndarray
    nrmse: np.ndarray
    relative_l1: np.ndarray
    vrmse: np.ndarray
    vorticity: np.ndarray
    energy: np.ndarray
    structure: np.ndarray


class Samples(NamedTuple):
    """What stochastic rollouts of one method say, all seeds.

    Attributes:
        cross: `[seeds, T, B]` their correlation with each other.
        spread, error: `[seeds, T]` standard deviation over samples and root mean square error of
            their mean, over space and trajectories.
    """

    cross: np.ndarray
    spread: np.ndarray
    error: np.ndarray


class Outcome(NamedTuple):
    """A method, trained and rolled over the test trajectories, all seeds.

    Attributes:
        trained: what the loop returned.
        evaluation: one step and long rollouts.
        samples: of stochastic rollouts, where they were asked for.
    """

    trained: Trained
    evaluation: Evaluation
    samples: Samples | None

    @property
    def params(self) -> PyTree:
        """The averaged weights, `[seeds, ...]`."""
        return self.trained.state.average


def train_and_roll(
    stage: str,
    emulator: Emulator,
    study: StudyConfig,
    data: StudyData,
    context: RunContext | None,
    *,
    training: TrainingConfig | None = None,
    start: PyTree | None = None,
    sampled: bool = False,
) -> Outcome:
    """Train one method, all seeds side by side, and roll it over the test trajectories.

    Args:
        stage: its folder in the run.
        emulator: the method; every refinement of it is judged.
        study: everything methods of a comparison share.
        data: training windows and test trajectories.
        context: of the run; None keeps nothing.
        training: instead of the study's.
        start: parameters `[seeds, ...]` to begin with.
        sampled: also ask what stochastic rollouts know.

    Raises:
        DivergenceError: the loss became NaN or infinite.
        Interrupted: the context's stop flag was raised.
    """
    trained = train_emulator(
        stage, emulator, study, data.train, context, training=training, start=start
    )
    params = trained.state.average
    evaluation = evaluate(stage, emulator, params, study, data, context)
    samples = sample(stage, emulator, params, study, data, context) if sampled else None
    return Outcome(trained, evaluation, samples)


def evaluate(
    stage: str,
    emulator: Emulator,
    params: PyTree,
    study: StudyConfig,
    data: StudyData,
    context: RunContext | None,
) -> Evaluation:
    """Single steps and rollouts over the test trajectories.

    Args:
        stage: whose folder keeps the result.
        emulator: the method; single steps are judged after each of its refinements.
        params: `[seeds, ...]`.
        study, data, context: as for `train_and_roll`.
    """

    def measure() -> dict:
        keys = per_seed_keys(study, 1)
        steps = _steps(study, data, study.steps)
        poll(context, f"while measuring {stage}")
        single = map_seeds(_single(emulator), (params, keys), steps)
        poll(context, f"while measuring {stage}")
        truth = data.truth(study.steps, study.history)
        shared = (steps[0][0], truth, data.test.conditions)
        axes = data.test.fields.ndim - 3
        roll = _rolled(emulator, study.steps, data.units, axes, data.flow)
        rolled = map_seeds(roll, (params, keys), shared)
        (squares, errors), (result, fields, flow) = jax.tree.map(np.asarray, (single, rolled))
        return Evaluation(
            result.correlation, result.last_spectrum, squares, errors, fields[0],
            result.nrmse, result.relative_l1, result.vrmse, *flow,
        )._asdict()  # fmt: skip

    return Evaluation(**remember(context, stage, "evaluated", measure))


def one_step_errors(
    emulator: Emulator, params: PyTree, study: StudyConfig, fields: Fields
) -> tuple[np.ndarray, np.ndarray]:
    """Spectra of whole steps' errors `[seeds, K]`, and of what they should have come to `[K]`."""
    data = StudyData(fields, fields, 1.0, np.zeros(0))
    steps = _steps(study, data, fields.fields.shape[1] - study.history)
    _, errors = map_seeds(_single(emulator), (params, per_seed_keys(study, 3)), steps)
    amplitude = metrics.mean_spectrum(steps[1], space_dims=fields.fields.ndim - 3)
    return np.asarray(errors[:, -1]), np.asarray(amplitude)


def _steps(study: StudyConfig, data: StudyData, count: int) -> tuple[jax.Array, ...]:
    """Fields before and after `STARTS` single steps, spread over `count`, and conditions."""
    at = np.linspace(0, count - 1, STARTS).astype(int)
    before = jnp.stack([data.opening(study.history, int(i)) for i in at])
    return before, data.truth(count, study.history)[at], data.test.conditions


@functools.lru_cache(maxsize=32)
def _single(emulator: Emulator) -> Callable[[tuple, tuple], tuple[jax.Array, jax.Array]]:
    """Of one seed: mean square error `[calls]` of single steps, and its spectrum `[calls, K]`."""

    def single(of_seed: tuple, steps: tuple) -> tuple[jax.Array, jax.Array]:
        (params, key), (before, after, given) = of_seed, steps

        def stopped(n: jax.Array) -> Emulator:
            whole = emulator.stages
            if whole is None:
                return emulator
            return emulator._replace(step=lambda *args: whole(*args)[n])

        def judged(n: jax.Array) -> tuple[jax.Array, jax.Array]:
            def one(start: tuple[jax.Array, jax.Array]) -> jax.Array:
                return roll_emulator(stopped(n), params, start[1], given, start[0], 1)[0]

            prediction = jax.lax.map(one, (jax.random.split(key, len(before)), before))
            error = metrics.error_spectrum(prediction, after, space_dims=after.ndim - 3)
            return jnp.square(prediction - after).mean(), error

        count = 1
        if emulator.stages is not None:
            told = jax.tree.map(lambda of_each: of_each[0], given)
            count = len(jax.eval_shape(emulator.stages, params, key, before[0, 0], told))
        return jax.lax.map(judged, jnp.arange(count))

    return single


@functools.lru_cache(maxsize=32)
def _rolled(
    emulator: Emulator, steps: int, units: tuple[Scaling, ...], axes: int, flow: Flow | None
) -> Callable[[tuple, tuple], tuple]:
    """Of one seed: what its rollouts are worth, one of them `[T, *space]`, and as a flow."""
    own = functools.partial(in_own_units, units, axes)

    def rolled(of_seed: tuple, shared: tuple) -> tuple[Rolled, jax.Array, FlowErrors]:
        (params, key), (start, truth, given) = of_seed, shared
        fields = roll_emulator(emulator, params, start, given, key, steps)
        none = FlowErrors(*(jnp.zeros(0),) * 3)
        errors = flow_errors(flow, own(fields), own(truth)) if flow else none
        return compare(fields, truth, own), fields[:, 0, 0], errors

    return rolled


def sample(
    stage: str,
    emulator: Emulator,
    params: PyTree,
    study: StudyConfig,
    data: StudyData,
    context: RunContext | None,
) -> Samples:
    """Roll several samples per trajectory and ask how far they agree; no truth in `cross`.

    Raises:
        Interrupted: the context's stop flag was raised.
    """
    steps, some = study.sampled_steps, slice(0, study.sampled)

    def roll(of_seed: tuple, shared: tuple) -> jax.Array:
        (params, key), (start, given) = of_seed, shared
        return roll_emulator(emulator, params, start, given, key, steps)

    def agreement(samples: jax.Array, truth: jax.Array) -> tuple:
        spread, error = metrics.spread_and_error(samples, truth)
        squares = (jnp.sqrt(jnp.square(x).mean(1)) for x in (spread, error))
        return metrics.cross_correlation(samples), *squares

    def measure() -> dict:
        start = data.opening(study.history)[some]
        given = jax.tree.map(lambda x: x[some], data.test.conditions)
        rolled = []
        shown = bool(context and context.progress)
        bar = Progress(f"{stage}: sample", total=study.samples, unit="samples", enabled=shown)
        with bar:
            for i in range(study.samples):
                keys = per_seed_keys(study, 2 + i)
                rolled.append(map_seeds(roll, (params, keys), (start, given)))
                bar.advance(1, {})
                poll(context, f"while sampling {stage}")
        truth = data.truth(steps, study.history)[:, some]
        return Samples(*map_seeds(agreement, jnp.stack(rolled, 1), truth))._asdict()

    return Samples(**remember(context, stage, "sampled", measure))


def high_correlation_times(
    correlation: np.ndarray, dt: float, threshold: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Of `[seeds, T, B]`: the paper's mean-curve time and the mean of the trajectories' own."""
    curve = [metrics.high_correlation_time(c, dt, threshold) for c in correlation]
    each = [metrics.correlation_horizons(c, dt, threshold).mean() for c in correlation]
    return np.array(curve), np.array(each)


def sampled_horizons(outcome: Outcome, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Predicted (from samples alone) and true horizons, `[seeds, sampled]` each, in time."""
    assert outcome.samples is not None
    cross = outcome.samples.cross
    _, steps, trajectories = cross.shape
    true = outcome.evaluation.correlation[:, :steps, :trajectories]
    predicted, actual = (
        np.array([metrics.correlation_horizons(c, dt) for c in which]) for which in (cross, true)
    )
    return predicted, actual


def true_spectrum(study: StudyConfig, data: StudyData) -> np.ndarray:
    """The truth's amplitudes late in a rollout, `[K]`; `Evaluation.late` is compared with it."""
    return np.asarray(late_spectrum(data.truth(study.steps)))


def solved_from(emulator: Emulator, study: StudyConfig, lowest: int) -> Emulator:
    """The emulator, with wavenumbers from `lowest` on stepped by the true solver.

    The most that repairing those could gain: a refinement can repair small amplitudes, and
    whether rollouts become longer depends on whether those are what ends them. The solver starts
    from the same field, on twice the grid, so that what its de-aliasing drops is above the
    emulator's grid. `lowest = 0` is the solver itself.
    """
    solved, points = study.test, study.points
    substeps = max(1, solved.substeps * study.every // 2)
    span = solved.dt[0] * study.every
    solver = equation(solved.equation).solver(
        2 * points, solved.extent[0], span / substeps, solved.parameter[0]
    )
    high = jnp.arange(points // 2 + 1) >= lowest

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        prediction = emulator.step(params, key, field, conditions)
        fine = 2.0 * jnp.fft.irfft(jnp.fft.rfft(field), 2 * points)
        true = jax.lax.fori_loop(0, substeps, lambda _, u: solver(u), fine)[..., ::2]
        mixed = jnp.where(high, jnp.fft.rfft(true), jnp.fft.rfft(prediction))
        return jnp.fft.irfft(mixed, points)

    return emulator._replace(step=step)


def correlation_solved_from(
    emulator: Emulator, params: PyTree, study: StudyConfig, data: StudyData, lowest: int
) -> np.ndarray:
    """Correlation `[seeds, T, B]` of the rollouts of `solved_from(emulator, study, lowest)`."""
    helped = solved_from(emulator, study, lowest)

    def roll(of_seed: tuple, shared: tuple) -> jax.Array:
        (params, key), (start, truth, given) = of_seed, shared
        fields = roll_emulator(helped, params, start, given, key, study.steps)
        return metrics.correlation(fields, truth)

    shared = (data.opening(1), data.truth(study.steps), data.test.conditions)
    return np.asarray(map_seeds(roll, (params, per_seed_keys(study, 1)), shared))

"""Evaluation of an emulator: one step, long rollouts, and its samples.

Rollouts go through the engine's one rollout. What was measured is kept in the run's folder, so that
a resumed run does not measure it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.trees import PyTree

from . import metrics, scores
from .emulator import Emulator
from .field import roll_emulator
from .fieldset import Fields, Scaling, from_units
from .flows import Flow, FlowErrors, flow_errors

SAMPLES = 4  # rollouts of each seed of a stochastic emulator in the forecast of all seeds
STARTS = 4  # frames per test trajectory from which single steps are measured


class Holdout(NamedTuple):
    """Trajectories to measure emulators on, and how.

    Attributes:
        fields: `[B, T, C, *space]` in units of the training data, with their conditions.
        steps: steps of a rollout.
        history: frames that emulators see.
        seeds, seed: those of the emulators; decide the noise of stochastic ones.
        dt: time of a step.
        units: units of every channel; () where fields are in the data's own.
        flow: position of a two-dimensional flow among the channels.
        extent, boundaries: those of every axis, for spectra; () where they are not known.
    """

    fields: Fields
    steps: int
    history: int = 1
    seeds: int = 1
    seed: int = 0
    dt: float = 1.0
    units: tuple[Scaling, ...] = ()
    flow: Flow | None = None
    extent: tuple[float, ...] = ()
    boundaries: tuple[str, ...] = ()

    @property
    def settings(self) -> Holdout:
        """How is measured, without the trajectories: what programs are compiled for."""
        none: Any = None
        return self._replace(fields=none, seeds=1, seed=0, dt=1.0)

    @property
    def axes(self) -> int:
        """Axes of space."""
        return self.fields.fields.ndim - 3

    def opening(self, at: int = 0) -> jax.Array:
        """Fields `[B, history * C, *space]` to step from, the first frame being number `at`."""
        fields = self.fields.fields[:, at : at + self.history]
        return fields.reshape(len(fields), -1, *fields.shape[3:])

    def truth(self, steps: int | None = None) -> jax.Array:
        """What follows the opening: `[steps, B, C, *space]`."""
        steps = self.steps if steps is None else steps
        frames = self.fields.fields[:, self.history : self.history + steps]
        return jnp.swapaxes(frames, 0, 1)

    def keys(self, use: int) -> jax.Array:
        """Keys `[seeds]` of one use, apart from training's."""
        return jax.random.split(jax.random.fold_in(jax.random.key(self.seed), use), self.seeds)

    def spectrum(self, fields: jax.Array) -> jax.Array:
        """`metrics.mean_spectrum` on this domain."""
        return metrics.mean_spectrum(
            fields, space_dims=self.axes, extent=self.extent, boundaries=self.boundaries
        )


class Evaluation(NamedTuple):
    """All seeds of one method; `K` wavenumbers as of `metrics.spectrum`.

    Attributes:
        correlation: `[seeds, T, B]` of the rollouts.
        late: `[seeds, K]` amplitudes over the last quarter of the rollouts.
        one_step: `[seeds, calls]` mean square error of a step after 0, 1, ... refinements.
        first_error: `[seeds, calls, K]` its spectrum.
        rollout: `[T, *space]` of test trajectory 0 and its first channel, by the first seed whose
            steps are finite.
        nrmse, relative_l1, vrmse: `[seeds, T, B]` of the rollouts, the last two in own units.
        vorticity, energy, enstrophy: `[seeds, T, B]` of `FlowErrors`, where there is a flow in the
            plane.
        structure: `[seeds, B]` likewise.
        energy_spectrum: `[seeds, K]` likewise.
        leads: `[L]` steps after which all seeds, of a stochastic emulator `SAMPLES` rollouts of
            each, are scored as one forecast of `M` members, `members_scores`; none of one member.
        crps, energy_score, spread_skill, ranks: its scores, `[L]`, `ranks` `[L, M + 1]`.
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
    # Of runs of earlier versions these were not kept.
    enstrophy: np.ndarray = np.zeros(0)
    energy_spectrum: np.ndarray = np.zeros(0)
    leads: np.ndarray = np.zeros(0, int)
    crps: np.ndarray = np.zeros(0)
    energy_score: np.ndarray = np.zeros(0)
    spread_skill: np.ndarray = np.zeros(0)
    ranks: np.ndarray = np.zeros((0, 0), int)


class Rolled(NamedTuple):
    """Rollouts compared with the truth; time-major.

    Attributes:
        correlation: `[T, B]`, centred Pearson.
        nrmse, relative_l1, vrmse: `[T, B]`.
        late: `[K]`, see `late_spectrum`.
    """

    correlation: jax.Array
    nrmse: jax.Array
    relative_l1: jax.Array
    vrmse: jax.Array
    late: jax.Array


def compare(prediction: jax.Array, truth: jax.Array, test: Holdout) -> Rolled:
    """Compare `[T, B, C, *space]` with the truth of the same shape, relative errors in the data's
    units."""
    own = functools.partial(_own, test.units, test.axes)
    units = own(prediction), own(truth)
    return Rolled(
        metrics.correlation(prediction, truth),
        metrics.nrmse(prediction, truth),
        metrics.relative_l1(*units),
        metrics.vrmse(*units),
        late_spectrum(prediction, test),
    )


def late_spectrum(fields: jax.Array, test: Holdout) -> jax.Array:
    """Mean amplitudes `[K]` over the last quarter of `[T, B, C, *space]`."""
    return test.spectrum(fields[3 * len(fields) // 4 :])


def _own(units: tuple[Scaling, ...], axes: int, fields: jax.Array) -> jax.Array:
    """Fields `[..., C, *space]` over so many axes in the data's units; none leaves them."""
    return from_units(units, fields, axes) if units else fields


def evaluate(
    name: str,
    emulator: Emulator,
    params: PyTree,
    test: Holdout,
    context: RunContext | None = None,
) -> Evaluation:
    """Measure single steps and rollouts over test trajectories.

    Args:
        name: name of the folder in the run that keeps the result.
        emulator: the method; single steps are measured after each of its refinements.
        params: `[seeds, ...]`.
        test: the trajectories.
        context: context of the run; None keeps nothing.
    """
    on = test.settings

    def measure() -> dict:
        keys = test.keys(1)
        steps = _steps(test, test.steps)
        poll(context, f"while measuring {name}")
        single = map_seeds(_single(emulator, on), (params, keys), steps)
        poll(context, f"while measuring {name}")
        shared = (steps[0][0], test.truth(), test.fields.conditions)
        rolled = map_seeds(_rolled(emulator, on, test.axes), (params, keys), shared)
        parts = jax.tree.map(np.asarray, (single, rolled))
        (squares, errors), (result, fields, members, flow) = parts
        finite = np.isfinite(squares[:, -1])
        single = {"one_step": squares, "first_error": errors, "rollout": fields[finite.argmax()]}
        members = members[finite].reshape(-1, *members.shape[2:])
        whole = {} if len(members) < 2 else members_scores(members, test)
        return {**result._asdict(), **flow._asdict(), **single, **whole}

    return Evaluation(**remember(context, name, "evaluated", measure))


def one_step_errors(
    emulator: Emulator, params: PyTree, test: Holdout
) -> tuple[np.ndarray, np.ndarray]:
    """Spectra of whole steps' errors `[seeds, K]`, and of the frames that were predicted `[K]`."""
    steps = _steps(test, test.fields.fields.shape[1] - test.history)
    _, errors = map_seeds(_single(emulator, test.settings), (params, test.keys(3)), steps)
    return np.asarray(errors[:, -1]), np.asarray(test.spectrum(steps[1]))


def _steps(test: Holdout, count: int) -> tuple[jax.Array, ...]:
    """Fields before and after `STARTS` single steps, spread over `count`, and conditions."""
    at = np.linspace(0, count - 1, STARTS).astype(int)
    before = jnp.stack([test.opening(int(i)) for i in at])
    return before, test.truth(count)[at], test.fields.conditions


@functools.lru_cache(maxsize=32)
def _single(emulator: Emulator, on: Holdout) -> Callable[[tuple, tuple], tuple]:
    """Of one seed: mean square error `[calls]` of single steps, and its spectrum `[calls, K]`."""

    def single(of_seed: tuple, steps: tuple) -> tuple[jax.Array, jax.Array]:
        (params, key), (before, after, given) = of_seed, steps

        def stopped(n: jax.Array) -> Emulator:
            whole = emulator.stages
            if whole is None:
                return emulator
            return emulator._replace(step=lambda *args: whole(*args)[n])

        def measured(n: jax.Array) -> tuple[jax.Array, jax.Array]:
            def one(start: tuple[jax.Array, jax.Array]) -> jax.Array:
                return roll_emulator(stopped(n), params, start[1], given, start[0], 1)[0]

            prediction = jax.lax.map(one, (jax.random.split(key, len(before)), before))
            error = metrics.mean_spectrum(
                prediction - after,
                space_dims=after.ndim - 3,
                extent=on.extent,
                boundaries=on.boundaries,
            )
            return jnp.square(prediction - after).mean(), error

        count = 1
        if emulator.stages is not None:
            first = jax.tree.map(lambda of_each: of_each[0], given)
            count = len(jax.eval_shape(emulator.stages, params, key, before[0, 0], first))
        return jax.lax.map(measured, jnp.arange(count))

    return single


@functools.lru_cache(maxsize=32)
def _rolled(emulator: Emulator, on: Holdout, axes: int) -> Callable[[tuple, tuple], tuple]:
    """Of one seed: errors of its rollouts, one of them `[T, *space]`, its members `[S, L, B, C,
    *space]` of the forecast of all seeds, and as a flow."""
    own = functools.partial(_own, on.units, axes)

    def rolled(of_seed: tuple, shared: tuple) -> tuple[Rolled, jax.Array, jax.Array, FlowErrors]:
        (params, key), (start, truth, given) = of_seed, shared
        at = leads(on) - 1
        fields = roll_emulator(emulator, params, start, given, key, on.steps)
        members = fields[None, at]
        if emulator.random:
            keys = jax.random.split(jax.random.fold_in(key, 1), SAMPLES - 1)
            more = jax.lax.map(
                lambda k: roll_emulator(emulator, params, start, given, k, on.steps)[at], keys
            )
            members = jnp.concatenate([members, more])
        none = FlowErrors(*(jnp.zeros(0),) * len(FlowErrors._fields))
        errors = flow_errors(on.flow, own(fields), own(truth)) if on.flow else none
        test = on._replace(fields=Fields(jnp.swapaxes(truth, 0, 1), given))
        return compare(fields, truth, test), fields[:, 0, 0], members, errors

    return rolled


def leads(test: Holdout) -> np.ndarray:
    """Steps after which seeds are scored as one forecast: the first, halfway and the last."""
    return np.unique([1, max(test.steps // 2, 1), test.steps])


def members_scores(members: np.ndarray, test: Holdout) -> dict[str, Any]:
    """Members as one forecast, means over the test trajectories; see `scores`.

    Args:
        members: `[M, L, B, C, *space]` after the steps `leads(test)`, at least two.

    Returns:
        `leads`, `crps` (fair), `energy_score` (fair, over channels and space) and `spread_skill`,
        `[L]` each, in units of the training data, and the rank histogram `ranks` `[L, M + 1]`.
    """
    at = leads(test)
    return {"leads": at, **_scored(members, test.truth()[at - 1], test.keys(4)[0])}


@jax.jit
def _scored(members: jax.Array, truth: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return {
        "crps": scores.crps(members, truth).mean(tuple(range(1, truth.ndim))),
        "energy_score": scores.energy_score(members, truth).mean(1),
        "spread_skill": scores.spread_skill(members, truth),
        "ranks": scores.rank_histogram(members, truth, key, batch_dims=1),
    }


def high_correlation_times(
    correlation: np.ndarray, dt: float, threshold: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Of `[seeds, T, B]`: the paper's mean-curve time and the mean of the trajectories' own."""
    curve = [metrics.high_correlation_time(c, dt, threshold) for c in correlation]
    each = [metrics.correlation_horizons(c, dt, threshold).mean() for c in correlation]
    return np.array(curve), np.array(each)

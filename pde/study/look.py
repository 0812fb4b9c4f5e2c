"""How good a trained emulator is: one step, long rollouts, and what its samples know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.devices import map_seeds
from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.loggers import Progress
from jaxrl_rollouts.trees import PyTree

from .. import metrics
from ..emulator import Emulator
from ..evaluation import compare, late_spectrum, roll_emulator
from .train import KsData, StudyConfig, kept, per_seed_keys

STARTS = 4  # frames per test trajectory from which single steps are judged


class Evaluated(NamedTuple):
    """All seeds of one method; `K = points // 2 + 1`.

    Attributes:
        correlation: `[seeds, T, B]` of the rollouts.
        late: `[seeds, K]` amplitudes over the last quarter of the rollouts.
        one_step: `[seeds, calls]` mean square error of a step after 0, 1, ... refinements.
        first_error: `[seeds, calls, K]` its spectrum.
        rollout: `[T, N]` of seed 0 and test trajectory 0.
    """

    correlation: np.ndarray
    late: np.ndarray
    one_step: np.ndarray
    first_error: np.ndarray
    rollout: np.ndarray


class Sampled(NamedTuple):
    """What stochastic rollouts of one method say, all seeds.

    Attributes:
        cross: `[seeds, T, B]` their correlation with each other.
        spread, error: `[seeds, T]` standard deviation over samples and root mean square error of
            their mean, over space and trajectories.
    """

    cross: np.ndarray
    spread: np.ndarray
    error: np.ndarray


def evaluate(
    name: str, emulators: Sequence[Emulator], params: PyTree, study: StudyConfig, data: KsData,
    context: RunContext,
) -> Evaluated:  # fmt: skip
    """Roll a method over the test trajectories.

    Args:
        name: of the method; its stage keeps the result.
        emulators: the method with 0, 1, ... refinements applied; the last is rolled.
        params: `[seeds, ...]`.
    """

    def make() -> tuple:
        keys = per_seed_keys(study, 1)
        history, given = study.history, data.test.conditions
        truth = data.truth(study.steps, history)
        at = np.linspace(0, study.steps - 1, STARTS).astype(int)
        before = jnp.stack([data.opening(history, int(i)) for i in at])
        steps = (before, truth[at], given)
        single = [map_seeds(_single(e), (params, keys), steps) for e in emulators]
        squares, errors = (np.stack([np.asarray(s[i]) for s in single], 1) for i in (0, 1))
        shared = (before[0], truth, given)
        rolled = map_seeds(_rolled(emulators[-1], study.steps), (params, keys), shared)
        correlation, late, shown = map(np.asarray, rolled)
        return correlation, late, squares, errors, shown[0]

    return Evaluated(**kept(context, name, "evaluated", make, Evaluated._fields))


def _single(emulator: Emulator) -> Any:
    def single(of_seed: tuple, steps: tuple) -> tuple[jax.Array, jax.Array]:
        (params, key), (before, after, given) = of_seed, steps

        def one(key: jax.Array, field: jax.Array) -> jax.Array:
            return roll_emulator(emulator, params, field, given, key, 1)[0]

        said = jax.lax.map(lambda k: one(*k), (jax.random.split(key, len(before)), before))
        return jnp.square(said - after).mean(), metrics.error_spectrum(said, after)

    return single


def _rolled(emulator: Emulator, steps: int) -> Any:
    def rolled(of_seed: tuple, shared: tuple) -> tuple[jax.Array, jax.Array, jax.Array]:
        (params, key), (start, truth, given) = of_seed, shared
        fields = roll_emulator(emulator, params, start, given, key, steps)
        found = compare(fields, truth)
        return found.correlation, found.last_spectrum, fields[:, 0, 0]

    return rolled


def sample(
    name: str, emulator: Emulator, params: PyTree, study: StudyConfig, data: KsData,
    context: RunContext,
) -> Sampled:  # fmt: skip
    """Roll several samples per trajectory and ask how far they agree; no truth in `cross`.

    Raises:
        Interrupted: the context's stop flag was raised.
    """
    steps = study.sampled_steps
    some = slice(0, study.sampled)

    def roll(of_seed: tuple, shared: tuple) -> jax.Array:
        (params, key), (start, given) = of_seed, shared
        return roll_emulator(emulator, params, start, given, key, steps)

    def look(samples: jax.Array, truth: jax.Array) -> tuple:
        spread, error = metrics.spread_and_error(samples, truth)
        squares = (jnp.sqrt(jnp.square(x).mean(1)) for x in (spread, error))
        return metrics.cross_correlation(samples), *squares

    def make() -> tuple:
        start, given = data.opening(study.history)[some], data.test.conditions[some]
        rolled = []
        bar = Progress(
            f"{name}: sample", total=study.samples, unit="samples", enabled=context.progress
        )
        with bar:
            for i in range(study.samples):
                keys = per_seed_keys(study, 2 + i)
                rolled.append(map_seeds(roll, (params, keys), (start, given)))
                bar.advance(1, {})
                if context.stop and context.stop.requested:
                    raise Interrupted(f"stopped while sampling {name}; go on with: "
                                      f"jaxrl-rollouts resume {context.folder.path}")  # fmt: skip
        truth = data.truth(steps, study.history)[:, some]
        return map_seeds(look, jnp.stack(rolled, 1), truth)

    return Sampled(**kept(context, name, "sampled", make, Sampled._fields))


def high_correlation_times(
    correlation: np.ndarray, dt: float, threshold: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Of `[seeds, T, B]`: the paper's mean-curve time and the mean of the trajectories' own."""
    curve = [metrics.high_correlation_time(c, dt, threshold) for c in correlation]
    own = [metrics.correlation_horizons(c, dt, threshold).mean() for c in correlation]
    return np.array(curve), np.array(own)


def reliable(
    study: StudyConfig, data: KsData, e: Evaluated, s: Sampled
) -> tuple[np.ndarray, np.ndarray]:
    """Predicted (from samples alone) and true horizons, `[seeds, sampled]` each, in time."""
    true = e.correlation[:, : study.sampled_steps, : study.sampled]
    found = [[metrics.correlation_horizons(c, data.dt) for c in which] for which in (s.cross, true)]
    return np.array(found[0]), np.array(found[1])


def true_spectrum(study: StudyConfig, data: KsData) -> np.ndarray:
    """The truth's amplitudes late in a rollout, `[K]`; `Evaluated.late` is compared with it."""
    return np.asarray(late_spectrum(data.truth(study.steps)))


class Emulated(NamedTuple):
    """A method, trained and looked at; `samples` of the refiner only."""

    trained: Trained
    found: Evaluated
    samples: Sampled | None

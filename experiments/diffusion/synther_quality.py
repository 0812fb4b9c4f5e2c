"""What `synther_small_data` looks at in samples: four numbers, beside two references."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.offline.data import Transitions, take_rows
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.synthetic.paths import step_error
from jaxrl_rollouts.offline.synthetic.quality import (
    correlation_score,
    marginal_score,
    novelty,
    table,
)


class Quality(NamedTuple):
    """Of one seed's rows.

    Attributes:
        marginal, correlation: 1 is best (SynthER, section 3).
        novelty: mean distance to the nearest real row, in standard deviations.
        error: mean squared error of the next observation against the simulator, in squared
            standard deviations; `median` of the same.
    """

    marginal: float
    correlation: float
    novelty: float
    error: float
    median: float


def augmented(rows: Transitions, noise: float, seed: int) -> Transitions:
    """Rows whose two observations have the same noise added, `noise` standard deviations wide."""
    rng = np.random.default_rng(seed)
    unit = np.asarray(rows.observations).std(0)
    added = (noise * unit * rng.normal(size=rows.observations.shape)).astype(np.float32)
    return rows._replace(
        observations=rows.observations + added, next_observations=rows.next_observations + added
    )


def quality_of(real: Transitions, judged: Transitions, env: Environment, key: jax.Array) -> Quality:
    """All of it, of `judged` rows that stand in for `real` ones."""
    one, two = table(real), table(judged)
    paths = jax.tree.map(lambda x: np.asarray(x)[:, None], judged)  # of a single step each
    error = step_error(env, paths, real, key)[:, 0]
    return Quality(
        marginal_score(one, two), correlation_score(one, two), float(novelty(one, two).mean()),
        float(error.mean()), float(np.median(error)),
    )  # fmt: skip


def measure_quality(
    rows: list[Transitions], samples: list[Transitions], env: Environment, key: jax.Array, *,
    count: int, noise: float,
) -> dict[str, list[Quality]]:  # fmt: skip
    """One entry per seed, of `count` samples and of as many rows with noise added."""
    found: dict[str, list[Quality]] = {"samples": [], "rows with noise": []}
    for seed, (real, made) in enumerate(zip(rows, samples, strict=True)):
        rng = np.random.default_rng(seed)
        own = take_rows(real, rng.integers(0, len(real.rewards), count))
        noisy = augmented(own, noise, seed)
        drawn = take_rows(made, rng.permutation(len(made.rewards))[:count])
        for kind, judged in (("samples", drawn), ("rows with noise", noisy)):
            found[kind].append(quality_of(real, judged, env, jax.random.fold_in(key, seed)))
    return found

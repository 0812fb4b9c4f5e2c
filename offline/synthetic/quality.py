"""How good synthetic transitions are: marginals, correlations, dynamics, novelty (SynthER, sec. 3).

Pictures of a distribution agree long before its transitions obey the simulator; so the last two
are what to look at.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data import Transitions, to_device
from ..environments import Environment
from .paths import step_error, truth


def table(transitions: Transitions) -> np.ndarray:
    """`[N, 2 S + A + 2]` float64: observation, action, reward, next observation, termination."""
    t = transitions
    columns = (t.observations, t.actions, t.rewards, t.next_observations, t.terminations)
    wide = [np.asarray(column, np.float64) for column in columns]
    return np.concatenate([c[:, None] if c.ndim == 1 else c for c in wide], 1)


def marginal_score(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Mean over columns of one minus the Kolmogorov-Smirnov distance; 1 is best.

    Args:
        real, synthetic: `[N, F]` and `[M, F]`.
    """
    scores = []
    for a, b in zip(np.sort(real, 0).T, np.sort(synthetic, 0).T, strict=True):
        points = np.concatenate([a, b])
        shares = [np.searchsorted(x, points, side="right") / len(x) for x in (a, b)]
        scores.append(1.0 - np.abs(shares[0] - shares[1]).max())
    return float(np.mean(scores))


def correlation_score(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Mean over pairs of columns of one minus half the difference of correlations; 1 is best.

    Pairs with a column that is constant on either side have no correlation and are left out; NaN
    where none is left.
    """
    varies = (real.std(0) > 0) & (synthetic.std(0) > 0)
    pairs = np.triu_indices(int(varies.sum()), 1)
    if not len(pairs[0]):
        return float("nan")
    one, two = (np.corrcoef(x[:, varies].T)[pairs] for x in (real, synthetic))
    return float(1.0 - np.abs(one - two).mean() / 2.0)


class DynamicsError(NamedTuple):
    """Squared distances from the truth per row, `[N]`."""

    next_observation: np.ndarray  # mean over entries, in squared standard deviations of the data
    reward: np.ndarray  # likewise
    terminations: np.ndarray  # bool: ended where the truth does not, or the reverse


def dynamics_error(
    env: Environment, synthetic: Transitions, scale: Transitions, key: jax.Array
) -> DynamicsError:
    """Set the true simulator to every row's observation, act, and compare.

    Args:
        env: one whose observation determines its state.
        synthetic: the rows to judge.
        scale: the data whose standard deviations are the units (a constant column counts as 1).
        key: consumed by the simulator.

    Raises:
        ConfigError: the environment's observation does not determine its state.
    """
    rows = to_device(synthetic)
    following, reward, ended = truth(env)(key, rows.observations, rows.actions)
    units = [np.std(np.asarray(x, np.float64), 0) for x in (scale.next_observations, scale.rewards)]
    units = [np.where(unit > 0, unit, 1.0) for unit in units]
    apart = (np.asarray(rows.next_observations) - np.asarray(following)) / units[0]
    off = (np.asarray(rows.rewards) - np.asarray(reward)) / units[1]
    wrong = np.asarray(rows.terminations) != np.asarray(ended)
    return DynamicsError(np.square(apart).mean(1), np.square(off), wrong)


@jax.jit
def _nearest(rows: jax.Array, data: jax.Array) -> jax.Array:
    # By differences: |a|^2 - 2 a b + |b|^2 would lose small distances in float32.
    return jnp.sqrt(jax.lax.map(lambda row: jnp.square(data - row).sum(1).min(), rows))


def novelty(real: np.ndarray, synthetic: np.ndarray) -> np.ndarray:
    """Distance of every synthetic row to the nearest real one, `[M]`, in standard deviations.

    Args:
        real, synthetic: `[N, F]` and `[M, F]`; both are divided by the real columns' deviations.
    """
    unit = real.std(0)
    unit = np.where(unit > 0, unit, 1.0)
    rows = jnp.asarray(synthetic / unit, jnp.float32)
    return np.asarray(_nearest(rows, jnp.asarray(real / unit, jnp.float32)))


def sliced_wasserstein(
    real: np.ndarray | jax.Array,
    synthetic: np.ndarray | jax.Array,
    *,
    directions: int = 128,
    seed: int = 0,
) -> float:
    """Mean 1-Wasserstein distance over random directions, in the rows' units; 0 is best.

    Args:
        real, synthetic: `[N, ...]` and `[M, ...]`; standardised, so that columns count alike.
        directions: unit vectors, drawn from `seed`.
    """
    flat = [np.asarray(x, np.float64).reshape(len(x), -1) for x in (real, synthetic)]
    drawn = np.random.default_rng(seed).normal(size=(flat[0].shape[1], directions))
    drawn /= np.linalg.norm(drawn, axis=0)
    most = max(len(real), len(synthetic))
    levels = (np.arange(most) + 0.5) / most
    # Quantiles as values of the rows, which needs one sort; np.quantile takes fifty times as long.
    places = (np.ceil(levels * len(x)).astype(int) - 1 for x in flat)
    one, two = (np.sort(x @ drawn, 0)[at] for x, at in zip(flat, places, strict=True))
    return float(np.abs(one - two).mean())


def augmented(rows: Transitions, noise: float, seed: int) -> Transitions:
    """Rows whose two observations have the same noise added, `noise` standard deviations wide."""
    rng = np.random.default_rng(seed)
    unit = np.asarray(rows.observations).std(0)
    added = (noise * unit * rng.normal(size=rows.observations.shape)).astype(np.float32)
    return rows._replace(
        observations=rows.observations + added, next_observations=rows.next_observations + added
    )


def quality_of(
    real: Transitions, judged: Transitions, env: Environment, key: jax.Array
) -> dict[str, float]:
    """How good `judged` rows are that stand in for `real` ones.

    Returns:
        `marginal` and `correlation`, 1 is best (SynthER, section 3); `novelty`, the mean distance
        to the nearest real row in standard deviations; `error`, the mean squared error of the next
        observation against the simulator in squared standard deviations, and its `median`: these
        two only where the observation of `env` determines its state.
    """
    one, two = table(real), table(judged)
    found = {
        "marginal": marginal_score(one, two),
        "correlation": correlation_score(one, two),
        "novelty": float(novelty(one, two).mean()),
    }
    if env.set_observation is None:
        return found
    paths = jax.tree.map(lambda x: np.asarray(x)[:, None], judged)  # of a single step each
    error = step_error(env, paths, real, key)[:, 0]
    return found | {"error": float(error.mean()), "median": float(np.median(error))}

"""Quality of synthetic transitions: distance of distributions, and error of the dynamics."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments import Environment, true_model


def table(transitions: Transitions) -> np.ndarray:
    """`[N, 2 S + A + 2]` float64: observation, action, reward, next observation, termination."""
    t = transitions
    columns = (t.observations, t.actions, t.rewards, t.next_observations, t.terminations)
    wide = [np.asarray(column, np.float64) for column in columns]
    return np.concatenate([c[:, None] if c.ndim == 1 else c for c in wide], 1)


class DynamicsError(NamedTuple):
    """Squared distances from the truth per row, `[N]`."""

    next_observation: np.ndarray  # mean over entries, in squared standard deviations of the data
    reward: np.ndarray  # likewise
    terminations: np.ndarray  # bool: ended where the truth does not, or the reverse


def dynamics_error(
    env: Environment, synthetic: Transitions, scale: Transitions, key: jax.Array
) -> DynamicsError:
    """Set the true simulator to every row's observation, act, and compare."""
    rows = to_device(synthetic)
    step = jax.jit(true_model(env).step)
    following, out = step(None, key, rows.observations, rows.actions, None)
    units = [np.std(np.asarray(x, np.float64), 0) for x in (scale.next_observations, scale.rewards)]
    units = [np.where(unit > 0, unit, 1.0) for unit in units]
    apart = (np.asarray(rows.next_observations) - np.asarray(following)) / units[0]
    off = (np.asarray(rows.rewards) - np.asarray(out.reward)) / units[1]
    wrong = np.asarray(rows.terminations) != np.asarray(out.terminated)
    return DynamicsError(np.square(apart).mean(1), np.square(off), wrong)


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

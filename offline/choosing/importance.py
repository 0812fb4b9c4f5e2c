"""Importance sampling and doubly robust estimates, of logged episodes; numpy.

Precup et al. 2000 (per-decision, self-normalised), Jiang & Li 2016 and Thomas & Brunskill 2016
(doubly robust), with the clipped ratios of Fu et al. 2021. Shapes: `E` episodes padded to `T`
steps; draws are counts `[D, E]` of how often each episode was drawn.
"""

from __future__ import annotations

import numpy as np

CLIP = (-6.0, 2.0)  # of the logarithm of a product of ratios
LEAST = 10.0  # effective episodes at the effective horizon below which an estimate says nothing
CORRECTED = 20  # steps of an episode that correct a doubly robust estimate


def products(log_ratios: np.ndarray, played: np.ndarray) -> np.ndarray:
    """`rho_t = exp(clip(sum_{u <= t} log pi(a_u|s_u) - log mu(a_u|s_u)))`, `[E, T]`.

    After an episode has ended its last product stays: its reward of zero counts as much as others'.

    Args:
        log_ratios: `[E, T]`.
        played: `[E, T]` bool, False after an episode's end.
    """
    return np.exp(np.clip(np.cumsum(np.where(played, log_ratios, 0.0), 1), *CLIP))


def effective(rho: np.ndarray) -> np.ndarray:
    """Effective number of episodes, `(sum_i rho_it)^2 / sum_i rho_it^2`, `[T]`."""
    return rho.sum(0) ** 2 / np.square(rho).sum(0)


def effective_at_horizon(rho: np.ndarray, discount: float) -> float:
    """`effective` at `1 / (1 - gamma)`, or at the last step where that is later."""
    last = rho.shape[1] - 1
    return float(effective(rho)[min(round(1.0 / (1.0 - discount)), last)])


def per_decision(
    rho: np.ndarray, rewards: np.ndarray, counts: np.ndarray, discount: float
) -> np.ndarray:
    """`sum_t gamma^t sum_i w_it r_it` with weights `w` that sum to 1 at every step, `[D]`.

    Args:
        rho: `[E, T]` of `products`.
        rewards: `[E, T]`, zero after an episode's end.
        counts: `[D, E]`.
        discount: gamma.
    """
    weights = discount ** np.arange(rho.shape[1])
    return (counts @ (rho * rewards) / (counts @ rho)) @ weights


def doubly_robust(
    rho: np.ndarray,
    rewards: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    counts: np.ndarray,
    discount: float,
    *,
    steps: int | None = CORRECTED,
    normalised: bool = True,
) -> np.ndarray:
    """`V(s_0) + sum_t gamma^t w_t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t))`, `[D]`.

    Args:
        rho, rewards, counts, discount: as for `per_decision`.
        q: `[E, T]`, of the logged actions; zero after an episode's end.
        v: `[E, T + 1]`, of the states, zero where no value follows.
        steps: of an episode that correct; None for all, which is unbiased and noisier.
        normalised: weights sum to 1 at every step; False takes the products themselves.
    """
    last = rho.shape[1] if steps is None else min(steps, rho.shape[1])
    weights = discount ** np.arange(last)
    error = (rewards + discount * v[:, 1:] - q)[:, :last]
    total = counts.sum(1)
    scale = counts @ rho[:, :last] if normalised else total[:, None]
    return (counts @ v[:, 0]) / total + (counts @ (rho[:, :last] * error) / scale) @ weights

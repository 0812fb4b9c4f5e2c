"""Importance sampling and doubly robust estimates, of logged episodes.

Precup et al. 2000 (per-decision, self-normalised), Jiang & Li 2016 and Thomas & Brunskill 2016
(doubly robust), with the clipped ratios of Fu et al. 2021. Shapes: `E` episodes padded to `T`
steps; draws are counts `[D, E]` of how often each episode was drawn.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..data import episodes
from .estimates import Critics, Log
from .fqe import Evaluated
from .policies import Entry

CLIP = (-6.0, 2.0)  # of the logarithm of a product of ratios
LEAST = 10.0  # effective episodes at the effective horizon below which an estimate says nothing
CORRECTED = 20  # steps of an episode that correct a doubly robust estimate


def products(log_ratios: np.ndarray, played: np.ndarray) -> np.ndarray:
    """`log rho_t = sum_{u <= t} log pi(a_u|s_u) - log mu(a_u|s_u)`, `[E, T]`.

    After an episode has ended its last product stays: its reward of zero counts as much as others'.

    Args:
        log_ratios: `[E, T]`.
        played: `[E, T]` bool, False after an episode's end.
    """
    return np.cumsum(np.where(played, log_ratios, 0.0), 1)


def clipped(log_products: np.ndarray) -> np.ndarray:
    """`rho`, its logarithm clipped to `CLIP`, `[E, T]`."""
    return np.exp(np.clip(log_products, *CLIP))


def effective(log_products: np.ndarray) -> np.ndarray:
    """Effective number of episodes, `(sum_i rho_it)^2 / sum_i rho_it^2`, `[T]`.

    Of products that are not clipped: a policy that is far from the log has all of them at the
    clip's lower end, where they are equal, count as all episodes, and give the log's own value.
    """
    rho = np.exp(log_products - log_products.max(0))
    return rho.sum(0) ** 2 / np.square(rho).sum(0)


def effective_at_horizon(log_products: np.ndarray, discount: float) -> float:
    """`effective` at `1 / (1 - gamma)`, or at the last step where that is later."""
    last = log_products.shape[1] - 1
    return float(effective(log_products)[min(round(1.0 / (1.0 - discount)), last)])


def per_decision(
    rho: np.ndarray, rewards: np.ndarray, counts: np.ndarray, discount: float
) -> np.ndarray:
    """`sum_t gamma^t sum_i w_it r_it` with weights `w` that sum to 1 at every step, `[D]`.

    Args:
        rho: `[E, T]` of `clipped`.
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
        steps: steps of an episode used for the correction; None: all, unbiased and noisier.
        normalised: weights sum to 1 at every step; False takes the products themselves.
    """
    last = rho.shape[1] if steps is None else min(steps, rho.shape[1])
    weights = discount ** np.arange(last)
    error = (rewards + discount * v[:, 1:] - q)[:, :last]
    total = counts.sum(1)
    scale = counts @ rho[:, :last] if normalised else total[:, None]
    return (counts @ v[:, 0]) / total + (counts @ (rho[:, :last] * error) / scale) @ weights


def by_importance(
    log: Log, clones: Entry, entries: list[Entry], critics: Critics | None
) -> tuple[np.ndarray, np.ndarray]:
    """Importance sampling, or doubly robust with `critics`: values `[P]`, NaN where there is none,
    and effective episodes at the effective horizon, `[P]`; 0 of a policy without a density."""
    rows, spans = log.dataset.transitions, episodes(log.dataset.transitions)
    steps = np.arange(int(spans.lengths[log.kept].max()))
    played = steps < spans.lengths[log.kept, None]
    index = np.minimum(spans.starts[log.kept, None] + steps, len(rows.rewards) - 1)
    seen, acted = jnp.asarray(rows.observations[index]), jnp.asarray(rows.actions[index])
    rewards = np.where(played, rows.rewards[index], 0.0)
    of = jax.tree.map(lambda x: x[log.part[log.kept]], clones.actors)
    assert clones.agent.density is not None
    logged = np.asarray(jax.jit(jax.vmap(clones.agent.density))(of, seen, acted), np.float64)
    once, values, sizes = np.ones((1, len(log.kept))), [], []
    for number, entry in enumerate(entries):
        fitted = None if critics is None else critics.of[number]
        for seed in range(len(entry.names)):
            if entry.agent.density is None or entry.has_memory or isinstance(fitted, str):
                values.append(np.nan)
                sizes.append(0.0)
                continue
            actor = jax.tree.map(lambda x, k=seed: x[k], entry.actors)
            density = jax.jit(jax.vmap(entry.agent.density, in_axes=(None, 0, 0)))
            ratios = np.asarray(density(actor, seen, acted), np.float64) - logged
            logs = products(ratios, played)
            rho = clipped(logs)
            sizes.append(effective_at_horizon(logs, log.discount))
            if sizes[-1] < LEAST:
                values.append(np.nan)
            elif fitted is None:
                found = per_decision(rho, rewards, once, log.discount)
                values.append(found[0])
            else:
                q, v = _of_log(log, fitted, seed, index, played)
                values.append(doubly_robust(rho, rewards, q, v, once, log.discount)[0])
    return np.asarray(values), np.asarray(sizes)


def _of_log(
    log: Log, fitted: Evaluated, seed: int, index: np.ndarray, played: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Q(s_t, a_t)` `[E, T]` and `V(s_t)` `[E, T + 1]` of a policy along the first logged steps."""
    steps = min(CORRECTED, index.shape[1])
    rows, first = log.dataset.transitions, index[:, :steps]
    flat = first.reshape(-1)
    following = np.asarray(rows.next_observations)[flat]
    shape = first.shape
    q = fitted.of(rows.observations[flat], rows.actions[flat])[seed].mean(0).reshape(shape)
    after = fitted.at(following)[seed].mean(0).reshape(shape)
    alive = played[:, :steps]
    follows = alive & ~np.asarray(rows.terminations, bool)[first]
    v = np.concatenate([fitted.at(log.starts)[seed].mean(0)[:, None], after * follows], 1)
    full = np.zeros((len(first), index.shape[1])), np.zeros((len(first), index.shape[1] + 1))
    full[0][:, :steps], full[1][:, : steps + 1] = q * alive, v
    return full

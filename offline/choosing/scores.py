"""How good estimates of policies' values are, and choices made by them; numpy.

DOPE's metrics (Fu et al. 2021, arXiv:2103.16596), SharpeRatio@k (Kiyohara et al. 2024,
arXiv:2311.18207), the interval score (Winkler 1972), and the evaluation curve of Unifloral (Jackson
et al. 2025, arXiv:2504.11453). Values are true ones, `[P]` as
their estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.configs import SEED
from jaxrl_rollouts.errors import ConfigError


def _pair(values: ArrayLike, estimates: ArrayLike, least: int = 1) -> tuple[np.ndarray, ...]:
    both = np.asarray(values, np.float64), np.asarray(estimates, np.float64)
    if both[0].ndim != 1 or both[0].shape != both[1].shape or len(both[0]) < least:
        found = f"shapes {both[0].shape} and {both[1].shape}"
        raise ValueError(f"values, estimates: found {found}, expected [P] twice, P >= {least}")
    return both


def _top(estimates: np.ndarray, k: int) -> np.ndarray:
    if not 1 <= k <= len(estimates):
        raise ConfigError("k", k, f"from 1 to the {len(estimates)} policies")
    return np.argsort(-estimates, kind="stable")[:k]


def absolute_error(values: ArrayLike, estimates: ArrayLike, *, relative: bool = False) -> float:
    """`mean |J - estimate|`; relative: over `max J - min J`."""
    true, found = _pair(values, estimates)
    error = float(np.abs(true - found).mean())
    return error / float(np.ptp(true)) if relative else error


def rank_correlation(values: ArrayLike, estimates: ArrayLike) -> float:
    """Spearman's: Pearson's correlation of ranks, ties with their mean rank; NaN of constants."""
    ranks = []
    for one in _pair(values, estimates, 2):
        _, inverse, counts = np.unique(one, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2.0)[inverse])
    if min(np.ptp(rank) for rank in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def regret(values: ArrayLike, estimates: ArrayLike, k: int = 1) -> float:
    """Regret@k: `(max J - max_{top k} J) / (max J - min J)`, the top k by their estimates."""
    true, found = _pair(values, estimates, 2)
    return float((true.max() - true[_top(found, k)].max()) / np.ptp(true))


def sharpe_ratio(values: ArrayLike, estimates: ArrayLike, behaviour: float, k: int = 2) -> float:
    """SharpeRatio@k: `max(max_{top k} J - J_b, 0) / std_{top k} J`, with `k - 1` in the deviation.

    Args:
        values, estimates: `[P]`.
        behaviour: `J_b`, the value of the policy that made the data.
        k: at least 2.
    """
    if k < 2:
        raise ConfigError("k", k, "at least 2: one value has no deviation")
    true, found = _pair(values, estimates, 2)
    top = true[_top(found, k)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(max(top.max() - behaviour, 0.0)) / top.std(ddof=1))


def interval_coverage(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> float:
    """Share of the values inside their intervals."""
    true, below = _pair(values, low)
    return float(((below <= true) & (true <= np.asarray(high))).mean())


def winkler_score(values: ArrayLike, low: ArrayLike, high: ArrayLike, level: float = 0.9) -> float:
    """Mean interval score: the width, and `2 / (1 - level)` times how far a value lies outside."""
    true, below = _pair(values, low)
    above = np.asarray(high, np.float64)
    outside = np.maximum(below - true, 0.0) + np.maximum(true - above, 0.0)
    return float((above - below + 2.0 / (1.0 - level) * outside).mean())


def width_factor(
    values: ArrayLike, estimates: ArrayLike, low: ArrayLike, high: ArrayLike, level: float = 0.9
) -> float:
    """Factor on the half-widths that would have covered `level` of the values.

    That quantile of `|J - estimate| / ((high - low) / 2)`, interpolated.
    """
    true, found = _pair(values, estimates)
    half = (np.asarray(high, np.float64) - np.asarray(low, np.float64)) / 2
    return float(np.quantile(np.abs(true - found) / np.maximum(half, 1e-12), level))


def left_out(
    sets: Mapping[str, Sequence[ArrayLike]], level: float = 0.9
) -> dict[str, tuple[float, float]]:
    """Width factors by leaving one dataset out, and what they cover of it.

    A factor may be taken from benchmarks where each coverage is near `level`.

    Args:
        sets: by dataset, `(values, estimates, low, high)` of its policies, `[P]` each; at least 2.
        level: level of the intervals.

    Returns:
        By dataset, `width_factor` of all others together, and the coverage of its own intervals
        widened by that about their estimates.
    """
    if len(sets) < 2:
        raise ConfigError("sets", len(sets), "at least 2: one is left out of the others")
    found = {}
    for name, own in sets.items():
        others = zip(*(each for other, each in sets.items() if other != name), strict=True)
        factor = width_factor(*(np.concatenate(column) for column in others), level=level)
        true, middle, low, high = (np.asarray(column, np.float64) for column in own)
        half = factor * (high - low) / 2
        found[name] = factor, interval_coverage(true, middle - half, middle + half)
    return found


def bandit_curve(
    returns: ArrayLike,
    pulls: int | Sequence[int],
    *,
    policies: int = 8,
    repeats: int = 1000,
    alpha: float = 2.0,
    scale: Literal["range", "published"] = "range",
    seed: int = 0,
) -> np.ndarray:
    """Mean true return of what a bandit picks after so many trials in the true environment.

    Of `P` policies `policies` are drawn without replacement, a bandit with upper confidence bounds
    `mean + scale sqrt(alpha ln t / n)` tries them, and the arm with the best mean among those that
    were tried is picked. In the published code an arm that was never tried has the mean 0, which is
    picked wherever returns are negative.

    Args:
        returns: `[P, R]`, `R` episodes of each policy; a pull samples one of them.
        pulls: number of trials, or several numbers.
        policies: policies sampled in each repeat; at most `P`.
        repeats: over which the curve is averaged.
        alpha: alpha of the bound.
        scale: `range` scales the bound by the range of all returns; `published` by 1, for
            normalised scores times 100, of which it is a few points.
        seed: random seed.

    Returns:
        `[pulls]`, of each number of trials.
    """
    table = np.asarray(returns, np.float64)
    at = np.atleast_1d(np.asarray(pulls, int))
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError(f"returns: found shape {table.shape}, expected finite [P, R]")
    if at.min() < 1:
        raise ConfigError("pulls", at.tolist(), "numbers of at least 1")
    SEED.check("seed", seed)
    rng, count, unit = np.random.default_rng(seed), min(policies, len(table)), 1.0
    if scale == "range":
        unit = float(np.ptp(table)) or 1.0
    order = np.argsort(rng.random((repeats, len(table))), 1)[:, :count]
    every, means = np.arange(repeats), table.mean(1)[order]
    sums, tried = np.zeros((repeats, count)), np.zeros((repeats, count))
    curve = np.zeros(at.max())
    for step in range(at.max()):
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = sums / tried + unit * np.sqrt(alpha * np.log(step + 1.0) / tried)
        arm = np.where(tried == 0, np.inf, bound).argmax(1)
        sums[every, arm] += table[order[every, arm], rng.integers(table.shape[1], size=repeats)]
        tried[every, arm] += 1
        known = np.where(tried > 0, sums / np.maximum(tried, 1), -np.inf)
        curve[step] = means[every, known.argmax(1)].mean()
    return curve[at - 1]

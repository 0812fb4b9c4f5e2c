"""Scores of an ensemble forecast against the truth.

Shapes: samples `[M, ...]` of `M` members, the members first; truth `[...]` of the rest. In fields
the rest is `[*batch, C, *space]`, for rollouts `[T, B, C, *space]`; `batch_dims` leading axes of it
are kept and the others averaged over. Every function is pure and may be compiled and vmapped.

The references are Gneiting & Raftery (2007) for the proper scores, Ferro (2014) for fair ones, Lang
et al. (2024, AIFS-CRPS, section 2) for almost fair ones, and Fortin et al. (2014) for the ratio of
spread to skill.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError


def _count(samples: jax.Array, truth: jax.Array, least: int = 2) -> int:
    """The number of members; `ValueError` unless the shapes fit and there are enough of them."""
    if samples.shape[1:] != truth.shape:
        expected = ("M", *truth.shape)
        raise ValueError(f"samples: found shape {samples.shape}, expected {expected}")
    if samples.shape[0] < least:
        raise ValueError(f"samples: found {samples.shape[0]} members, expected at least {least}")
    return samples.shape[0]


def _pair_weight(count: int, alpha: float) -> float:
    """Weight of the sum of distances over ordered pairs; 1 / M^2 at 0, 1 / (M (M - 1)) at 1."""
    if not 0.0 <= alpha <= 1.0:
        raise ConfigError("alpha", alpha, "a number from 0 (empirical) to 1 (fair)")
    return (1.0 - (1.0 - alpha) / count) / (count * (count - 1))


def crps(samples: jax.Array, truth: jax.Array, *, alpha: float = 1.0) -> jax.Array:
    """Continuous ranked probability score at every point.

    `mean_m |x_m - y| - w/2 sum_{m,n} |x_m - x_n|` with `w = (1 - e) / (M (M - 1))` and
    `e = (1 - alpha) / M`. The sum over pairs is `2 sum_k (2 k - M - 1) x_(k)` of sorted members.

    Args:
        samples: `[M, ...]`, at least two members.
        truth: `[...]`.
        alpha: 1 is the fair score, whose mean does not depend on `M`; 0 the empirical one, with
            `w = 1 / M^2`. The fair score leaves the last member free once all others equal the
            truth; 0.95, almost fair, does not.

    Returns:
        `[...]` in the units of the field, lower is better.

    Raises:
        ValueError: shapes that do not fit, or fewer than two members.
        ConfigError: `alpha` outside [0, 1].
    """
    count = _count(samples, truth)
    error = jnp.abs(samples - truth).mean(0)
    ranks = 2.0 * jnp.arange(1, count + 1) - count - 1.0
    pairs = jnp.tensordot(ranks.astype(error.dtype), jnp.sort(samples, 0), 1)
    return error - _pair_weight(count, alpha) * pairs


def energy_score(
    samples: jax.Array, truth: jax.Array, *, batch_dims: int = 2, alpha: float = 1.0
) -> jax.Array:
    """Energy score of whole fields, the CRPS of vectors.

    `mean_m ||x_m - y|| - w/2 sum_{m,n} ||x_m - x_n||`, `w` as for `crps`; the norm is Euclidean
    over channels and space (Gneiting & Raftery 2007, section 4.3).

    Args:
        samples: `[M, *batch, C, *space]`, at least two members.
        truth: `[*batch, C, *space]`.
        batch_dims: leading axes of the truth that the norm is not taken over.
        alpha: as for `crps`.

    Returns:
        `[*batch]`, lower is better.

    Raises:
        ValueError: shapes that do not fit, or fewer than two members.
        ConfigError: `alpha` outside [0, 1].
    """
    count = _count(samples, truth)
    axes = tuple(range(1 + batch_dims, samples.ndim))

    def distances(field: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.square(samples - field).sum(axes))

    # One member at a time: all pairs of fields need not fit into memory.
    pairs = jax.lax.map(lambda member: distances(member).sum(0), samples).sum(0)
    return distances(truth).mean(0) - _pair_weight(count, alpha) / 2.0 * pairs


def spread_skill(samples: jax.Array, truth: jax.Array, *, batch_dims: int = 1) -> jax.Array:
    """Ratio of an ensemble's spread to the error of its mean.

    `sqrt(<s^2> / <(m - y)^2 - s^2 / M>)` with the members' mean `m` and unbiased variance `s^2`;
    the averages are taken first. A truth that might be a member gives 1 for every `M`; below 1 the
    ensemble is overconfident.

    Args:
        samples: `[M, *batch, ...]`, at least two members.
        truth: `[*batch, ...]`.
        batch_dims: leading axes of the truth that are not averaged over: 1 keeps time.

    Returns:
        `[*batch]`; NaN where the error is no larger than the members' own scatter explains.

    Raises:
        ValueError: shapes that do not fit, or fewer than two members.
    """
    count = _count(samples, truth)
    axes = tuple(range(batch_dims, truth.ndim))
    variance = samples.var(0, ddof=1)
    skill = (jnp.square(samples.mean(0) - truth) - variance / count).mean(axes)
    return jnp.where(
        skill > 0, jnp.sqrt(variance.mean(axes) / jnp.where(skill > 0, skill, 1)), jnp.nan
    )


def rank_histogram(
    samples: jax.Array, truth: jax.Array, key: jax.Array, *, batch_dims: int = 0
) -> jax.Array:
    """How often the truth has each rank among the members (Hamill 2001).

    The rank of a point is the number of members below the truth, plus a uniformly random share of
    those that equal it. Exchangeable truth and members give a flat histogram. Points of one field
    depend on each other, so that a test of flatness has fewer degrees of freedom than points.

    Args:
        samples: `[M, *batch, ...]`.
        truth: `[*batch, ...]`.
        key: consumed by ties.
        batch_dims: leading axes of the truth that have histograms of their own.

    Returns:
        Counts `[*batch, M + 1]`, int32.

    Raises:
        ValueError: shapes that do not fit, or no members.
    """
    count = _count(samples, truth, 1)
    below = (samples < truth).sum(0)
    ties = (samples == truth).sum(0)
    ranks = below + jax.random.randint(key, truth.shape, 0, ties + 1)
    flat = ranks.reshape(*truth.shape[:batch_dims], -1)
    return (flat[..., None] == jnp.arange(count + 1)).sum(-2, dtype=jnp.int32)


def coverage(
    samples: jax.Array, truth: jax.Array, levels: Sequence[float], *, batch_dims: int = 0
) -> jax.Array:
    """Share of points inside the members' central intervals.

    An interval of level `c` lies between the quantiles `(1 - c) / 2` and `(1 + c) / 2`. The
    quantile `p` is the member of rank `p (M + 1)`, interpolated between neighbours (Weibull's
    plotting position): of exchangeable truth and members, it lies above the truth with probability
    `p` where that rank is whole.

    Args:
        samples: `[M, *batch, ...]`, at least two members.
        truth: `[*batch, ...]`.
        levels: `L` numbers from 0 to `(M - 1) / (M + 1)`, the largest that `M` members can cover.
        batch_dims: leading axes of the truth that are not averaged over.

    Returns:
        `[L, *batch]` in [0, 1].

    Raises:
        ValueError: shapes that do not fit, or fewer than two members.
        ConfigError: a level that so many members cannot cover.
    """
    count = _count(samples, truth)
    most, asked = (count - 1) / (count + 1), np.asarray(levels, np.float64)
    if asked.ndim != 1 or not len(asked) or asked.min() <= 0 or asked.max() > most + 1e-9:
        expected = f"levels above 0 and at most {most:.3g}, which {count} members can cover"
        raise ConfigError("levels", list(levels), expected)
    ordered = jnp.sort(samples, 0)

    def quantile(share: float) -> jax.Array:
        place = min(max(share * (count + 1) - 1, 0.0), count - 1.0)
        low = min(int(place), count - 2)
        return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])

    axes = tuple(range(batch_dims, truth.ndim))
    inside = [
        (quantile((1 - level) / 2) <= truth) & (truth <= quantile((1 + level) / 2))
        for level in asked.tolist()
    ]
    return jnp.stack([each.mean(axes) for each in inside])

"""Ensembles: a network with a leading member axis on every parameter.

Three ways to ask: every member about the same rows (`apply_all`), every member about its own rows
(`apply_each`, training), one member per row (`apply_assigned`, rollouts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .devices import cores_are_devices
from .networks import Network
from .trees import PyTree

IN_TURN = 20  # members: fewer are as quick side by side (experiments/results/speed.md)


class Ensemble(NamedTuple):
    """`N` networks of one architecture.

    Attributes:
        init: `key -> params`, leaves `[N, ...]`.
        apply_all: `(params, *rows[B, ...]) -> outputs [N, B, ...]`.
        apply_each: `(params, *rows[N, B, ...]) -> outputs [N, B, ...]`.
        size: `N`.
    """

    init: Callable[[jax.Array], PyTree]
    apply_all: Callable[..., Any]
    apply_each: Callable[..., Any]
    size: int


def ensemble(network: Network, size: int) -> Ensemble:
    """Stack `size` independently initialised copies of `network`."""
    if size < 1:
        raise ValueError(f"size: found {size}, expected at least 1")

    def init(key: jax.Array) -> PyTree:
        # A key per member: equal initial weights would make the spread of members meaningless.
        return jax.vmap(network.init)(jax.random.split(key, size))

    def apply_all(params: PyTree, *rows: jax.Array) -> Any:
        return each_member(lambda one: network.apply(one, *rows), params)

    def apply_each(params: PyTree, *rows: jax.Array) -> Any:
        return jax.vmap(network.apply)(params, *rows)

    return Ensemble(init, apply_all, apply_each, size)


def each_member(
    function: Callable[[PyTree], Any], params: PyTree, in_turn: bool | None = None
) -> Any:
    """`function` of every member's parameters; results are stacked, `[N, ...]`.

    On one core many members are quicker one after the other than side by side: what is between the
    layers of one stays in the core's cache, and that of all does not. For the gradient it is
    computed anew, which costs less than to keep it.

    Args:
        params: leaves `[N, ...]`.
    """
    if in_turn is None:
        size = jax.tree.leaves(params)[0].shape[0]
        in_turn = size >= IN_TURN and cores_are_devices()
    if in_turn:
        # Inside a scan the barrier against common subexpressions is not needed and costs time.
        return jax.lax.map(jax.checkpoint(function, prevent_cse=False), params)
    return jax.vmap(function)(params)


def take_members(params: PyTree, members: jax.Array) -> PyTree:
    """The parameters of some members (`[M]` int32), leaves `[M, ...]`."""
    return jax.tree.map(lambda leaf: leaf[members], params)


def select_members(better: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Per member, `new` where `better` (`[N]` bool) and `old` elsewhere (best snapshots)."""

    def select(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(select, new, old)


def apply_assigned(
    apply_each: Callable[..., Any], params: PyTree, rows: jax.Array, slots: jax.Array, capacity: int
) -> Any:
    """Evaluate each row by one member, and each member on its own rows only.

    Rows are put into `[M, capacity]` places, one pass of `M * capacity` rows is made and the
    answers are put back in order: `M` times less work than asking every member about every row.

    Args:
        params: leaves `[M, ...]`.
        rows: `[B, F]`.
        slots: `[B]` int32, position of the row's member in `params`.
        capacity: most rows one member may get, static. `rollouts.draw_members` never exceeds
            `ceil(B / M)`. Rows over the capacity come back as NaN rather than wrong.

    Returns:
        Outputs with leading axis `B`.
    """
    members = jax.tree.leaves(params)[0].shape[0]
    batch = rows.shape[0]
    own = slots == jnp.arange(members)[:, None]
    # Counted, not sorted: on a CPU that takes an eighth of the time.
    rank = jnp.where(own, jnp.cumsum(own, 1, dtype=jnp.int32), 0).sum(0) - 1
    fits = rank < capacity
    # Rows that do not fit get a place past the end, which `mode="drop"` below ignores.
    place = jnp.where(fits, slots * capacity + rank, members * capacity)
    source = (
        jnp.zeros((members * capacity,), jnp.int32)
        .at[place]
        .set(jnp.arange(batch, dtype=jnp.int32), mode="drop")
    )
    # Unused places repeat row 0: static shapes cost less than a second compilation.
    outputs = apply_each(params, rows[source].reshape(members, capacity, -1))

    def back(leaf: jax.Array) -> jax.Array:
        flat = leaf.reshape(members * capacity, *leaf.shape[2:])[jnp.where(fits, place, 0)]
        # NaN, since a wrong capacity must not pass as another member's answer.
        return jnp.where(fits.reshape(-1, *(1,) * (flat.ndim - 1)), flat, jnp.nan)

    return jax.tree.map(back, outputs)


def safe_min(values: jax.Array) -> jax.Array:
    """`values.min(0)` with a gradient that is safe: all of it goes to the first least member.

    The gradient of `min` recomputes which members equal the least, over how many do. A compiler
    may compute either side anew and round it another way; then none does, and 0 / 0 is NaN.
    """
    # By index, not by equality: ties and recomputed values then have exactly one winner.
    members = jnp.arange(values.shape[0]).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(members == values.argmin(0), values, 0.0).sum(0)


def max_aleatoric(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Largest norm of a member's predicted standard deviation (MOPO, equation 8).

    `[N, B, O]` means and stds to `[B]`.
    """
    # Means do not enter: MOPO's bound is on the noise that a member predicts.
    del means
    return jnp.linalg.norm(stds, axis=-1).max(0)


def max_pairwise(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Largest distance between two members' means (MOReL, definition 1).

    `[N, B, O]` means and stds to `[B]`.
    """
    # All pairs: the farthest two disagree most, wherever the mean of all members lies.
    del stds
    gaps = jnp.linalg.norm(means[:, None] - means[None], axis=-1)
    return gaps.max((0, 1))


def spread_of_means(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Root mean over outputs of the variance of means over members (NEUBAY, section 4).

    `[N, B, O]` means and stds to `[B]`. Meaningful when the outputs share a scale: give it
    normalised predictions.
    """
    del stds
    # Over N, not N - 1, as in NEUBAY's code; the threshold is a quantile of the same number.
    return jnp.sqrt(jnp.square(means - means.mean(0)).mean((0, -1)))


def total_spread(means: jax.Array, stds: jax.Array) -> jax.Array:
    """Root mean over outputs of the mixture's variance: aleatoric plus epistemic.

    `[N, B, O]` means and stds to `[B]`.
    """
    return jnp.sqrt((jnp.square(stds).mean(0) + means.var(0)).mean(-1))


def bellman_spread(estimates: jax.Array) -> jax.Array:
    """Standard deviation over members of their Bellman estimates, `[N, B] -> [B]` (MOBILE).

    The unbiased one, over `N - 1`, as in the authors' code; 0 for a single member.
    """
    return estimates.std(0, ddof=min(1, estimates.shape[0] - 1))

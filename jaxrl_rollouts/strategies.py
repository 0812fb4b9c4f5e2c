"""Forecasts of many steps, of states or of fields: strategies (Stratify, arXiv:2412.20510).

`rec(s)` is one network of s steps, applied to its own output; `rec(1)` is the usual rollout.
`dir(s)` has a network for each block of s steps, each of which reads the first state. `dirrec(s)`
has them too, and each reads the blocks predicted before its own as well. A rectifier learns what a
base forecast lacks, best on windows that the base was not fitted to.

Actions of a whole block are read before its first state is known, so a closed-loop policy can be
rolled by `rec(1)` alone. Networks are fitted in `offline.worlds.strategies` and `pde.strategies`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp

from .configs import positive
from .errors import ConfigError

# The network of a block: `(state [B, S, *X], the rest [B, N, *X]) -> changes [B, s * S, *X]`.
Head = Callable[[jax.Array, jax.Array], Any]
Fitted = TypeVar("Fitted", bound=Head)


@dataclass(frozen=True)
class Strategy:
    """How a horizon is cut into blocks, and what the network of a block reads.

    Attributes:
        kind: `rec`, `dir`, `dirrec`, or `rectifier`, which reads the base forecast as far as the
            end of its block.
        block: s, steps of a block.
        horizon: H, a multiple of it.
    """

    kind: Literal["rec", "dir", "dirrec", "rectifier"] = "rec"
    block: int = positive(1)
    horizon: int = positive(20)

    def validate(self) -> None:
        if self.horizon % self.block:
            expected = f"a divisor of the horizon, {self.horizon}"
            raise ConfigError("block", self.block, expected)

    @property
    def blocks(self) -> int:
        """How many there are: `H / s`."""
        return self.horizon // self.block

    @property
    def heads(self) -> int:
        """Networks: one for `rec`, else one for each block."""
        return 1 if self.kind == "rec" else self.blocks


def reads(
    strategy: Strategy, i: int, state: jax.Array, actions: jax.Array, path: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What the network of block i reads, and what its output is added to.

    Args:
        strategy: kind and sizes.
        i: number of the block.
        state: `[B, S, *X]`, the first one; of a field `S` are the channels.
        actions: `[H, B, A, *X]`.
        path: `[>= i * s, B, S, *X]`, states predicted so far; of a rectifier the base forecast.

    Returns:
        A state `[B, S, *X]` and all else in columns `[B, N, *X]`; and the states that changes are
        counted from, `[1, B, S, *X]` or, for a rectifier, `[s, B, S, *X]`.
    """
    begin, end = i * strategy.block, (i + 1) * strategy.block
    taken = columns(actions[:end])
    if strategy.kind == "dir":
        return state, taken, state[None]
    latest = path[begin - 1] if i else state
    if strategy.kind == "rec":
        return latest, columns(actions[begin:end]), latest[None]
    if strategy.kind == "rectifier":
        return state, jnp.concatenate([columns(path[:end]), taken], 1), path[begin:end]
    return state, jnp.concatenate([columns(path[:begin]), taken], 1), latest[None]


def columns(steps: jax.Array) -> jax.Array:
    """`[T, B, N, *X]` as `[B, T * N, *X]`."""
    times, rows, width, *space = steps.shape
    return jnp.moveaxis(steps, 0, 1).reshape(rows, times * width, *space)


def block_of(
    strategy: Strategy, i: int, head: Head, state: jax.Array, actions: jax.Array, path: jax.Array
) -> jax.Array:
    """States of block i, `[s, B, S, *X]`; arguments as for `reads`."""
    first, rest, origin = reads(strategy, i, state, actions, path)
    change = head(first, rest).reshape(len(state), strategy.block, *state.shape[1:])
    return origin + jnp.moveaxis(change, 1, 0)


def forecast(
    strategy: Strategy,
    heads: tuple[Head, ...],
    state: jax.Array,
    actions: jax.Array | None = None,
    base: jax.Array | None = None,
) -> jax.Array:
    """States `[H, B, S, *X]` after `state [B, S, *X]` under `actions [H, B, A, *X]`.

    Args:
        strategy: kind and sizes.
        heads: of `fit_heads`.
        state, actions: where it begins, and what is done; None where nothing is.
        base: of a rectifier, the forecast `[H, B, S, *X]` that it mends.
    """
    actions = idle(strategy, state) if actions is None else actions
    path = jnp.zeros((0, *state.shape)) if base is None else base
    found = []
    for i in range(strategy.blocks):
        found.append(block_of(strategy, i, heads[i % strategy.heads], state, actions, path))
        path = jnp.concatenate(found) if base is None else base
    return jnp.concatenate(found)


def idle(strategy: Strategy, state: jax.Array) -> jax.Array:
    """Actions `[H, B, 0, *X]` of what has none."""
    return jnp.zeros((strategy.horizon, len(state), 0, *state.shape[2:]))


def widest(
    strategy: Strategy,
    weights: float,
    sizes: tuple[int, int],
    count: Callable[[int, int, int], int],
) -> int:
    """Width at which all networks of a strategy together have at most so many weights.

    Args:
        strategy, weights: what is sized, and to what.
        sizes: numbers in a state, or channels of a field, and in an action.
        count: `(width, numbers read, numbers predicted) -> weights` of one network.
    """
    state, action, path = (jnp.zeros((strategy.horizon, 1, n)) for n in (*sizes, sizes[0]))
    seen = [reads(strategy, i, state[0], action, path)[:2] for i in range(strategy.heads)]
    read, made = [a.shape[1] + b.shape[1] for a, b in seen], strategy.block * sizes[0]

    def total(width: int) -> int:
        return sum(count(width, n, made) for n in read)

    return bisect_right(range(1, 4096), weights, key=total)


def fit_heads(
    strategy: Strategy,
    fit: Callable[[int, jax.Array, jax.Array, jax.Array], Fitted],
    states: jax.Array,
    actions: jax.Array | None = None,
    base: jax.Array | None = None,
) -> tuple[Fitted, ...]:
    """Fit the networks of a strategy, one after the other: a `dirrec` reads its own predictions.

    Args:
        strategy: kind and sizes; `rec` learns from every block of a window.
        fit: `(i, state, rest, changes) -> head`: a network of what `reads` returns, from its rows.
        states: `[H + 1, B, S, *X]`, windows.
        actions: `[H, B, A, *X]`; None where there are none.
        base: of a rectifier, the forecast `[H, B, S, *X]` of these windows.

    Raises:
        ConfigError: windows of another length, or a rectifier without a base forecast.
    """
    if len(states) != strategy.horizon + 1:
        raise ConfigError("windows", len(states) - 1, f"{strategy.horizon} steps")
    if (strategy.kind == "rectifier") != (base is not None):
        raise ConfigError("base", "none" if base is None else "given", "one, of a rectifier only")
    state, truth = states[0], states[1:]
    actions = idle(strategy, state) if actions is None else actions
    heads: list[Fitted] = []
    path = truth if strategy.kind == "rec" else jnp.zeros((0, *state.shape))
    path = path if base is None else base

    def rows(i: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        first, rest, origin = reads(strategy, i, state, actions, path)
        end = (i + 1) * strategy.block
        return first, rest, columns(truth[end - strategy.block : end] - origin)

    for i in range(strategy.heads):
        own = range(strategy.blocks) if strategy.kind == "rec" else [i]
        heads.append(fit(i, *map(jnp.concatenate, zip(*map(rows, own), strict=True))))
        if strategy.kind == "dirrec":
            more = block_of(strategy, i, heads[i], state, actions, path)
            path = jnp.concatenate([path, more])
    return tuple(heads)

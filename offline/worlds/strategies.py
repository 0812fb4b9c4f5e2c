"""Forecasts of many steps along logged or planned actions: strategies (Stratify, arXiv:2412.20510).

`rec(s)` is one network of s steps, applied to its own output; `rec(1)` is the usual rollout.
`dir(s)` has a network for each block of s steps, each of which reads the first state. `dirrec(s)`
has them too, and each reads the blocks predicted before its own as well. A rectifier learns what a
base forecast lacks, best on windows that the base was not fitted to.

Actions of a whole block are read before its first state is known, so a closed-loop policy can be
rolled by `rec(1)` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter

from .dynamics import WorldModelParams, predict
from .fit import fit_model, regression
from .open_loop import LoggedWindows


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


class Head(NamedTuple):
    """A network of one block: from what it reads to the changes over the block's steps."""

    fitter: Fitter
    world: WorldModelParams

    def __call__(self, state: jax.Array, rest: jax.Array) -> jax.Array:
        """Mean change, `[B, s * S]`."""
        return predict(self.fitter, self.world, state, rest).mean.mean(0)


def reads(
    strategy: Strategy, i: int, state: jax.Array, actions: jax.Array, path: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What the network of block i reads, and what its output is added to.

    Args:
        strategy: kind and sizes.
        i: number of the block.
        state: `[B, S]`, the first one.
        actions: `[H, B, A]`.
        path: `[>= i * s, B, S]`, states predicted so far; of a rectifier the base forecast.

    Returns:
        A state `[B, S]` and all else in columns `[B, ...]`; and the states `[S, B, ...]` that
        changes are counted from, `[1, B, S]` or, for a rectifier, `[s, B, S]`.
    """
    begin, end = i * strategy.block, (i + 1) * strategy.block
    taken = columns(actions[:end])
    if strategy.kind == "dir":
        return state, taken, state[None]
    latest = path[begin - 1] if i else state
    if strategy.kind == "rec":
        return latest, columns(actions[begin:end]), latest[None]
    if strategy.kind == "rectifier":
        return state, jnp.concatenate([columns(path[:end]), taken], -1), path[begin:end]
    return state, jnp.concatenate([columns(path[:begin]), taken], -1), latest[None]


def columns(steps: jax.Array) -> jax.Array:
    """`[T, B, N]` as `[B, T * N]`."""
    return jnp.moveaxis(steps, 0, 1).reshape(steps.shape[1], -1)


def block_of(
    strategy: Strategy, i: int, head: Head, state: jax.Array, actions: jax.Array, path: jax.Array
) -> jax.Array:
    """States of block i, `[s, B, S]`; arguments as for `reads`."""
    first, rest, origin = reads(strategy, i, state, actions, path)
    change = head(first, rest).reshape(len(state), strategy.block, -1)
    return origin + jnp.moveaxis(change, 1, 0)


def forecast(
    strategy: Strategy,
    heads: tuple[Head, ...],
    state: jax.Array,
    actions: jax.Array,
    base: jax.Array | None = None,
) -> jax.Array:
    """States `[H, B, S]` after `state [B, S]` under `actions [H, B, A]`.

    Args:
        strategy: kind and sizes.
        heads: of `fit_strategy`.
        state, actions: where it begins, and what is done.
        base: of a rectifier, the forecast `[H, B, S]` that it mends.
    """
    path = jnp.zeros((0, *state.shape)) if base is None else base
    found = []
    for i in range(strategy.blocks):
        found.append(block_of(strategy, i, heads[i % strategy.heads], state, actions, path))
        path = jnp.concatenate(found) if base is None else base
    return jnp.concatenate(found)


def fit_strategy(
    strategy: Strategy,
    config: EnsembleConfig,
    logged: LoggedWindows,
    key: jax.Array,
    base: jax.Array | None = None,
) -> tuple[Head, ...]:
    """Fit the networks of a strategy, one after the other: a `dirrec` reads its own predictions.

    Args:
        strategy: kind and sizes; `rec` learns from every block of a window.
        config: of each network.
        logged: windows of `horizon` steps.
        key: consumed.
        base: of a rectifier, the forecast of these windows.

    Raises:
        ConfigError: windows of another length, or a rectifier without a base forecast.
    """
    if len(logged.actions) != strategy.horizon:
        raise ConfigError("logged", len(logged.actions), f"{strategy.horizon} steps")
    if (strategy.kind == "rectifier") != (base is not None):
        raise ConfigError("base", "none" if base is None else "given", "one, of a rectifier only")
    state, truth = logged.observations[0], logged.observations[1:]
    heads: list[Head] = []
    path = truth if strategy.kind == "rec" else jnp.zeros((0, *state.shape))
    path = path if base is None else base
    for i in range(strategy.heads):
        own = range(strategy.blocks) if strategy.kind == "rec" else [i]
        rows = [_rows(strategy, j, state, logged.actions, path, truth) for j in own]
        x, y = (np.concatenate(part) for part in zip(*rows, strict=True))
        model = regression(config, x, y, "change")
        world = fit_model(model, config, jax.random.fold_in(key, i)).world()
        heads.append(Head(model.fitter, world))
        if strategy.kind == "dirrec":
            more = block_of(strategy, i, heads[i], state, logged.actions, path)
            path = jnp.concatenate([path, more])
    return tuple(heads)


def _rows(
    strategy: Strategy,
    i: int,
    state: jax.Array,
    actions: jax.Array,
    path: jax.Array,
    truth: jax.Array,
) -> tuple[np.ndarray, np.ndarray]:
    """What the network of block i reads and what it has to say, `[B, I]` and `[B, s * S]`."""
    first, rest, origin = reads(strategy, i, state, actions, path)
    change = truth[i * strategy.block : (i + 1) * strategy.block] - origin
    return np.asarray(jnp.concatenate([first, rest], -1)), np.asarray(columns(change))

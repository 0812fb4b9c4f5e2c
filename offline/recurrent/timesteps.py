"""Timesteps: an episode as a sequence of observations and actions, with a final observation.

An episode of `T` transitions is `T + 1` timesteps. The last one holds the final observation only: a
value is bootstrapped from it, and it is never learned from.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import Trajectory, where_rows


class Timestep(NamedTuple):
    """One moment of an episode; leaves `[..., *]` with equal leading axes.

    Attributes:
        observations: `[..., D]`, all that the memory is shown.
        actions: previous actions, `[...]` (discrete) or `[..., A]`.
        rewards: rewards of these actions.
        terminations: nothing follows; there is no value to bootstrap from.
        truncations: the episode was cut; a value would follow.
        real: from the dataset (True) or imagined.
    """

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    terminations: jax.Array
    truncations: jax.Array
    real: jax.Array


def timestep_shapes(observation_size: int, action: jax.ShapeDtypeStruct) -> Timestep:
    """The shapes of one timestep; `action` is `ShapeDtypeStruct((A,), float32)`, say."""

    def zero(action: jax.Array) -> Timestep:
        flag = jnp.zeros((), bool)
        return Timestep(jnp.zeros(observation_size), action, jnp.zeros(()), flag, flag, flag)

    return jax.eval_shape(zero, action)


def with_last(
    timesteps: Timestep, lengths: jax.Array, last: jax.Array
) -> tuple[Timestep, jax.Array]:
    """Append the final observations.

    Args:
        timesteps: `[N, T, ...]`, rows past their end are zero.
        lengths: `[N]` transitions of each episode, at most `T`.
        last: `[N, D]` final observations.

    Returns:
        Timesteps `[N, T + 1, ...]` and their lengths `lengths + 1`.
    """
    count = lengths.shape[0]
    longer = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:, :1])], 1), timesteps)
    seen = longer.observations.at[jnp.arange(count), lengths].set(last)
    return longer._replace(observations=seen), lengths + 1


def from_trajectory(
    trajectory: Trajectory, last: jax.Array, *, real: bool = False
) -> tuple[Timestep, jax.Array]:
    """Episodes of a `rollout` that recorded its whole `Step`s.

    Args:
        trajectory: `[T, B, ...]`.
        last: `[B, D]` observations of its final states.

    Returns:
        Timesteps `[B, T + 1, ...]` with the final observation appended, and lengths `[B]`.
    """
    steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), trajectory.steps)
    valid = jnp.swapaxes(trajectory.valid, 0, 1)
    timesteps = Timestep(
        steps.observations,
        steps.actions,
        steps.rewards,
        steps.terminations,
        steps.truncations,
        valid & real,
    )
    return with_last(timesteps, trajectory.lengths, last)


def join(head: Timestep, head_lengths: jax.Array, tail: Timestep, tail_lengths: jax.Array) -> tuple:
    """Put a tail behind each head: a real prefix and what was imagined after it.

    Args:
        head: `[N, P, ...]` timesteps of which `head_lengths` (`[N]`) count.
        tail: `[N, T, ...]` timesteps of which `tail_lengths` (`[N]`) count.

    Returns:
        Timesteps `[N, P + T, ...]` without gaps, zero past their end, and lengths `[N]`.
    """
    place = jnp.arange(head.rewards.shape[1] + tail.rewards.shape[1])

    def one(head: Timestep, before: jax.Array, tail: Timestep, after: jax.Array) -> Timestep:
        in_head = place < before
        left = jax.tree.map(lambda x: x[jnp.minimum(place, x.shape[0] - 1)], head)
        right = jax.tree.map(lambda x: x[jnp.clip(place - before, 0, x.shape[0] - 1)], tail)
        joined = where_rows(in_head, left, right)
        return where_rows(place < before + after, joined, jax.tree.map(jnp.zeros_like, joined))

    return jax.vmap(one)(head, head_lengths, tail, tail_lengths), head_lengths + tail_lengths

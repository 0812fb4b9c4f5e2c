"""How a planner acts: it draws a plan and takes the actions that lead along it; see `planner`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.diffusion import draw_samples
from jaxrl_rollouts.diffusion.continued import Given
from jaxrl_rollouts.rollouts import where_rows

from .planner_parts import PlannerActor, PlannerParts, cut, inverse_action, target_rank


class PlannerMemory(NamedTuple):
    """Of episodes side by side: last states `[B, H, S]`, the plan `[B, replan, S]`, the step."""

    history: jax.Array
    plan: jax.Array
    step: jax.Array


def plans(
    parts: PlannerParts, actor: PlannerActor, key: jax.Array, history: jax.Array
) -> jax.Array:
    """Draw one plan after each history.

    Args:
        parts: of `planner_parts`.
        actor: its parameters.
        key: consumed.
        history: `[B, H, S]`, states as observed, the present last.

    Returns:
        `[B, L, S]` whole windows in the same units; the first H rows are `history`.
    """
    config = parts.config
    mean, std = (cut(parts, x[None]) for x in actor.scaler)
    rows = (history - mean[0]) / std[0]
    rank = target_rank(parts, actor.net.rank, rows[:, -1])
    given, by = Given(rows, rank, jnp.ones_like(rank)), config.by == "student"
    drawn = draw_samples(
        parts.student if by else parts.guided,
        (actor.net.student if by else actor.net.plan, given),
        key,
        (history.shape[0], config.horizon, parts.observation_size),
        config=config.jumps if by else config.sampler,
    )
    ahead = history[:, -1:] + drawn * std[1] + mean[1]
    return jnp.concatenate([history, ahead], 1)


def actions_between(
    parts: PlannerParts, actor: PlannerActor, present: jax.Array, following: jax.Array
) -> jax.Array:
    """What leads from states `[B, S]` to the next ones, `[B, A]` in (-1, 1)."""
    mean, std = (cut(parts, x[None]) for x in actor.scaler)
    now = (present - mean[0][:, -1]) / std[0][:, -1]
    change = (following - present - mean[1][:, 0]) / std[1][:, 0]
    return inverse_action(parts, actor.net.inverse, now, change)


def memory(parts: PlannerParts, batch: int) -> PlannerMemory:
    """Of episodes that begin: nothing seen, nothing planned."""
    config, size = parts.config, parts.observation_size
    history, plan = ((batch, n, size) for n in (config.history, config.replan))
    return PlannerMemory(jnp.zeros(history), jnp.zeros(plan), jnp.zeros(batch, jnp.int32))


def act(
    parts: PlannerParts,
    actor: PlannerActor,
    key: jax.Array,
    observation: jax.Array,
    memory: PlannerMemory,
) -> tuple[jax.Array, PlannerMemory]:
    """What leads to the next state of the plan, which is drawn anew when it is its turn.

    In the first step the history is filled with copies of the first observation.
    """
    config, now = parts.config, observation[:, None]
    later = jnp.concatenate([memory.history[:, 1:], now], 1)
    seen = where_rows(memory.step == 0, jnp.broadcast_to(now, later.shape), later)
    at = memory.step % config.replan

    def drawn() -> jax.Array:
        return plans(parts, actor, key, seen)[:, config.history :][:, : config.replan]

    if config.replan == 1:
        plan = drawn()
    else:  # rows begin together as a rule; a row whose turn it is alone is drawn with all
        plan = jax.lax.cond(
            (at == 0).any(), lambda: where_rows(at == 0, drawn(), memory.plan), lambda: memory.plan
        )
    following = jnp.take_along_axis(plan, at[:, None, None], 1)[:, 0]
    actions = actions_between(parts, actor, observation, following)
    return actions, PlannerMemory(seen, plan, memory.step + 1)

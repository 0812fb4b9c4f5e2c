"""A planner: draw how states should go on from here, and act so that they do.

A diffusion model of windows of states samples one that begins with the last states seen and whose
return ranks high; an inverse model gives the action that leads to its first new state, as in
Decision Diffuser (Ajay et al. 2023, arXiv:2211.15657). The rank is what the data reach
from such a state at their best, an upper expectile of the returns that followed (Reinformer, Zhuang
et al. 2024, arXiv:2405.08740): one number for all states would be out of reach from some. There is
no critic. A plan is drawn at every step, or every `replan` of them, by the diffusion model in many
network calls, or in one by a student that is distilled from its average while it learns.

What is learned is `PlanRows`, by `L_plan + L_student + L_inverse + L_rank`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.diffusion import draw_samples
from jaxrl_rollouts.diffusion.continued import Given
from jaxrl_rollouts.rollouts import where_rows
from jaxrl_rollouts.scaler import Scaler, identity_scaler

from ..data import Transitions
from ..method import Agent
from .iql import expectile_loss
from .plan_rows import PlanRows, plan_rows
from .planner_parts import (
    PlannerActor,
    PlannerNet,
    PlannerParts,
    PlannerSettings,
    PlannerState,
    cut,
    inverse_action,
    planner_parts,
    target_rank,
)


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


@dataclass(frozen=True)
class PlannerConfig(PlannerSettings):
    """Hyper-parameters of the planner; see `PlannerSettings`."""

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """Build the agent; its rates are the same at every step."""
        del steps
        return make_planner(self, observation_size, action_size)


@functools.lru_cache(maxsize=32)
def make_planner(config: PlannerConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same ones."""
    parts = planner_parts(config, observation_size, action_size)
    choose = functools.partial(act, parts)
    return Agent(
        functools.partial(init, parts),
        functools.partial(update, parts),
        choose,
        choose,
        None,
        memory=functools.partial(memory, parts),
        normalise=True,
    )


def init(parts: PlannerParts, key: jax.Array, scaler: Scaler | None = None) -> PlannerState:
    """A fresh state that sees windows through `scaler`."""
    plan_key, inverse_key, rank_key = jax.random.split(key, 3)
    plan = parts.denoiser.init(plan_key)
    # A student's first weights are its teacher's.
    student = jax.tree.map(jnp.copy, plan) if parts.config.by == "student" else ()
    net = PlannerNet(plan, student, parts.inverse.init(inverse_key), parts.rank.init(rank_key))
    scaler = scaler or identity_scaler(parts.config.length * parts.observation_size)
    actor = PlannerActor(jax.tree.map(jnp.copy, net), scaler)
    return PlannerState(actor, net, parts.learn.init(net), jnp.int32(0))


def loss(
    net: PlannerNet,
    parts: PlannerParts,
    actor: PlannerActor,
    key: jax.Array,
    batch: PlanRows,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The four losses: the `Denoiser`'s and the `Flow`'s of what is ahead, `(inverse(s, s') - a)^2`
    and the expectile's of the rank.

    The student is taught by the averaged teacher, given the true rank, because acting will also
    give it a rank.
    """
    config = parts.config
    drop_key, plan_key, student_key = jax.random.split(key, 3)
    rows, ahead = cut(parts, actor.scaler.normalise(batch.observations))
    given = Given(rows, batch.rewards, jnp.ones_like(batch.rewards))
    known = jax.random.bernoulli(drop_key, 1.0 - config.drop, batch.rewards.shape)
    seen = given._replace(known=known.astype(jnp.float32))
    losses = {"plan_loss": parts.denoiser.loss((net.plan, seen), plan_key, ahead)}
    if config.by == "student":
        losses["student_loss"] = parts.student.loss(
            (net.student, given), student_key, ahead, teacher=(actor.net.plan, given)
        )
    actions = inverse_action(parts, net.inverse, rows[:, -1], ahead[:, 0])
    losses["inverse_loss"] = jnp.square(actions - batch.actions).mean()
    beyond = batch.rewards - target_rank(parts, net.rank, rows[:, -1])
    losses["rank_loss"] = expectile_loss(beyond, config.expectile).mean()
    return sum(losses.values(), jnp.float32(0.0)), losses


def update(
    parts: PlannerParts, state: PlannerState, key: jax.Array, batch: PlanRows
) -> tuple[PlannerState, dict[str, jax.Array]]:
    """One gradient step, and one of the average, which begins as a plain mean."""
    actor, count = state.actor, state.updates + 1
    net, moments, value, metrics = descend(
        parts.learn, loss, state.net, state.moments, parts, actor, key, batch
    )
    weight = jnp.maximum(1.0 - parts.config.average, 1.0 / count)
    average = optax.incremental_update(net, actor.net, weight)
    return (
        PlannerState(actor._replace(net=average), net, moments, count),
        {"actor_loss": value, **metrics},
    )


def rows_for(config: PlannerSettings, transitions: Transitions) -> PlanRows:
    """Windows of the dataset's episodes with the rank of their return."""
    settings = {"discount": config.discount, "most": config.windows}
    return plan_rows(transitions, config.history, config.horizon, **settings)

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

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.diffusion.continued import Given
from jaxrl_rollouts.scaler import Scaler, identity_scaler

from ..data import Transitions
from ..method import Agent
from .iql import expectile_loss
from .plan_rows import PlanRows, plan_rows
from .planner_acting import act, memory
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


@dataclass(frozen=True)
class PlannerConfig(PlannerSettings):
    """Hyper-parameters of the planner; see `PlannerSettings`."""

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """Build the agent; its rates are the same at every step."""
        del steps
        return make_planner(self, observation_size, action_size)


@functools.lru_cache(maxsize=32)
def make_planner(config: PlannerConfig, observation_size: int, action_size: int) -> Agent:
    """Bind functions of this module and `planner_acting`. Equal arguments give the same ones."""
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

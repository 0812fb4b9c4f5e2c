"""A planner: sample future states from the present one, and act to reach them.

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
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, fraction, layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.diffusion import (
    Denoiser,
    Flow,
    FlowConfig,
    JumpConfig,
    SamplerConfig,
    Unet,
    draw_samples,
    flow_of_denoiser,
    make_denoiser,
    make_flow,
)
from jaxrl_rollouts.diffusion.continued import Given, make_continued_unet
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.rollouts import where_rows
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from ..method import Agent, bound
from .actors import inputs
from .iql import expectile_loss
from .model_free import ModelFree
from .plan_rows import PlanRows, plan_rows


@dataclass(frozen=True)
class PlannerConfig:
    """Hyper-parameters.

    Attributes:
        history: last states that condition a plan, including the present one.
        horizon: states ahead in a plan.
        unet: the model of plans.
        by: plans are drawn by the `student`, or by the model itself, the `teacher`; then there is
            no student.
        sampler: sampler of the teacher.
        student: its training; a consistency model of one segment jumps to the data.
        jumps: settings of the student's sampling, one network call per jump.
        expectile: expectile of the returns that followed from a state; .5 is their mean.
        guidance: strength of classifier-free guidance. 0: the return is ignored; 1: plain
            conditional model; above 1: stronger, with two network calls per step, which the
            student learns to do in one.
        replan: steps that are taken of a plan before the next one is drawn.
        drop: share of training rows that the model does not see the rank of.
        hidden_dims: widths of the inverse model and of the expectile's.
        actor_lr: learning rate of all of them.
        average: decay of the moving average of their weights, which act.
        windows: rows made of the dataset at most.
        discount: discount of the return that is ranked.
    """

    history: int = positive(1)
    horizon: int = positive(15)
    unet: Unet = field(default_factory=Unet)
    by: Literal["student", "teacher"] = "student"
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    student: FlowConfig = field(
        default_factory=lambda: FlowConfig(loss="consistency", segments=1, steps=32)
    )
    jumps: JumpConfig = field(default_factory=lambda: JumpConfig(1))
    expectile: float = number(0.9, above=0, below=1)
    guidance: float = number(1.0, least=0)
    replan: int = positive(1)
    drop: float = fraction(0.1)
    hidden_dims: tuple[int, ...] = layers((256, 256))
    actor_lr: float = step_size(3e-4)
    average: float = number(0.995, least=0, below=1)
    windows: int = positive(200_000)
    discount: float = number(0.99, least=0, below=1)

    def validate(self) -> None:
        if self.replan > self.horizon:
            raise ConfigError("replan", self.replan, f"at most the horizon, {self.horizon}")

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_planner(self, observation_size, action_size)

    def rows(self, transitions: Transitions) -> PlanRows:
        """Windows of the dataset's episodes with the rank of their return."""
        settings = {"discount": self.discount, "most": self.windows}
        return plan_rows(transitions, self.history, self.horizon, **settings)

    @property
    def length(self) -> int:
        """States of a whole window."""
        return self.history + self.horizon


class PlannerNet(NamedTuple):
    """Weights; the student's are `()` where there is none."""

    plan: PyTree
    student: PyTree
    inverse: PyTree
    rank: PyTree


class PlannerActor(NamedTuple):
    """What acts: averaged weights and statistics of `PlanRows.observations`."""

    net: PlannerNet
    scaler: Scaler


class PlannerState(NamedTuple):
    """Everything the agent learns."""

    actor: PlannerActor
    net: PlannerNet
    moments: optax.OptState
    updates: jax.Array


class PlannerParts(NamedTuple):
    """What the planner's functions are bound to."""

    config: PlannerConfig
    observation_size: int
    denoiser: Denoiser  # learns
    guided: Denoiser  # the same network with guidance, which is drawn from
    student: Flow
    inverse: Network
    rank: Network
    learn: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def planner_parts(config: PlannerConfig, observation_size: int, action_size: int) -> PlannerParts:
    """Networks of one configuration."""
    check(config)
    sizes = config.unet, config.length, config.history, observation_size
    (s,) = inputs(observation_size)
    network = make_continued_unet(*sizes)
    guided = make_denoiser(make_continued_unet(*sizes, config.guidance))
    return PlannerParts(
        config,
        observation_size,
        make_denoiser(network),
        guided,
        make_flow(network, config.student, flow_of_denoiser(guided)),
        from_linen(MLP(config.hidden_dims, (action_size,)), s, s),
        from_linen(MLP(config.hidden_dims, (1,)), s),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.actor_lr)),
    )


def cut(parts: PlannerParts, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Windows `[B, L S]` as what is given `[B, H, S]` and what is ahead."""
    whole = windows.reshape(-1, parts.config.length, parts.observation_size)
    return whole[:, : parts.config.history], whole[:, parts.config.history :]


def target_rank(parts: PlannerParts, net: PyTree, present: jax.Array) -> jax.Array:
    """The rank that a plan is conditioned on in standardised states `[B, S]`: `[B]` in (-1, 1)."""
    return jnp.tanh(parts.rank.apply(net, present)[:, 0])


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
        parts: result of `planner_parts`.
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
    return jnp.tanh(parts.inverse.apply(actor.net.inverse, now, change))


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


@functools.lru_cache(maxsize=32)
def make_planner(config: PlannerConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same ones."""
    parts = planner_parts(config, observation_size, action_size)
    acts = bound(parts, init=init, update=update, policy=act, greedy=act, memory=memory)
    return Agent(**acts, normalise=True)


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
    actions = jnp.tanh(parts.inverse.apply(net.inverse, rows[:, -1], ahead[:, 0]))
    losses["inverse_loss"] = jnp.square(actions - batch.actions).mean()
    beyond = batch.rewards - target_rank(parts, net.rank, rows[:, -1])
    losses["rank_loss"] = expectile_loss(beyond, config.expectile).mean()
    return sum(losses.values(), jnp.float32(0.0)), losses


def update(
    parts: PlannerParts, state: PlannerState, key: jax.Array, batch: PlanRows
) -> tuple[PlannerState, dict[str, jax.Array]]:
    """One gradient step, and one of the average, which begins as a plain mean."""
    actor, count = state.actor, state.updates + 1
    net, moments, value, metrics = gradient_step(
        parts.learn, loss, state.net, state.moments, parts, actor, key, batch
    )
    weight = jnp.maximum(1.0 - parts.config.average, 1.0 / count)
    average = optax.incremental_update(net, actor.net, weight)
    state = PlannerState(actor._replace(net=average), net, moments, count)
    return state, {"actor_loss": value, **metrics}


@dataclass(frozen=True, kw_only=True)
class Planner(PlannerConfig, ModelFree):
    """The planner on windows of a dataset's episodes."""

    name: ClassVar[str] = "planner"

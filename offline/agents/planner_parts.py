"""What a planner is made of: its settings, its networks and what it learns; see `planner`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, fraction, layers, number, positive, step_size
from jaxrl_rollouts.diffusion import (
    Denoiser,
    Flow,
    FlowConfig,
    JumpConfig,
    SamplerConfig,
    TemporalUnetConfig,
    flow_of_denoiser,
    make_denoiser,
    make_flow,
)
from jaxrl_rollouts.diffusion.continued import make_continued_unet
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree


@dataclass(frozen=True)
class PlannerSettings:
    """Hyper-parameters.

    Attributes:
        history: last states that a plan goes on from, the present among them.
        horizon: states ahead in a plan.
        unet: the model of plans.
        by: plans are drawn by the `student`, or by the model itself, the `teacher`; then there is
            no student.
        sampler: of the teacher.
        student: what it learns; a consistency model of one segment jumps to the data.
        jumps: of the student, one network call each.
        expectile: of the returns that followed from a state; .5 is their mean.
        guidance: strength of classifier-free guidance. 0: the return is ignored; 1: plain
            conditional model; above 1: stronger, with two network calls per step, which the
            student learns to do in one.
        replan: steps that are taken of a plan before the next one is drawn.
        drop: share of training rows that the model does not see the rank of.
        hidden: widths of the inverse model and of the expectile's.
        actor_lr: learning rate of all of them.
        average: decay of the moving average of their weights, which act.
        windows: rows made of the dataset at most.
        discount: of the return that is ranked.
    """

    history: int = positive(1)
    horizon: int = positive(15)
    unet: TemporalUnetConfig = field(default_factory=TemporalUnetConfig)
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
    hidden: tuple[int, ...] = layers((256, 256))
    actor_lr: float = step_size(3e-4)
    average: float = number(0.995, least=0, below=1)
    windows: int = positive(200_000)
    discount: float = number(0.99, least=0, below=1)

    def validate(self) -> None:
        if self.replan > self.horizon:
            raise ConfigError("replan", self.replan, f"at most the horizon, {self.horizon}")

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

    config: PlannerSettings
    observation_size: int
    denoiser: Denoiser  # learns
    guided: Denoiser  # the same network with guidance, which is drawn from
    student: Flow
    inverse: Network
    rank: Network
    learn: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def planner_parts(config: PlannerSettings, observation_size: int, action_size: int) -> PlannerParts:
    """Networks of one configuration."""
    check(config)
    sizes = config.unet, config.length, config.history, observation_size
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    network = make_continued_unet(*sizes)
    guided = make_denoiser(make_continued_unet(*sizes, config.guidance))
    return PlannerParts(
        config,
        observation_size,
        make_denoiser(network),
        guided,
        make_flow(network, config.student, flow_of_denoiser(guided)),
        from_linen(MLP(config.hidden, (action_size,)), s, s),
        from_linen(MLP(config.hidden, (1,)), s),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.actor_lr)),
    )


def cut(parts: PlannerParts, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Windows `[B, L S]` as what is given `[B, H, S]` and what is ahead."""
    whole = windows.reshape(-1, parts.config.length, parts.observation_size)
    return whole[:, : parts.config.history], whole[:, parts.config.history :]


def inverse_action(
    parts: PlannerParts, net: PyTree, present: jax.Array, change: jax.Array
) -> jax.Array:
    """What leads from a state to the next, `[B, A]`; both standardised, the second as a change."""
    return jnp.tanh(parts.inverse.apply(net, present, change))


def target_rank(parts: PlannerParts, net: PyTree, present: jax.Array) -> jax.Array:
    """The rank that a plan is conditioned on in standardised states `[B, S]`: `[B]` in (-1, 1)."""
    return jnp.tanh(parts.rank.apply(net, present)[:, 0])

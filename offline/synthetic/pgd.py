"""Policy-guided diffusion (Jackson et al. 2024, arXiv:2404.06356): synthetic data near the policy.

A diffusion model of windows is trained once. While an agent learns, it is sampled again and again
with the actions pulled towards the current policy; each iteration of the loop is one such refresh
and the gradient steps on what it gave. The policy is an argument of the sampler, so that nothing
compiles twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import check, fraction, number, positive
from jaxrl_rollouts.diffusion import (
    Denoiser,
    Flow,
    GuidanceConfig,
    JumpConfig,
    SamplerConfig,
    Target,
    draw_samples,
    make_guidance,
)
from jaxrl_rollouts.diffusion.guide import GuideParams
from jaxrl_rollouts.diffusion.sampler import Guidance
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agents.iql import normal_log_prob
from ..data import Transitions, sample_batch
from ..method import Agent, AgentConfig, Learner, first_state, learn
from .relabel import Beyond, Relabeller, settle
from .synther import mixed_rows
from .windows import WindowLayout


@dataclass(frozen=True)
class PgdConfig:
    """Cadence, composition and guidance; defaults of the first two are those of the public code.

    Not of guidance: there it is off (coefficient 0), at the noised sample and not normalised unless
    asked for; and the sampler has twice the steps.

    Attributes:
        guidance: guidance rule.
        guidance_scale: lambda; 0 is unguided diffusion. The published rule overshoots beyond about
            0.5 at 256 steps: its pushes shrink with the step's number, the noise far faster.
        sampler: 256 steps are published, the default has half of them; what fewer cost is
            `sampler_steps`'s report. A `JumpConfig` is a student's. With fewer the same
            coefficient guides less, unless `guidance.reference_steps` is set.
        windows: number of windows sampled per refresh.
        steps: gradient steps per refresh.
        real_ratio: share of a batch that comes from the dataset.
        lifetime: number of refreshes whose data are kept.
    """

    guidance: GuidanceConfig = field(default_factory=lambda: GuidanceConfig(reference_steps=256))
    guidance_scale: float = number(0.5, least=0)
    sampler: SamplerConfig | JumpConfig = field(default_factory=SamplerConfig)
    windows: int = positive(8192)
    steps: int = positive(10_000)
    real_ratio: float = fraction(1 / 16)
    lifetime: int = positive(1)


class PgdData(NamedTuple):
    """What seeds share: real transitions and the denoiser's averaged weights."""

    real: Transitions
    denoiser: PyTree
    relabel_data: PyTree = ()  # `Relabeller.data`, where windows are relabelled


class PgdState(NamedTuple):
    """State of one seed; `refreshes` counts those that were made."""

    agent: Any
    synthetic: replay.Replay
    refreshes: jax.Array
    key: jax.Array


class PgdParts(NamedTuple):
    """What the functions of this module are bound to."""

    config: PgdConfig
    agent: Agent
    denoiser: Denoiser | Flow
    layout: WindowLayout
    guidance: Guidance
    relabel: Callable | None = None  # of a `Relabeller`
    beyond_threshold: Beyond = "keep"
    batch_size: int = 256


def policy_target(gaussian: Callable, layout: WindowLayout) -> Target:
    """The density of a window's actions under a policy, as a target of guidance.

    Args:
        gaussian: that of an `Agent`: `(actor, observations) -> (mean, std)`.
        layout: layout of the windows; the last step has no action and does not count.

    Raises:
        ConfigError: (when first used) the policy's actions have another size than the data's.
    """

    def asked(actor: PyTree, rows: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        states, actions = layout.states_and_actions(rows[..., :-1, :])
        mean, std = gaussian(actor, states)
        if mean.shape[-1] != layout.action_size:
            raise ConfigError("policy", f"{mean.shape[-1]} actions", f"{layout.action_size}")
        return actions, mean, jnp.broadcast_to(std, mean.shape)

    def log_prob(actor: PyTree, rows: jax.Array) -> jax.Array:
        return normal_log_prob(*asked(actor, rows)).sum(-1)

    def precision(actor: PyTree, rows: jax.Array) -> jax.Array:
        """Gauss and Newton's: the policy's, by the square of the tanh's slope; 0 at the end."""
        actions, _, std = asked(actor, rows)
        slope = (1.0 - jnp.square(actions)) * layout.scaler.std[slice(*layout.guided)]
        return jnp.pad(jnp.square(slope / std), ((0, 0), (0, 1), (0, 0)))

    return Target(log_prob, layout.guided, precision)


def make_pgd(
    config: PgdConfig,
    agent_config: AgentConfig,
    denoiser: Denoiser | Flow,
    layout: WindowLayout,
    relabeller: Relabeller | None = None,
    *,
    batch_size: int = 256,
    steps: int | None = None,
) -> Learner:
    """A learner whose data are `PgdData`; its `imagine` is `windows`.

    Args:
        config: cadence and guidance.
        agent_config: settings of TD3+BC, IQL or another agent with a `gaussian` policy.
        denoiser: denoiser of windows; its network is built for `layout.length`.
        layout: layout of the windows it was trained on.
        relabeller: relabels every refresh's windows, step by step; its `data` are
            `PgdData.relabel_data`. None leaves them as sampled.
        batch_size: rows per gradient step.
        steps: steps of the whole training, over which rates with a `cosine` fall; None keeps them.

    Raises:
        ConfigError: a setting is out of range, or the agent has no normal policy.
    """
    check(config)
    agent = agent_config.make(layout.observation_size, layout.action_size, steps)
    if agent.gaussian is None:
        raise ConfigError("agent", type(agent_config).__name__, "one with a normal policy")
    if config.steps % agent.period:
        raise ConfigError("steps", config.steps, f"a multiple of {agent.period}")
    guidance = make_guidance(policy_target(agent.gaussian, layout), config.guidance)
    parts = PgdParts(config, agent, denoiser, layout, guidance, batch_size=batch_size)
    if relabeller is not None:
        parts = parts._replace(
            relabel=relabeller.relabel, beyond_threshold=relabeller.beyond_threshold
        )
    functions: Any = (init, update, windows)
    begin, step, draw = (functools.partial(f, parts) for f in functions)
    return Learner(agent, begin, step, config.steps, draw)


def windows(parts: PgdParts, state: PgdState, key: jax.Array, data: PgdData) -> jax.Array:
    """Standardised windows `[windows, L, C]`, guided towards the policy.

    Before the first gradient step there is no policy worth following.
    """
    config, layout = parts.config, parts.layout
    coefficient = jnp.where(state.refreshes > 0, config.guidance_scale, 0.0)
    return draw_samples(
        parts.denoiser,
        data.denoiser,
        key,
        (config.windows, layout.length, layout.channels),
        config=config.sampler,
        guidance=parts.guidance,
        guide_params=GuideParams(state.agent.actor, coefficient),
    )


def init(parts: PgdParts, key: jax.Array, data: PgdData) -> PgdState:
    """A fresh agent and no synthetic row."""
    agent_key, key = jax.random.split(key)
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), data.real)
    capacity = parts.config.lifetime * parts.config.windows * (parts.layout.length - 1)
    agent = first_state(parts.agent, agent_key, data.real.observations)
    return PgdState(agent, replay.create(row, capacity), jnp.int32(0), key)


def relabelled(
    parts: PgdParts, relabel_data: tuple, rows: Transitions, valid: jax.Array, key: jax.Array
) -> tuple[Transitions, jax.Array]:
    """The rows of windows relabelled as trajectories, and which of them count."""
    assert parts.relabel is not None
    shape, (params, threshold) = (parts.config.windows, parts.layout.length - 1), relabel_data
    paths, valid = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), (rows, valid))
    # Windows were drawn with the key itself.
    relabel_key, draw_key = jax.random.split(jax.random.fold_in(key, 1))
    settled = settle(
        parts.beyond_threshold,
        threshold,
        parts.relabel(params, relabel_key, paths),
        valid,
        draw_key,
    )
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), settled)


def update(
    parts: PgdParts, state: PgdState, data: PgdData
) -> tuple[PgdState, dict[str, jax.Array]]:
    """One refresh of the synthetic rows and its gradient steps."""
    config, agent = parts.config, parts.agent
    assert agent.gaussian is not None
    draw_key, learn_key, key = jax.random.split(state.key, 3)
    rows, valid = parts.layout.unpack(windows(parts, state, draw_key, data))
    if parts.relabel is not None:
        rows, valid = relabelled(parts, data.relabel_data, rows, valid, draw_key)
    synthetic = replay.add(state.synthetic, rows, valid)
    mean, _ = agent.gaussian(state.agent.actor, rows.observations)
    gap = jnp.square(rows.actions - mean).mean(-1)
    quality = {
        "action_gap": gap.mean(where=valid),
        "synthetic_reward": rows.rewards.mean(where=valid),
        "synthetic_terminations": rows.terminations.mean(where=valid),
    }
    sources = (
        functools.partial(sample_batch, data.real),
        functools.partial(replay.sample, synthetic),
    )

    def batch(key: jax.Array) -> Transitions:
        return mixed_rows(key, parts.batch_size, config.real_ratio, *sources)

    learned, metrics = learn(agent, state.agent, learn_key, batch, config.steps)
    return PgdState(learned, synthetic, state.refreshes + 1, key), metrics | quality

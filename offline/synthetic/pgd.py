"""Policy-guided diffusion (Jackson et al. 2024, arXiv:2404.06356): synthetic data near the policy.

A diffusion model of windows is trained once. While an agent learns, it is sampled again and again
with the actions pulled towards the current policy; each iteration of the loop is one such refresh
and the gradient steps on what it gave. The policy is an argument of the sampler, so that nothing
compiles twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.diffusion import (
    Denoiser,
    GuidanceConfig,
    SamplerConfig,
    Target,
    make_guidance,
    sample,
)
from jaxrl_rollouts.diffusion.guidance import GuideParams
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agents.agent import Agent, learn, observation_scaler
from ..agents.iql import normal_log_prob
from ..agents.registry import AgentConfig, make_agent
from ..data import Transitions, sample_batch
from .paths import policy_gap
from .windows import WindowLayout


@dataclass(frozen=True)
class PgdConfig:
    """Cadence and composition; defaults are those of the public code with fewer sampler steps.

    Attributes:
        guidance: which rule.
        coefficient: lambda; 0 is unguided diffusion. The published rule overshoots beyond about
            0.5 at 256 steps: its pushes keep their length while the noise vanishes.
        sampler: 256 steps are published, the default makes hardly more errors at half the cost
            (`sampler_steps`'s report). With fewer the same coefficient guides less, unless
            `guidance.reference_steps` says otherwise.
        windows: drawn per refresh.
        updates: gradient steps per refresh.
        batch_size: rows per gradient step.
        real_share: of them, from the dataset.
        lifetime: how many refreshes' data are kept.
    """

    guidance: GuidanceConfig = field(default_factory=lambda: GuidanceConfig(reference_steps=256))
    coefficient: float = 0.5
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    windows: int = positive(8192)
    updates: int = positive(10_000)
    batch_size: int = positive(256)
    real_share: float = 1 / 16
    lifetime: int = positive(1)

    def validate(self) -> None:
        if not 0 <= self.real_share <= 1:
            raise ConfigError("real_share", self.real_share, "in [0, 1]")
        if self.coefficient < 0:
            raise ConfigError("coefficient", self.coefficient, "at least 0")


class PgdData(NamedTuple):
    """What seeds share: real transitions and the denoiser's averaged weights."""

    real: Transitions
    denoiser: PyTree


class PgdState(NamedTuple):
    """State of one seed; `refreshes` counts those that were made."""

    agent: Any
    synthetic: replay.Replay
    refreshes: jax.Array
    key: jax.Array


class Pgd(NamedTuple):
    """Functions of one configuration; see `make_pgd`.

    Attributes:
        agent: of `agents.make_agent`.
        init: `(key, PgdData) -> PgdState`.
        update: one refresh and its gradient steps, `(state, PgdData) -> (state, metrics)`.
        draw: `(denoiser params, actor, coefficient, key, count) -> windows [count, L, C]`,
            standardised; `count` is static.
    """

    agent: Agent
    init: Callable[[jax.Array, PgdData], PgdState]
    update: Callable[[PgdState, PgdData], tuple[PgdState, dict[str, jax.Array]]]
    draw: Callable[..., jax.Array]


def policy_target(gaussian: Callable, layout: WindowLayout) -> Target:
    """The density of a window's actions under a policy, as a target of guidance.

    Args:
        gaussian: of an `Agent`: `(actor, observations) -> (mean, std)`.
        layout: of the windows; the last step has no action and does not count.

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
    config: PgdConfig, agent_config: AgentConfig, denoiser: Denoiser, layout: WindowLayout
) -> Pgd:
    """Build the functions.

    Args:
        config: cadence and guidance.
        agent_config: of TD3+BC, IQL or another agent with a `gaussian` policy.
        denoiser: of windows; its network is built for `layout.length`.
        layout: of the windows it was trained on.

    Raises:
        ConfigError: a setting is out of range, or the agent has no normal policy.
    """
    check(config)
    agent = make_agent(agent_config, layout.observation_size, layout.action_size)
    if not hasattr(agent, "gaussian"):
        raise ConfigError("agent", type(agent_config).__name__, "one with a normal policy")
    if config.updates % agent.period:
        raise ConfigError("updates", config.updates, f"a multiple of {agent.period}")
    guidance = make_guidance(policy_target(agent.gaussian, layout), config.guidance)
    real_rows = round(config.batch_size * config.real_share)
    per_refresh = config.windows * (layout.length - 1)

    def draw(
        params: PyTree, actor: PyTree, coefficient: jax.Array, key: jax.Array, count: int
    ) -> jax.Array:
        return sample(
            denoiser.denoise, params, key, (count, layout.length, layout.channels),
            config=config.sampler, edm=denoiser.config, guidance=guidance,
            guide_params=GuideParams(actor, coefficient),
        )  # fmt: skip

    def init(key: jax.Array, data: PgdData) -> PgdState:
        agent_key, key = jax.random.split(key)
        scaler = None
        if getattr(agent_config, "normalise", False):
            scaler = observation_scaler(data.real.observations)
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), data.real)
        empty = replay.create(row, config.lifetime * per_refresh)
        return PgdState(agent.init(agent_key, scaler), empty, jnp.int32(0), key)

    def update(state: PgdState, data: PgdData) -> tuple[PgdState, dict[str, jax.Array]]:
        draw_key, learn_key, key = jax.random.split(state.key, 3)
        # Before the first gradient step there is no policy worth following.
        coefficient = jnp.where(state.refreshes > 0, config.coefficient, 0.0)
        windows = draw(data.denoiser, state.agent.actor, coefficient, draw_key, config.windows)
        rows, valid = layout.unpack(windows)
        synthetic = replay.add(state.synthetic, rows, valid)
        gap = policy_gap(agent.gaussian, state.agent.actor, rows)
        found = {
            "action_gap": gap.mean(where=valid),
            "synthetic_reward": rows.rewards.mean(where=valid),
            "synthetic_terminations": rows.terminations.mean(where=valid),
        }

        def batch(key: jax.Array) -> Transitions:
            real_key, synthetic_key = jax.random.split(key)
            parts = []
            if real_rows:
                parts.append(sample_batch(data.real, real_key, real_rows))
            if real_rows < config.batch_size:
                drawn = replay.sample(synthetic, synthetic_key, config.batch_size - real_rows)
                parts.append(drawn)
            return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

        learned, metrics = learn(agent, state.agent, learn_key, batch, config.updates)
        return PgdState(learned, synthetic, state.refreshes + 1, key), {**metrics, **found}

    return Pgd(agent, init, update, draw)

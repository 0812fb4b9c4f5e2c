"""Synthesis inside the compiled training loop: transitions drawn anew every few hundred updates.

A model that draws in a few calls is cheap enough to be asked again and again while an agent learns,
in the same program: nothing goes to the host, no set of rows is kept, and no row is seen often.
What `pgd` does with guided windows, for single transitions and without a policy.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, fraction, positive
from jaxrl_rollouts.diffusion import Denoiser, Flow, JumpConfig, SamplerConfig, draw_samples
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agent import Agent, AgentConfig, Learner, first_state, learn
from ..data import Transitions
from .synther import MixedData, RowLayout, mixing


@dataclass(frozen=True)
class RefreshConfig:
    """Cadence and composition.

    Attributes:
        sampler: of the model; a `JumpConfig` of a student.
        rows: drawn at a time; the ones before are forgotten.
        updates: gradient steps on them.
        batch_size: rows per gradient step.
        real_ratio: of them, from the dataset.
    """

    sampler: SamplerConfig | JumpConfig = field(default_factory=JumpConfig)
    rows: int = positive(20_000)
    updates: int = positive(500)
    batch_size: int = positive(256)
    real_ratio: float = fraction(0.0)


class RefreshData(NamedTuple):
    """Real transitions, and the averaged weights of the model that draws."""

    real: Transitions
    model: PyTree


class RefreshState(NamedTuple):
    """State of one seed."""

    agent: Any
    key: jax.Array


class RefreshParts(NamedTuple):
    """What the functions of this module are bound to."""

    config: RefreshConfig
    agent: Agent
    model: Denoiser | Flow
    layout: RowLayout


def make_refreshed(
    config: RefreshConfig, agent_config: AgentConfig, model: Denoiser | Flow, layout: RowLayout
) -> Learner:
    """A learner whose data are `RefreshData`; its `imagine` is `drawn`.

    Args:
        config: cadence and sampler.
        agent_config: of any agent that learns from transitions.
        model: of rows, a denoiser or its student (`RowModel`).
        layout: of the rows it was trained on.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    agent = agent_config.make(layout.observation_size, layout.action_size)
    if config.updates % agent.period:
        raise ConfigError("updates", config.updates, f"a multiple of {agent.period}")
    parts = RefreshParts(config, agent, model, layout)
    functions: Any = (init, update, drawn)
    begin, step, draw = (functools.partial(f, parts) for f in functions)
    return Learner(agent, begin, step, config.updates, draw)


def init(parts: RefreshParts, key: jax.Array, data: RefreshData) -> RefreshState:
    """A fresh agent."""
    agent_key, key = jax.random.split(key)
    return RefreshState(first_state(parts.agent, agent_key, data.real.observations), key)


def drawn(
    parts: RefreshParts, state: RefreshState, key: jax.Array, data: RefreshData
) -> Transitions:
    """`rows` transitions in data units."""
    del state  # unguided
    shape = parts.config.rows, parts.layout.features
    return parts.layout.unpack(
        draw_samples(parts.model, data.model, key, shape, config=parts.config.sampler)
    )


def update(
    parts: RefreshParts, state: RefreshState, data: RefreshData
) -> tuple[RefreshState, dict[str, jax.Array]]:
    """One draw and the gradient steps on it."""
    config = parts.config
    draw_key, learn_key, key = jax.random.split(state.key, 3)
    rows = drawn(parts, state, draw_key, data)
    draw, both = mixing(config.real_ratio), MixedData(data.real, rows)

    def batch(key: jax.Array) -> Transitions:
        return draw(both, key, config.batch_size)

    learned, metrics = learn(parts.agent, state.agent, learn_key, batch, config.updates)
    metrics = metrics | {"synthetic_reward": jnp.mean(rows.rewards)}
    return RefreshState(learned, key), metrics

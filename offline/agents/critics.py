"""Where and when critics can be trusted: values at the edge, and how long values take to come."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax

from ..method import Agent

HORIZON = 400  # steps that are played: 0.98^400 is 0.03 %


class CriticView(NamedTuple):
    """What critics say about a set of states under the policy's mean action; scalars.

    Attributes:
        mean: mean over critics and states.
        spread: standard deviation over critics, mean over states.
        pessimism: how far the minimum over critics lies below their mean, mean over states.
    """

    mean: jax.Array
    spread: jax.Array
    pessimism: jax.Array


def critic_view(agent: Agent, state: Any, observations: jax.Array) -> CriticView:
    """Critics' mean, spread and pessimism on `[B, S]` states (one seed; vmap over seeds)."""
    memory = agent.memory(observations.shape[0])
    actions, _ = agent.greedy(state.actor, jax.random.key(0), observations, memory)
    q = agent.q(state.critic, observations, actions)
    return CriticView(q.mean(), q.std(0).mean(), (q.mean(0) - q.min(0)).mean())


def bootstrap_rate(config: Any) -> float | None:
    """`tau (1 - gamma)` of an agent's settings: the share of the way to their fixed point that its
    values go in a gradient step. None for an agent that does not bootstrap, or does not discount.

    Args:
        config: settings of an agent; where the target networks move with a delayed actor (TD3),
            they move that much more rarely.
    """
    if getattr(config, "tau", None) is None or config.discount >= 1:
        return None
    return config.tau / getattr(config, "delay", 1) * (1 - config.discount)


@partial(jax.jit, static_argnames="agent")
def start_values(agent: Agent, states: Any, observations: jax.Array) -> jax.Array:
    """Value the critics promise from `[B, S]` states, per seed of `states`: `[seeds]`."""
    return jax.vmap(lambda s: critic_view(agent, s, observations).mean)(states)

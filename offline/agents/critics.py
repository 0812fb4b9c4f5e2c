"""Where and when critics can be trusted: values at the edge, and how long values take to come."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.rollouts import rollout

from ..data import Transitions
from ..environments.base import Environment, true_model
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


def promised_and_earned(
    agent: Agent, env: Environment, states: Any, rows: Transitions, *, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean critics' value of the data's actions, and what the greedy policy then earns.

    Args:
        agent: a Markov one.
        env: whose observation determines its state.
        states: of all seeds.
        rows: of the dataset, on the device.
        discount: per step.

    Returns:
        Means over the rows, `[seeds]` each.
    """
    model, key = true_model(env), jax.random.key(0)

    def one(state: Any, rows: Transitions) -> tuple[jax.Array, jax.Array]:
        promised = agent.q(state.critic, rows.observations, rows.actions).mean()
        following, out = model.step(None, key, rows.observations, rows.actions, None)
        rewards = rollout(
            model,
            None,
            following,
            key,
            horizon=HORIZON,
            policy=agent.greedy,
            policy_params=state.actor,
            record=lambda step: step.rewards,
        ).steps
        later = (discount ** jnp.arange(1, HORIZON + 1)) @ rewards
        return promised, (out.reward + jnp.where(out.terminated, 0.0, later)).mean()

    promised, earned = jax.jit(jax.vmap(one, (0, None)))(states, rows)
    return np.asarray(promised), np.asarray(earned)

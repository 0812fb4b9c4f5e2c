"""Critics that see normalised observations: their values, loss and metrics; when to trust them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled

HORIZON = 400  # steps that are played: 0.98^400 is 0.03 %


def q(nets: Any, critic: Scaled, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Every critic's value, `[N, B]`; `nets.critics` is their ensemble."""
    seen = critic.scaler.normalise(observations)
    return nets.critics.apply_all(critic.net, seen, actions)[..., 0]


def critic_loss(
    net: PyTree, nets: Any, scaler: Scaler, batch: Any, target: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`sum_i mean (Q_i(s, a) - target)^2`, and the values `[N, B]`."""
    values = q(nets, Scaled(net, scaler), batch.observations, batch.actions)
    return jnp.square(values - target).mean(1).sum(), values


def critic_metrics(fit: jax.Array, values: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Metrics of a step of `critic_loss`: the loss of one critic, values `[N, B]` and targets."""
    return {
        "critic_loss": fit / len(values),
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
        "target_mean": target.mean(),
    }


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
    """Value that the critics give to `[B, S]` states, per seed of `states`: `[seeds]`."""
    return jax.vmap(lambda s: critic_view(agent, s, observations).mean)(states)

"""Critics on normalised observations: settings, values, gradient step, convergence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled


@dataclass(frozen=True)
class ValueConfig:
    """Hyper-parameters of agents with such critics: TD3's, IQL's and FQL's families.

    Attributes:
        num_critics: number of critics; their minimum is the value learned from.
        hidden_dims: widths of all networks.
        critic_norm: layer normalisation in critics and state values, after each activation.
        normalize_obs: observations by their statistics in the dataset.
        discount: gamma: what a reward one step later counts.
        tau: update rate of the target networks (Polyak averaging).
        actor_lr, critic_lr: learning rates (Adam).
    """

    num_critics: int = positive(2)
    hidden_dims: tuple[int, ...] = layers((256, 256))
    critic_norm: bool = False
    normalize_obs: bool = False
    discount: float = number(0.99, least=0, below=1)
    tau: float = number(0.005, above=0, most=1)
    actor_lr: float = step_size(3e-4)
    critic_lr: float = step_size(3e-4)


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


def critic_step(
    nets: Any, state: Any, batch: Any, target: jax.Array
) -> tuple[PyTree, Any, dict[str, jax.Array]]:
    """A gradient step of `state.critic` at targets `[B]`: networks, moments, metrics."""
    critic, moments, fit, values = gradient_step(
        nets.learn_critic,
        critic_loss,
        state.critic.net,
        state.opt_critic,
        nets,
        state.critic.scaler,
        batch,
        target,
    )
    metrics = {
        "critic_loss": fit / len(values),
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
        "target_mean": target.mean(),
    }
    return critic, moments, metrics


def bootstrapped(batch: Any, discount: float, value: jax.Array) -> jax.Array:
    """`r + gamma (1 - d) value`, `[B]`, with the value of the next states; no gradient."""
    alive = 1.0 - batch.terminations.astype(jnp.float32)
    return jax.lax.stop_gradient(batch.rewards + discount * alive * value)


class CriticView(NamedTuple):
    """What critics say about a set of states under the policy's mean action; scalars.

    Attributes:
        mean: mean over critics and states.
        spread: standard deviation over critics, mean over states.
        pessimism: mean over critics minus their minimum, averaged over states.
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
    return config.tau / getattr(config, "policy_freq", 1) * (1 - config.discount)


@partial(jax.jit, static_argnames="agent")
def start_values(agent: Agent, states: Any, observations: jax.Array) -> jax.Array:
    """Value that the critics give to `[B, S]` states, per seed of `states`: `[seeds]`."""
    return jax.vmap(lambda s: critic_view(agent, s, observations).mean)(states)

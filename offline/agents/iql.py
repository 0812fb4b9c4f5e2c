"""Implicit Q-learning (Kostrikov et al. 2022, arXiv:2110.06169): no action outside the data.

A state value is an upper expectile of the critics at the data's own actions, critics bootstrap
from it, and the policy imitates the data weighted by the exponential of their advantage.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import at_least_one, discount_and_polyak
from jaxrl_rollouts.ensemble import ensemble
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from .agent import Agent, Scaled

LOG_STD_RANGE = (-5.0, 2.0)


@dataclass(frozen=True)
class IqlConfig:
    """Hyper-parameters; defaults are the paper's for locomotion.

    Attributes:
        expectile: tau (0.9 on AntMaze).
        inverse_temperature: beta: how strongly advantages weigh the imitation (10 on AntMaze).
        weight_clip: greatest weight.
        normalise: observations by their statistics in the dataset.
        cosine_steps: the actor's rate falls to zero over so many updates; None keeps it.
    """

    critics: int = 2
    hidden: tuple[int, ...] = (256, 256)
    expectile: float = 0.7
    inverse_temperature: float = 3.0
    weight_clip: float = 100.0
    normalise: bool = False
    discount: float = 0.99
    polyak: float = 0.005
    actor_rate: float = 3e-4
    critic_rate: float = 3e-4
    value_rate: float = 3e-4
    cosine_steps: int | None = None

    def validate(self) -> None:
        at_least_one(self, "critics")
        if not self.hidden:
            raise ConfigError("hidden", self.hidden, "at least one layer")
        if not 0 < self.expectile < 1:
            raise ConfigError("expectile", self.expectile, "in (0, 1)")
        if self.inverse_temperature < 0 or self.weight_clip <= 0:
            found = (self.inverse_temperature, self.weight_clip)
            expected = "at least 0 and above 0"
            raise ConfigError("inverse_temperature, weight_clip", found, expected)
        discount_and_polyak(self)
        if self.cosine_steps is not None and self.cosine_steps < 1:
            raise ConfigError("cosine_steps", self.cosine_steps, "at least 1, or None")


class IqlState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: Scaled
    critic: Scaled
    value: PyTree
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_value: optax.OptState


class TanhMean(nn.Module):
    """Mean in (-1, 1) by an MLP; a standard deviation that does not depend on the state."""

    hidden: tuple[int, ...]
    actions: int

    @nn.compact
    def __call__(self, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.tanh(MLP(self.hidden, (self.actions,))(observations))
        log_std = self.param("log_std", nn.initializers.zeros, (self.actions,))
        return mean, jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE))


def expectile_loss(difference: jax.Array, expectile: float) -> jax.Array:
    """`|tau - 1(u < 0)| u^2`, elementwise."""
    return jnp.where(difference < 0, 1.0 - expectile, expectile) * jnp.square(difference)


def normal_log_prob(actions: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Of `[..., A]` actions under a normal that is not squashed, `[...]`."""
    scaled = jnp.square((actions - mean) / std)
    return (-0.5 * scaled - jnp.log(std) - 0.5 * math.log(2.0 * math.pi)).sum(-1)


@functools.lru_cache(maxsize=32)
def make_iql(config: IqlConfig, observation_size: int, action_size: int) -> Agent:
    """Build the agent's functions. Equal arguments give the same functions.

    One update moves the value, then the actor and the critics with the new value (the authors'
    order), then the target critics.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    a = jax.ShapeDtypeStruct((1, action_size), jnp.float32)
    actor_net = from_linen(TanhMean(config.hidden, action_size), s)
    value_net = from_linen(MLP(config.hidden, (1,)), s)
    critics = ensemble(from_linen(MLP(config.hidden, (1,)), s, a), config.critics)
    rate: Any = config.actor_rate
    if config.cosine_steps is not None:
        rate = optax.cosine_decay_schedule(config.actor_rate, config.cosine_steps)
    optimise_actor = optax.adam(rate)
    optimise_critic, optimise_value = optax.adam(config.critic_rate), optax.adam(config.value_rate)

    def init(key: jax.Array, scaler: Scaler | None = None) -> IqlState:
        actor_key, critic_key, value_key = jax.random.split(key, 3)
        scaler = scaler or identity_scaler(observation_size)
        actor, critic = actor_net.init(actor_key), critics.init(critic_key)
        value = value_net.init(value_key)
        return IqlState(
            Scaled(actor, scaler), Scaled(critic, scaler), value, critic,
            optimise_actor.init(actor), optimise_critic.init(critic), optimise_value.init(value),
        )  # fmt: skip

    def update(
        state: IqlState, key: jax.Array, batch: Any, *, actor: bool = True
    ) -> tuple[IqlState, dict[str, jax.Array]]:
        del key, actor  # nothing is drawn, and every update moves the actor
        scaler = state.actor.scaler
        now, after = (scaler.normalise(x) for x in (batch.observations, batch.next_observations))
        lowest = critics.apply_all(state.target_critic, now, batch.actions)[..., 0].min(0)

        def value_loss(net: PyTree) -> jax.Array:
            said = value_net.apply(net, now)[..., 0]
            return expectile_loss(lowest - said, config.expectile).mean()

        value_fit, gradient = jax.value_and_grad(value_loss)(state.value)
        step, opt_value = optimise_value.update(gradient, state.opt_value, state.value)
        value = optax.apply_updates(state.value, step)

        advantage = lowest - value_net.apply(value, now)[..., 0]
        # The exponent is bounded rather than the weight: exp could be infinite before the clip.
        exponent = jnp.minimum(config.inverse_temperature * advantage, math.log(config.weight_clip))
        weight = jnp.exp(exponent)

        def actor_loss(net: PyTree) -> jax.Array:
            return -(weight * normal_log_prob(batch.actions, *actor_net.apply(net, now))).mean()

        actor_fit, gradient = jax.value_and_grad(actor_loss)(state.actor.net)
        step, opt_actor = optimise_actor.update(gradient, state.opt_actor, state.actor.net)
        moved = optax.apply_updates(state.actor.net, step)

        alive = 1.0 - batch.terminations.astype(jnp.float32)
        target = batch.rewards + config.discount * alive * value_net.apply(value, after)[..., 0]

        def critic_loss(net: PyTree) -> tuple[jax.Array, jax.Array]:
            q = critics.apply_all(net, now, batch.actions)[..., 0]
            return jnp.square(q - target).mean(1).sum(), q

        (fit, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        step, opt_critic = optimise_critic.update(gradient, state.opt_critic, state.critic.net)
        critic = optax.apply_updates(state.critic.net, step)
        target_critic = optax.incremental_update(critic, state.target_critic, config.polyak)
        metrics = {
            "critic_loss": fit / config.critics, "q_mean": q.mean(), "q_spread": q.std(0).mean(),
            "target_mean": target.mean(), "value_loss": value_fit, "actor_loss": actor_fit,
            "advantage": advantage.mean(), "weight": weight.mean(),
        }  # fmt: skip
        state = IqlState(
            Scaled(moved, scaler), Scaled(critic, scaler), value, target_critic, opt_actor,
            opt_critic, opt_value,
        )  # fmt: skip
        return state, metrics

    def gaussian(actor: Scaled, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        return actor_net.apply(actor.net, actor.scaler.normalise(observations))

    def policy(actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        mean, std = gaussian(actor, observation)
        drawn = mean + std * draws.normal(key, mean.shape)
        return jnp.clip(drawn, -1.0, 1.0), memory

    def greedy(actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        del key
        return gaussian(actor, observation)[0], memory

    def q(critic: Scaled, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return critics.apply_all(critic.net, critic.scaler.normalise(observations), actions)[..., 0]

    return Agent(init, update, policy, greedy, q, gaussian)

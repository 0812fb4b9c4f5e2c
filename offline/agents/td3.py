"""The TD3 that TD3+BC and ReBRAC share (Fujimoto et al. 2018): what differs are two functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import at_least_one, discount_and_polyak
from jaxrl_rollouts.ensemble import ensemble
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, from_linen, uniform
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from .agent import Agent, Scaled


@dataclass(frozen=True)
class Td3Config:
    """Hyper-parameters of TD3; defaults are those of TD3+BC.

    Attributes:
        critics: how many; their minimum is bootstrapped from.
        hidden: widths of all networks.
        critic_norm: layer normalisation in the critics, after each activation.
        careful_init: EDAC's initial weights (biases 0.1, small heads), as ReBRAC has them.
        normalise: observations by their statistics in the dataset.
        noise, noise_clip: of the target action, within [-1, 1].
        delay: critic updates per actor update; target networks move with the actor.
    """

    critics: int = 2
    hidden: tuple[int, ...] = (256, 256)
    critic_norm: bool = False
    careful_init: bool = False
    normalise: bool = True
    discount: float = 0.99
    polyak: float = 0.005
    actor_rate: float = 3e-4
    critic_rate: float = 3e-4
    noise: float = 0.2
    noise_clip: float = 0.5
    delay: int = 2

    def validate(self) -> None:
        at_least_one(self, "critics", "delay")
        if not self.hidden:
            raise ConfigError("hidden", self.hidden, "at least one layer")
        discount_and_polyak(self)
        if self.noise < 0 or self.noise_clip < 0:
            found = (self.noise, self.noise_clip)
            raise ConfigError("noise, noise_clip", found, "both at least 0")


class Td3State(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: Scaled
    critic: Scaled
    target_actor: PyTree
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_critic: optax.OptState


# (values [N, B], the policy's actions [B, A], batch) -> (loss, metrics)
ActorLoss = Callable[[jax.Array, jax.Array, Any], tuple[jax.Array, dict[str, jax.Array]]]
# (target actions [B, A], batch) -> [B], taken off the value that is bootstrapped from
TargetPenalty = Callable[[jax.Array, Any], jax.Array | float]


def make_td3(
    config: Td3Config,
    observation_size: int,
    action_size: int,
    actor_loss: ActorLoss,
    target_penalty: TargetPenalty | None = None,
) -> Agent:
    """Build an agent's functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    a = jax.ShapeDtypeStruct((1, action_size), jnp.float32)

    def settings(bound: float) -> dict[str, Any]:
        if not config.careful_init:
            return {}
        bias, head = jax.nn.initializers.constant(0.1), uniform(bound)
        return {"bias_init": bias, "head_init": head, "head_bias_init": head}

    actor_net = from_linen(MLP(config.hidden, (action_size,), **settings(1e-3)), s)
    norm = config.critic_norm
    critic_mlp = MLP(config.hidden, (1,), layer_norm=norm, norm_after=norm, **settings(3e-3))
    critics = ensemble(from_linen(critic_mlp, s, a), config.critics)
    optimise_actor = optax.adam(config.actor_rate)
    optimise_critic = optax.adam(config.critic_rate)

    def act(net: PyTree, scaler: Scaler, observations: jax.Array) -> jax.Array:
        return jnp.tanh(actor_net.apply(net, scaler.normalise(observations)))

    def values(
        net: PyTree, scaler: Scaler, observations: jax.Array, actions: jax.Array
    ) -> jax.Array:
        return critics.apply_all(net, scaler.normalise(observations), actions)[..., 0]

    def init(key: jax.Array, scaler: Scaler | None = None) -> Td3State:
        actor_key, critic_key = jax.random.split(key)
        scaler = scaler or identity_scaler(observation_size)
        actor, critic = actor_net.init(actor_key), critics.init(critic_key)
        return Td3State(
            Scaled(actor, scaler), Scaled(critic, scaler), actor, critic,
            optimise_actor.init(actor), optimise_critic.init(critic),
        )  # fmt: skip

    def target_of(state: Td3State, key: jax.Array, batch: Any) -> jax.Array:
        """Bellman targets `[B]`: the smoothed target policy, the lowest target critic."""
        scaler = state.actor.scaler
        following = act(state.target_actor, scaler, batch.next_observations)
        noise = config.noise * draws.normal(key, following.shape)
        noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
        following = jnp.clip(following + noise, -1.0, 1.0)
        value = values(state.target_critic, scaler, batch.next_observations, following).min(0)
        if target_penalty is not None:
            value = value - target_penalty(following, batch)
        alive = 1.0 - batch.terminations.astype(jnp.float32)
        return jax.lax.stop_gradient(batch.rewards + config.discount * alive * value)

    def update(
        state: Td3State, key: jax.Array, batch: Any, *, actor: bool = True
    ) -> tuple[Td3State, dict[str, jax.Array]]:
        scaler = state.actor.scaler
        target = target_of(state, key, batch)

        def critic_loss(net: PyTree) -> tuple[jax.Array, jax.Array]:
            q = values(net, scaler, batch.observations, batch.actions)
            return jnp.square(q - target).mean(1).sum(), q

        (fit, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        step, opt_critic = optimise_critic.update(gradient, state.opt_critic, state.critic.net)
        critic = optax.apply_updates(state.critic.net, step)
        metrics = {
            "critic_loss": fit / config.critics, "q_mean": q.mean(), "q_spread": q.std(0).mean(),
            "target_mean": target.mean(),
        }  # fmt: skip
        state = state._replace(critic=Scaled(critic, scaler), opt_critic=opt_critic)
        if not actor:
            return state, metrics

        def policy_loss(net: PyTree) -> tuple[jax.Array, dict[str, jax.Array]]:
            actions = act(net, scaler, batch.observations)
            return actor_loss(values(critic, scaler, batch.observations, actions), actions, batch)

        (loss, found), gradient = jax.value_and_grad(policy_loss, has_aux=True)(state.actor.net)
        step, opt_actor = optimise_actor.update(gradient, state.opt_actor, state.actor.net)
        moved = optax.apply_updates(state.actor.net, step)
        state = state._replace(
            actor=Scaled(moved, scaler), opt_actor=opt_actor,
            target_actor=optax.incremental_update(moved, state.target_actor, config.polyak),
            target_critic=optax.incremental_update(critic, state.target_critic, config.polyak),
        )  # fmt: skip
        return state, metrics | {"actor_loss": loss, **found}

    def greedy(actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        del key
        return act(*actor, observation), memory

    def q(critic: Scaled, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return values(*critic, observations, actions)

    def gaussian(actor: Scaled, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Unit variance around the action, as policy-guided diffusion has it."""
        mean = act(*actor, observations)
        return mean, jnp.ones_like(mean)

    return Agent(init, update, greedy, greedy, q, gaussian, config.delay)

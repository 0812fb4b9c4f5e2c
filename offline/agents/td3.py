"""The TD3 that TD3+BC and ReBRAC share (Fujimoto et al. 2018): what differs are two functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.networks import MLP, Network, from_linen, uniform
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled, bound
from .actors import inputs
from .critics import ValueConfig, bootstrapped, critic_step, q


@dataclass(frozen=True)
class Td3Config(ValueConfig):
    """Hyper-parameters of TD3; defaults are those of TD3+BC.

    Attributes:
        actor_norm: layer normalisation in the policy, after each activation.
        edac_init: EDAC's initial weights (biases 0.1, small heads), as ReBRAC has them.
        policy_noise, noise_clip: noise of the target action, within [-1, 1].
        policy_freq: critic updates per actor update; target networks move with the actor.
    """

    actor_norm: bool = False
    edac_init: bool = False
    normalize_obs: bool = True
    policy_noise: float = number(0.2, least=0)
    noise_clip: float = number(0.5, least=0)
    policy_freq: int = positive(2)


class Td3State(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: Scaled
    critic: Scaled
    target_actor: PyTree
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_critic: optax.OptState


# (settings, values [N, B], the policy's actions [B, A], batch) -> (loss, metrics)
ActorLoss = Callable[[Any, jax.Array, jax.Array, Any], tuple[jax.Array, dict[str, jax.Array]]]
# (settings, target actions [B, A], batch) -> [B], taken off the value that is bootstrapped from
TargetPenalty = Callable[[Any, jax.Array, Any], jax.Array | float]


class Td3Nets(NamedTuple):
    """Networks, optimisers and what sets one TD3 apart from another."""

    config: Td3Config
    observation_size: int
    actor: Network
    critics: Ensemble
    learn_actor: optax.GradientTransformation
    learn_critic: optax.GradientTransformation
    actor_loss: ActorLoss
    target_penalty: TargetPenalty | None


def make_td3(
    config: Td3Config,
    observation_size: int,
    action_size: int,
    actor_loss: ActorLoss,
    target_penalty: TargetPenalty | None = None,
) -> Agent:
    """Bind the functions of this module."""
    check(config)
    s, a = inputs(observation_size, action_size)

    def network(outputs: int, norm: bool, bound: float) -> MLP:
        own: dict[str, Any] = {"layer_norm": norm, "norm_after": norm}
        if config.edac_init:
            bias, head = jax.nn.initializers.constant(0.1), uniform(bound)
            own |= {"bias_init": bias, "head_init": head, "head_bias_init": head}
        return MLP(config.hidden_dims, (outputs,), **own)

    return td3_of(
        Td3Nets(
            config,
            observation_size,
            from_linen(network(action_size, config.actor_norm, 1e-3), s),
            ensemble(from_linen(network(1, config.critic_norm, 3e-3), s, a), config.num_critics),
            optax.adam(config.actor_lr),
            optax.adam(config.critic_lr),
            actor_loss,
            target_penalty,
        )
    )


def td3_of(nets: Td3Nets) -> Agent:
    """The agent of these networks."""
    acts = {"policy": greedy, "greedy": greedy, "q": q, "gaussian": gaussian}
    settings = {
        "normalise": nets.config.normalize_obs,
        "period": nets.config.policy_freq,
        "nets": nets,
    }
    return Agent(**bound(nets, init=init, update=update, **acts), **settings)


def init(nets: Td3Nets, key: jax.Array, scaler: Scaler | None = None) -> Td3State:
    """A fresh state that sees observations through `scaler`."""
    actor_key, critic_key = jax.random.split(key)
    actor, critic = nets.actor.init(actor_key), nets.critics.init(critic_key)
    scaler = scaler or identity_scaler(nets.observation_size)
    return Td3State(
        Scaled(actor, scaler),
        Scaled(critic, scaler),
        actor,
        critic,
        nets.learn_actor.init(actor),
        nets.learn_critic.init(critic),
    )


def action(nets: Any, actor: Scaled, observations: jax.Array) -> jax.Array:
    """The deterministic policy, `[..., A]`."""
    return jnp.tanh(nets.actor.apply(actor.net, actor.scaler.normalise(observations)))


def greedy(
    nets: Any, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The policy: deterministic in training as in evaluation."""
    del key
    return action(nets, actor, observation), memory


def gaussian(nets: Any, actor: Scaled, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unit variance around the action, of which the squared error is the log-likelihood."""
    mean = action(nets, actor, observations)
    return mean, jnp.ones_like(mean)


def bellman_target(nets: Td3Nets, state: Td3State, key: jax.Array, batch: Any) -> jax.Array:
    """`r + gamma (1 - d) (min_i Q'_i(s', a') - penalty)` with the smoothed target action, `[B]`.

    Fujimoto et al. 2018, equation 14: `a' = clip(pi'(s') + clip(noise))`.
    """
    config, scaler = nets.config, state.actor.scaler
    following = action(nets, Scaled(state.target_actor, scaler), batch.next_observations)
    noise = config.policy_noise * draws.normal(key, following.shape)
    noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
    following = jnp.clip(following + noise, -1.0, 1.0)
    value = q(nets, Scaled(state.target_critic, scaler), batch.next_observations, following).min(0)
    if nets.target_penalty is not None:
        value = value - nets.target_penalty(config, following, batch)
    return bootstrapped(batch, config.discount, value)


def policy_loss(
    net: PyTree, nets: Td3Nets, critic: Scaled, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The `actor_loss` of this kind of TD3 at the policy's own actions."""
    actions = action(nets, Scaled(net, critic.scaler), batch.observations)
    values = q(nets, critic, batch.observations, actions)
    return nets.actor_loss(nets.config, values, actions, batch)


def update(
    nets: Td3Nets, state: Td3State, key: jax.Array, batch: Any, *, actor: bool = True
) -> tuple[Td3State, dict[str, jax.Array]]:
    """One gradient step of the critics and, with `actor`, of the policy and the targets."""
    config, scaler = nets.config, state.actor.scaler
    target = bellman_target(nets, state, key, batch)
    net, opt_critic, metrics = critic_step(nets, state, batch, target)
    critic = Scaled(net, scaler)
    state = state._replace(critic=critic, opt_critic=opt_critic)
    if not actor:
        return state, metrics
    moved, opt_actor, loss, more = gradient_step(
        nets.learn_actor, policy_loss, state.actor.net, state.opt_actor, nets, critic, batch
    )
    state = state._replace(
        actor=Scaled(moved, scaler),
        opt_actor=opt_actor,
        target_actor=optax.incremental_update(moved, state.target_actor, config.tau),
        target_critic=optax.incremental_update(net, state.target_critic, config.tau),
    )
    return state, metrics | {"actor_loss": loss, **more}

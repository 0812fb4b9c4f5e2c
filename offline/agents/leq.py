"""LEQ's networks (Park and Lee 2025, arXiv:2407.00699): TD3's with symlog inputs and one critic.

The policy explores in rollouts that extend the dataset. The losses are in `methods/leq.py`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import layers, number, positive, step_size
from jaxrl_rollouts.descent import falling
from jaxrl_rollouts.ensemble import ensemble
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled
from .actors import inputs
from .td3 import Td3Config, Td3Nets, make_td3, td3_of


@dataclass(frozen=True)
class LeqConfig(Td3Config):
    """LEQ's networks: a deterministic policy and one critic, whose inputs pass a symlog.

    Attributes:
        exploration: deviation of the policy's normal noise before the tanh, in rollouts that
            extend the dataset.
        cosine: the policy's rate falls to zero along a cosine over the training.
    """

    num_critics: int = positive(1)
    hidden_dims: tuple[int, ...] = layers((256, 256, 256))
    critic_norm: bool = True
    discount: float = number(0.997, least=0, below=1)
    actor_lr: float = step_size(3e-5)
    critic_lr: float = step_size(1e-4)
    policy_noise: float = number(0.0, least=0)
    policy_freq: int = positive(1)
    exploration: float = number(1.0, least=0)
    cosine: bool = True

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_leq(self, observation_size, action_size, steps if self.cosine else None)


@functools.lru_cache(maxsize=32)
def make_leq(
    config: LeqConfig, observation_size: int, action_size: int, steps: int | None = None
) -> Agent:
    """TD3 with these networks; `Leq` has its own gradient step. Equal arguments give the same
    functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    sizes = observation_size, action_size
    s, a = inputs(*sizes)
    nets: Td3Nets = make_td3(config, *sizes, lambda _, q, actions, batch: (-q[0].mean(), {})).nets
    critic = from_linen(MLP(config.hidden_dims, (1,), layer_norm=config.critic_norm), s, a)
    nets = nets._replace(
        actor=squeezed(nets.actor),
        critics=ensemble(squeezed(critic), config.num_critics),
        learn_actor=optax.adam(falling(config.actor_lr, steps)),
    )

    def explore(actor: Scaled, key: jax.Array, seen: jax.Array, memory: PyTree) -> tuple:
        mean = nets.actor.apply(actor.net, actor.scaler.normalise(seen))
        return jnp.tanh(mean + config.exploration * draws.normal(key, mean.shape)), memory

    return td3_of(nets)._replace(policy=explore)


def squeezed(network: Network) -> Network:
    """The same network of `sign(x) log(1 + |x|)`."""

    def apply(params: PyTree, *inputs: jax.Array) -> Any:
        return network.apply(params, *(jnp.sign(x) * jnp.log1p(jnp.abs(x)) for x in inputs))

    return Network(network.init, apply)

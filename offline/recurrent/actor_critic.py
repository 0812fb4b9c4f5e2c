"""Actor and many critics given an episode so far, each with a memory of its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxrl_rollouts.ensemble import ensemble
from jaxrl_rollouts.networks import MLP, from_linen, uniform
from jaxrl_rollouts.trees import PyTree

from ..agents.actors import LOG_STD_RANGE, inputs
from .memory import MemoryConfig, Parts, make_memory


class ActorCritic(NamedTuple):
    """Functions of the two networks. The `N` critics share a memory; their heads are `[N, ...]`.

    Attributes:
        init_actor, init_critic: `key -> Parts`.
        heads: `(actor, observations [L, D], starts [L]) -> (mean, log_std)`, `[L, A]` each, of a
            whole tape.
        q: `(critic, observations [L, D], starts [L], actions [L, A]) -> [N, L]`.
        now: `(actor, observation [B, D], carry) -> ((mean, log_std), carry)`.
        start: `batch -> carry` of the actor in episodes that begin.
    """

    init_actor: Callable[[jax.Array], Parts]
    init_critic: Callable[[jax.Array], Parts]
    heads: Callable[[Parts, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    q: Callable[[Parts, jax.Array, jax.Array, jax.Array], jax.Array]
    now: Callable[[Parts, jax.Array, PyTree], tuple[tuple[jax.Array, jax.Array], PyTree]]
    start: Callable[[int], PyTree]


@functools.lru_cache(maxsize=32)
def make_actor_critic(
    config: MemoryConfig,
    head_dims: tuple[int, ...],
    num_critics: int,
    observation_size: int,
    action_size: int,
) -> ActorCritic:
    """Build the functions; `head_dims` are the hidden layers after each memory.

    Values start near zero: the critics' last weights are within `sqrt(0.01 / width)`.
    """
    memory = make_memory(config, observation_size)
    y, a = inputs(memory.features, action_size)
    actor_net = from_linen(
        MLP(head_dims, (action_size, action_size), nn.leaky_relu, layer_norm=True, bias_init=None),
        y,
    )
    critic_net = from_linen(
        MLP(
            head_dims,
            (1,),
            nn.leaky_relu,
            layer_norm=True,
            bias_init=None,
            head_init=uniform(math.sqrt(0.01 / head_dims[-1])),
            head_bias_init=jax.nn.initializers.zeros,
        ),
        y,
        a,
    )
    critic_nets = ensemble(critic_net, num_critics)

    def init(head_init: Callable[[jax.Array], PyTree], key: jax.Array) -> Parts:
        memory_key, head_key = jax.random.split(key)
        return Parts(memory.init(memory_key), head_init(head_key))

    def normal(actor: Parts, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = actor_net.apply(actor.head, features)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def heads(
        actor: Parts, observations: jax.Array, starts: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return normal(actor, memory.scan(actor.memory, observations, starts)[0])

    def q(
        critic: Parts, observations: jax.Array, starts: jax.Array, actions: jax.Array
    ) -> jax.Array:
        features, _ = memory.scan(critic.memory, observations, starts)
        return critic_nets.apply_all(critic.head, features, actions)[..., 0]

    def now(actor: Parts, observation: jax.Array, carry: PyTree) -> tuple:
        features, carry = memory.step(actor.memory, carry, observation)
        return normal(actor, features), carry

    return ActorCritic(
        functools.partial(init, actor_net.init),
        functools.partial(init, critic_nets.init),
        heads,
        q,
        now,
        memory.start,
    )

"""Values of actions given an episode so far, a memory and a dueling head; their errors' loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from jaxrl_rollouts.networks import MLP, from_linen, uniform
from jaxrl_rollouts.trees import PyTree

from .memory import MemoryConfig, Parts, make_memory


class RecurrentQ(NamedTuple):
    """Functions of one network.

    Attributes:
        init: `key -> Parts`.
        tape: `(params, observations [L, D], starts [L] bool) -> [L, actions]`.
        now: `(params, observation [B, D], carry) -> (values [B, actions], carry)`.
        start: `batch -> carry` of episodes that begin.
    """

    init: Callable[[jax.Array], Parts]
    tape: Callable[[Parts, jax.Array, jax.Array], jax.Array]
    now: Callable[[Parts, jax.Array, PyTree], tuple[jax.Array, PyTree]]
    start: Callable[[int], PyTree]


def dueling(value: jax.Array, advantage: jax.Array) -> jax.Array:
    """`Q = V + A - mean A`: `[..., 1]` and `[..., actions]` to `[..., actions]`."""
    return value + advantage - advantage.mean(-1, keepdims=True)


def error_loss(error: jax.Array, huber: float | None) -> jax.Array:
    """`error^2 / 2`; beyond `huber`, unless it is None, as steep as there. The shape stays."""
    return optax.l2_loss(error) if huber is None else optax.huber_loss(error, delta=huber)


@functools.lru_cache(maxsize=32)
def make_recurrent_q(
    config: MemoryConfig, head_dims: tuple[int, ...], observation_size: int, actions: int
) -> RecurrentQ:
    """Build the functions; `head_dims` are the hidden layers between memory and values.

    Values start near zero: the last layers' weights are within `sqrt(0.01 / width)`.
    """
    memory = make_memory(config, observation_size)
    layers = MLP(
        head_dims,
        (1, actions),
        nn.leaky_relu,
        layer_norm=True,
        bias_init=None,
        head_init=uniform(math.sqrt(0.01 / head_dims[-1])),
        head_bias_init=jax.nn.initializers.zeros,
    )
    heads = from_linen(layers, jax.ShapeDtypeStruct((1, memory.features), jnp.float32))

    def init(key: jax.Array) -> Parts:
        memory_key, head_key = jax.random.split(key)
        return Parts(memory.init(memory_key), heads.init(head_key))

    def tape(params: Parts, observations: jax.Array, starts: jax.Array) -> jax.Array:
        features, _ = memory.scan(params.memory, observations, starts)
        return dueling(*heads.apply(params.head, features))

    def now(params: Parts, observation: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        features, carry = memory.step(params.memory, carry, observation)
        return dueling(*heads.apply(params.head, features)), carry

    return RecurrentQ(init, tape, now, memory.start)

"""Flow policies for SAC: a few Euler steps from normal noise to an action, with noise on the way.

a_0 ~ N(0, I),  a_{k+1} = a_k + v(s, a_k, t_k) / K + sigma(s) xi_k,  t_k = k / K,  action tanh(a_K)

The density of the action is intractable, that of the path is not, and SAC takes it in its place:

log p = log N(a_0; 0, I) + sum_k log N(a_{k+1}; a_k + v / K, sigma^2) - sum log(1 - tanh(a_K)^2)

SAC Flow (Zhang et al. 2025, arXiv:2509.25756): `plain`, the velocity is a network; `gated` (their
Flow-G), v = z (h - a) with a gate z in (0, 1) and a candidate h. Drawn by reparameterisation the
first two terms see sigma and no velocity: entropy alone keeps no modes apart.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws
from jaxrl_rollouts.networks import MLP, Network, from_linen, uniform
from jaxrl_rollouts.trees import PyTree

from .actors import LOG_STD_RANGE, Actor, ActorConfig, inputs

OPEN = 5.0  # bias of the gate at the start: almost open
WAVES = 4  # of the time
# of a normal variable of variance 1
NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)

Velocity = Callable[[jax.Array, jax.Array], jax.Array]


class FlowNets(NamedTuple):
    """Networks of one configuration; `field` is the velocity, or the candidate of a gated flow."""

    config: ActorConfig
    action_size: int
    field: Network
    gate: Network | None
    noise: Network


def make_flow_actor(
    config: ActorConfig, hidden: Sequence[int], observation_size: int, action_size: int
) -> Actor:
    """A flow as SAC's policy."""
    nets = make_nets(config, hidden, observation_size, action_size)
    return Actor(
        functools.partial(init, nets),
        functools.partial(sample, nets),
        functools.partial(greedy, nets),
        path_entropy(config.steps, config.log_std, action_size),
    )


def make_nets(
    config: ActorConfig, hidden: Sequence[int], observation_size: int, action_size: int
) -> FlowNets:
    """Small heads, so that a fresh velocity (candidate) is near 0 and log sigma near -1.5."""
    (s,) = inputs(observation_size)
    head: dict[str, Any] = {"head_init": uniform(1e-3), "head_bias_init": uniform(1e-3)}
    shut = jax.nn.initializers.zeros
    bias = jax.nn.initializers.constant(OPEN)
    gate = make_field(hidden, observation_size, action_size, head_init=shut, head_bias_init=bias)
    return FlowNets(
        config,
        action_size,
        make_field(hidden, observation_size, action_size, **head),
        gate if config.kind == "gated" else None,
        from_linen(MLP(tuple(hidden), (action_size,), **head), s),
    )


def make_field(
    hidden: Sequence[int],
    observation_size: int,
    action_size: int,
    activation: Callable[[jax.Array], jax.Array] = nn.silu,
    **inits: Any,
) -> Network:
    """`(observations, actions, waves of the time) -> [..., A]`; see `field`."""
    example = inputs(observation_size, action_size, 1 + 2 * WAVES)
    return from_linen(MLP(tuple(hidden), (action_size,), activation=activation, **inits), *example)


def path_entropy(steps: int, log_std: float, action_size: int) -> float:
    """`A ((K + 1) h + K log sigma)`, h = 1.419, of a path before the tanh whose noise is sigma."""
    return action_size * ((steps + 1) * NORMAL_ENTROPY + steps * log_std)


def init(nets: FlowNets, key: jax.Array) -> PyTree:
    """Fresh parameters: `field`, `noise` and, where there is one, `gate`."""
    keys = jax.random.split(key, 3)
    params = {"field": nets.field.init(keys[0]), "noise": nets.noise.init(keys[1])}
    return params if nets.gate is None else params | {"gate": nets.gate.init(keys[2])}


def field(
    network: Network,
    params: PyTree,
    observations: jax.Array,
    actions: jax.Array,
    time: jax.Array,
) -> jax.Array:
    """A network of observations, actions and the time (a scalar or `[...]`), `[..., A]`."""
    time = jnp.broadcast_to(time, actions.shape[:-1])[..., None]
    angles = jnp.pi * time * jnp.arange(1, WAVES + 1)
    waves = jnp.concatenate([time, jnp.sin(angles), jnp.cos(angles)], -1)
    return network.apply(params, observations, actions, waves)


def velocity(
    nets: FlowNets, params: PyTree, observations: jax.Array, actions: jax.Array, time: jax.Array
) -> jax.Array:
    """`v(s, a, t)`, `[..., A]`: the network, or `z (h - a)` of a gated flow."""
    out = field(nets.field, params["field"], observations, actions, time)
    if nets.gate is None:
        return out
    gate = jax.nn.sigmoid(field(nets.gate, params["gate"], observations, actions, time))
    return gate * (out - actions)


def follow(velocity: Velocity, start: jax.Array, kicks: jax.Array) -> jax.Array:
    """Euler's path `[K + 1, ..., A]` from `start` with a kick `[K, ..., A]` after every step."""
    steps = kicks.shape[0]

    def step(action: jax.Array, at: tuple) -> tuple[jax.Array, jax.Array]:
        time, kick = at
        action = action + velocity(action, time) / steps + kick
        return action, action

    rest = jax.lax.scan(step, start, (jnp.arange(steps) / steps, kicks))[1]
    return jnp.concatenate([start[None], rest])


def log_std(nets: FlowNets, params: PyTree, observations: jax.Array) -> jax.Array:
    """`log sigma(s)`, `[..., A]`, kept within its range by a tanh."""
    low, high = LOG_STD_RANGE
    return low + 0.5 * (high - low) * (1.0 + jnp.tanh(nets.noise.apply(params, observations)))


def path(
    nets: FlowNets, params: PyTree, key: jax.Array, observations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A path before the tanh, `[K + 1, ..., A]`, and its log-density `[...]`."""
    steps, shape = nets.config.steps, (*observations.shape[:-1], nets.action_size)
    noise = draws.normal(key, (steps + 1, *shape))
    log_sigma = log_std(nets, params["noise"], observations)
    moving = functools.partial(velocity, nets, params, observations)
    taken = follow(moving, noise[0], jnp.exp(log_sigma) * noise[1:])
    constant = 0.5 * (steps + 1) * math.log(2.0 * math.pi)
    density = -0.5 * jnp.square(noise).sum(0) - steps * log_sigma - constant
    return taken, density.sum(-1)


def sample(
    nets: FlowNets, params: PyTree, key: jax.Array, observations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions `[..., A]` and the log-densities `[...]` of the paths to them."""
    taken, density = path(nets, params, key, observations)
    action = jnp.tanh(taken[-1])
    return action, density - jnp.log(1.0 - jnp.square(action) + 1e-6).sum(-1)


def greedy(nets: FlowNets, params: PyTree, observations: jax.Array) -> jax.Array:
    """Where the flow takes a_0 = 0 without noise; with several modes that may be none of them."""
    start = jnp.zeros((*observations.shape[:-1], nets.action_size))
    moving = functools.partial(velocity, nets, params, observations)
    return jnp.tanh(follow(moving, start, jnp.zeros((nets.config.steps, *start.shape)))[-1])

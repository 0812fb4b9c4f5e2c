"""SAC's policies: a tanh-squashed normal, or a flow.

`make_sac` uses only the functions of an `Actor`, so methods work with either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.trees import PyTree

# How the change of variables of the tanh is computed: `exact`, or with `offset` in the logarithm.
Density = Literal["exact", "offset"]
LOG_STD_RANGE = (-5.0, 2.0)
INSIDE = 0.999  # where logged actions at a bound are taken to lie: the tanh never reaches it


def inputs(*sizes: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    """One row of a network's inputs, of observations and actions say."""
    return tuple(jax.ShapeDtypeStruct((1, size), jnp.float32) for size in sizes)


@dataclass(frozen=True)
class ActorConfig:
    """Kind of policy; its networks have the agent's widths. See `flow_actor` for the flows.

    Attributes:
        kind: a tanh-squashed normal (`gaussian`), a flow whose network is its velocity (`plain`),
            or a flow that a gate pulls towards a candidate (`gated`).
        steps: K, Euler steps of a flow.
        log_std: log standard deviation of a flow's step that defines the default target entropy,
            if the agent's `target_entropy` is None.
        density: density of the `gaussian`: with SAC's `offset`, or `exact`; see `log_slope`.
    """

    kind: Literal["gaussian", "plain", "gated"] = "gaussian"
    steps: int = positive(4)
    log_std: float = number(-1.77, least=LOG_STD_RANGE[0], most=LOG_STD_RANGE[1])
    density: Density = "offset"


class Actor(NamedTuple):
    """A stochastic policy that SAC can train: functions of its parameters.

    Attributes:
        init: `key -> params`.
        sample: `(params, key, observations [..., S]) -> (actions [..., A], log-densities [...])`,
            by reparameterisation.
        greedy: `(params, observations [..., S]) -> actions [..., A]`, without noise.
        entropy: default target entropy.
        heads: `(params, observations [..., S]) -> (mean, log_std)` before the tanh, `[..., A]`
            each; None where it is no normal.
    """

    init: Callable[[jax.Array], PyTree]
    sample: Callable[[PyTree, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    greedy: Callable[[PyTree, jax.Array], jax.Array]
    entropy: float
    heads: Callable[[PyTree, jax.Array], tuple[jax.Array, jax.Array]] | None = None


def gaussian_actor(network: Network, action_size: int, density: Density = "offset") -> Actor:
    """The tanh-squashed normal of a network with two heads of `A`; its target entropy is `-A`."""

    def heads(params: PyTree, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = network.apply(params, observations)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def sample(
        params: PyTree, key: jax.Array, observations: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return sample_and_log_prob(key, *heads(params, observations), density)

    def greedy(params: PyTree, observations: jax.Array) -> jax.Array:
        return mode(heads(params, observations)[0])

    return Actor(network.init, sample, greedy, -float(action_size), heads)


def sample_and_log_prob(
    key: jax.Array, mean: jax.Array, log_std: jax.Array, density: Density = "offset"
) -> tuple[jax.Array, jax.Array]:
    """Sample actions in (-1, 1) by reparameterisation, with their log-density.

    Args:
        mean, log_std: `[..., A]` of the normal before the tanh.

    Returns:
        Actions `[..., A]` and log-densities `[...]`, summed over action dimensions.
    """
    noise = draws.normal(key, mean.shape)
    before = mean + jnp.exp(log_std) * noise
    action = jnp.tanh(before)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return action, (log_normal - log_slope(before, action, density)).sum(-1)


def log_prob(
    action: jax.Array, mean: jax.Array, log_std: jax.Array, density: Density = "offset"
) -> jax.Array:
    """Log-density of actions strictly inside (-1, 1); shapes as above."""
    before = jnp.arctanh(action)
    noise = (before - mean) * jnp.exp(-log_std)
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi)
    return (log_normal - log_slope(before, action, density)).sum(-1)


def log_slope(before: jax.Array, action: jax.Array, density: Density) -> jax.Array:
    """Logarithm of the tanh's slope, `log(1 - tanh(x)^2)`, elementwise.

    `exact` is `2 (log 2 - x - softplus(-2 x))` (NEUBAY's code, by distrax). `offset` is
    `log(1 - tanh(x)^2 + 1e-6)` (SAC's public implementations): it is at least -13.8, and its
    gradient vanishes where the policy saturates.
    """
    if density == "exact":
        return 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    return jnp.log(1.0 - jnp.square(action) + 1e-6)


def mode(mean: jax.Array) -> jax.Array:
    """The deterministic action used in evaluation: tanh of the mean."""
    return jnp.tanh(mean)

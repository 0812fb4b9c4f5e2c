"""Group normalisation with its affine map in one function, differentiated by hand.

jax takes the gradients of mean, variance, gain and bias apart, each a pass over the field; they
need two sums over space. On a CPU that makes a training step of a dilated ResNet 1.5 times as fast.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

EPSILON = 1e-5  # torch's


def _over_groups(values: jax.Array, groups: int) -> jax.Array:
    """Means `[..., C]` of the channels of each group, repeated for each of them."""
    size = values.shape[-1] // groups
    means = values.reshape(*values.shape[:-1], groups, size).mean(-1)
    return jnp.repeat(means, size, -1)


def _standardised(x: jax.Array, groups: int) -> tuple[jax.Array, jax.Array]:
    """`x` with mean zero and variance one within groups, and what it was multiplied with `[C]`."""
    mean = _over_groups(x.mean(-2), groups)
    square = _over_groups(jnp.square(x).mean(-2), groups)
    rate = jax.lax.rsqrt(jnp.maximum(square - jnp.square(mean), 0.0) + EPSILON)
    return (x - mean) * rate, rate


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalise(x: jax.Array, gain: jax.Array, bias: jax.Array, groups: int = 1) -> jax.Array:
    """Group normalisation of `x` `[N, C]`, then `gain * x + bias` (`[C]` each).

    Statistics are over space and the channels of a group. Reverse mode only: for `jvp`,
    `linearize` or `jacfwd` of a network use `jacrev`.
    """
    return _standardised(x, groups)[0] * gain + bias


def _forward(x: jax.Array, gain: jax.Array, bias: jax.Array, groups: int) -> tuple:
    standard, rate = _standardised(x, groups)
    return standard * gain + bias, (standard, rate, gain)


def _backward(groups: int, kept: tuple, above: jax.Array) -> tuple[jax.Array, ...]:
    standard, rate, gain = kept
    points = above.shape[-2]
    on_gain, on_bias = (above * standard).sum(-2), above.sum(-2)
    constant = _over_groups(on_bias * gain, groups) / points
    linear = _over_groups(on_gain * gain, groups) / points
    return (above * gain - constant - standard * linear) * rate, on_gain, on_bias


normalise.defvjp(_forward, _backward)


class GroupNorm(nn.Module):
    """`normalise` with learned gain and bias, and room for somebody else's (`[C]` each).

    With `scale` and `shift` the result is `(1 + scale) * normalised + shift`.
    """

    groups: int = 1

    @nn.compact
    def __call__(
        self, x: jax.Array, scale: jax.Array | None = None, shift: jax.Array | None = None
    ) -> jax.Array:
        channels = (x.shape[-1],)
        gain = self.param("scale", nn.initializers.ones, channels)
        bias = self.param("bias", nn.initializers.zeros, channels)
        if scale is not None and shift is not None:
            gain, bias = gain * (1.0 + scale), bias * (1.0 + scale) + shift
        return normalise(x, gain, bias, self.groups)

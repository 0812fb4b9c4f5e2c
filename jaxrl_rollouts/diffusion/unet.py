"""The denoiser of trajectories: a 1-D U-Net over time, of plain convolutions.

Policy-guided diffusion's (Jackson et al. 2024), as its public code has it: no attention and no
residual connections inside a block. Two things differ by default. `c_noise` spans only -1.6 to 1.1,
which its slow sines barely resolve, so it is multiplied by `time_scale` first (1 is theirs). And
groups are normalised over the whole window, where that code, which hands its layers one trajectory
without a batch axis, normalises every step by itself (`norm_over="step"` is theirs).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ..configs import check, positive
from ..errors import ConfigError
from ..group_norm import GroupNorm
from ..networks import Dense, Network, from_linen, normal_fan_in
from .networks import DTYPES, Extra


@dataclass(frozen=True)
class Unet:
    """Sizes; the published network has 1024 features (178 million parameters).

    Attributes:
        features: features of the first block; each further block doubles them. A multiple of 8.
        blocks: blocks of the encoder; the decoder has one fewer.
        time_scale: `c_noise` is multiplied by it before its sines are taken; 1 as published.
        norm_over: group statistics are over all steps of a `window`, or over each `step` alone, as
            published.
        dtype: data type of the body's arithmetic; parameters, noise and output stay float32.
        convolution: `native`, or `shift`: shifted copies side by side and one matrix product,
            which on CPU is hundreds of times faster inside a scan; `auto` takes the latter there.
    """

    features: int = positive(32)
    blocks: int = positive(3)
    time_scale: float = 100.0
    norm_over: Literal["window", "step"] = "window"
    dtype: Literal["float32", "bfloat16"] = "float32"
    convolution: Literal["auto", "native", "shift"] = "auto"

    def validate(self) -> None:
        if self.features % 8:
            raise ConfigError("features", self.features, "a multiple of 8, the groups")


def shift_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[B, L, C]` by `[k, C, D]` to `[B, L, D]`, zero-padded as SAME is (more at the end)."""
    width, length = kernel.shape[0], x.shape[1]
    before = (width - 1) // 2
    padded = jnp.pad(x, ((0, 0), (before, width - 1 - before), (0, 0)))
    parts = [padded[:, i : i + length] for i in range(width)]
    return jnp.concatenate(parts, -1) @ kernel.reshape(-1, kernel.shape[-1])


def native_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The same by XLA's convolution."""
    numbers = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=numbers)


class Convolution(nn.Module):
    """Over time, stride one, SAME padding; the parameters do not depend on how it is computed."""

    out: int
    width: int
    how: Callable[[jax.Array, jax.Array], jax.Array]
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (self.width, x.shape[-1], self.out)
        kernel = self.param("kernel", normal_fan_in(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.out,), jnp.float32)
        return self.how(x.astype(self.dtype), kernel.astype(self.dtype)) + bias.astype(self.dtype)


def halve(x: jax.Array) -> jax.Array:
    """The larger of two neighbours over time; the last of an odd number stands for itself."""
    padded = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0)), mode="edge")
    # Not a reduction: the gradient of `max` divides by how many entries equal the largest, which
    # a compiler may round to none.
    return jnp.maximum(padded[:, ::2], padded[:, 1::2])


def double(x: jax.Array, length: int) -> jax.Array:
    """Each step twice, which undoes `halve` where neighbours are equal; `length` are kept."""
    return jnp.repeat(x, 2, axis=1)[:, :length]


class TemporalUnet(nn.Module):
    """See the module; `(x [B, L, C], c_noise [B], *of Extra) -> [B, L, C]`."""

    config: Unet

    @nn.compact
    def __call__(self, x: jax.Array, c_noise: jax.Array, *extra: jax.Array) -> jax.Array:
        c, dtype = self.config, DTYPES[self.config.dtype]
        native = c.convolution == "native"
        if c.convolution == "auto":
            native = jax.default_backend() != "cpu"
        how = native_convolution if native else shift_convolution
        time = self._embed(c_noise)
        if extra:
            time = time + Extra(c.features, name="extra")(*extra)
        time = nn.silu(time)

        def convolve(x: jax.Array, out: int, width: int = 3) -> jax.Array:
            return Convolution(out, width, how, dtype)(x)

        def settle(x: jax.Array) -> jax.Array:
            if c.norm_over == "step":  # one place to normalise over
                return nn.relu(GroupNorm(8, epsilon=1e-6)(x[:, :, None])[:, :, 0])
            return nn.relu(GroupNorm(8, epsilon=1e-6)(x))

        def timed(x: jax.Array) -> jax.Array:
            return settle(x + Dense(x.shape[-1], dtype=dtype)(time)[:, None])

        channels, skips, h = x.shape[-1], [], x
        for i in range(c.blocks):
            wide = c.features * 2**i
            h = settle(convolve(timed(convolve(h, wide)), wide))
            skips.append(h)
            if i < c.blocks - 1:
                h = halve(h)
        for i in range(c.blocks - 2, -1, -1):
            wide, skip = c.features * 2**i, skips[i]
            h = timed(convolve(double(h, skip.shape[1]), wide, 2))
            h = jnp.concatenate([skip, h], -1)
            h = settle(convolve(settle(convolve(h, wide)), wide))
        return Convolution(channels, 1, shift_convolution, jnp.float32)(h)

    def _embed(self, c_noise: jax.Array) -> jax.Array:
        """`[B]` to `[B, features]` by sines from frequency 1 down to 1/10000."""
        wide, count = self.config.features, max(self.config.features // 8, 1)
        rates = jnp.asarray(np.geomspace(1.0, 1e-4, count), jnp.float32)
        angle = self.config.time_scale * c_noise[:, None] * rates
        sines = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
        return Dense(wide)(nn.silu(Dense(wide)(sines)))


@functools.lru_cache(maxsize=32)
def make_temporal_unet(
    config: Unet,
    length: int,
    channels: int,
    *,
    interval: bool = False,
    conditions: int = 0,
) -> Network:
    """A raw network for `make_denoiser` on `[B, length, channels]` windows.

    Equal arguments give the same one. It would run at other lengths too, on samples it was not
    trained for; it is built for one. `interval` as for `make_residual_mlp`; with conditions the
    network also takes `[B, conditions + 1]`, the last of them 1 where they are known.

    Raises:
        ConfigError: a setting is out of range, or the windows are too short for the blocks.
    """
    check(config)
    least = 2 ** (config.blocks - 1)
    if length < least:
        raise ConfigError("length", length, f"at least {least}, which {config.blocks} blocks halve")
    shapes: list[tuple[int, ...]] = [(1, length, channels), (1,)]
    shapes += [(1,)] if interval or conditions else []
    shapes += [(1, conditions + 1)] if conditions else []
    network = from_linen(
        TemporalUnet(config), *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    )

    def apply(params: Any, x: jax.Array, c_noise: jax.Array, *extra: jax.Array) -> jax.Array:
        if x.shape[1:] != shapes[0][1:]:
            raise ValueError(f"windows: found {x.shape[1:]}, expected {shapes[0][1:]}")
        return network.apply(params, x, c_noise, *extra)

    return Network(network.init, apply)

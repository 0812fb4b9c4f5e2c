"""ConvNeXt U-Net, The Well's strongest baseline (Ohana et al. 2024, arXiv 2412.00568), any axes.

As its code has it: skips are taken before the blocks of a stage, the finest one is not used, and
the norm where the grid is halved or doubled divides by the length over channels. Its convolutions
are padded with zeros; here they go on as the file's boundaries say, unless `zero_padding`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork, FieldShape
from .layers import (
    CIRCLE,
    Embedding,
    Form,
    Padding,
    PeriodicConv,
    check_embedding,
    check_powers,
    field_network,
    gelu,
    paddings,
    torch_default,
    zeros,
)
from .mixers import Depthwise

WIDTH = 7  # of the depthwise convolutions


@dataclass(frozen=True)
class ConvNext:
    """The Well's: `width` 42, four stages of two blocks, 18.6 million parameters.

    Attributes:
        width: channels at the finest grid, doubled at every stage.
        stages: how often the grid is halved.
        blocks: at each stage, on the way down and on the way up.
        embedding: numbers for the refinement's index and each condition, which every block adds;
            0 leaves both out, as The Well does.
        zero_padding: zeros beyond the ends of every axis, as The Well has them.
        form: of the convolutions: `conv`, `matmul` (shifted products) or `auto`.
    """

    width: int = positive(16)
    stages: int = positive(3)
    blocks: int = positive(1)
    embedding: int = 16
    zero_padding: bool = False
    form: Form = "auto"
    on_other_grids: ClassVar[str] = "spacing"  # what stays; see `TrainedEmulator.on_grid`

    def validate(self) -> None:
        check_embedding(self.embedding)

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The network on fields of a shape.

        Raises:
            ConfigError: a setting is out of range, an axis cannot be halved often enough, or there
                are conditions and no embedding that shows them.
        """
        check(self)
        check_powers(shape.grid, self.stages)
        check_embedding(self.embedding, shape.conditions)
        deepest = min(shape.grid) // 2**self.stages
        if deepest < WIDTH // 2:
            expected = f"at least {WIDTH // 2 * 2**self.stages} with {self.stages} stages"
            raise ConfigError("points", min(shape.grid), expected, "take fewer stages")
        axes = len(shape.grid)
        zero: tuple[Padding, ...] = ("zero",) * axes
        padding = zero if self.zero_padding else paddings(shape.boundaries, axes)
        return field_network(ConvNextNet(self, shape.outputs, padding), shape)


class ChannelNorm(nn.Module):
    """`w x / max(|x|_2, 1e-6)` with the length over channels, `[..., C] -> [..., C]`."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        weight = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        # The root of a sum of squares has no gradient at 0.
        length = jnp.sqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), 1e-12))
        return weight * x / length


class Block(nn.Module):
    """`x + gamma W2 gelu(W1 norm(depthwise(x)))`, `[*N, C] -> [*N, C]`; gamma begins at 1e-6."""

    padding: tuple[Padding, ...] = CIRCLE
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array, embedding: jax.Array | None) -> jax.Array:
        channels = x.shape[-1]
        h = Depthwise(WIDTH, self.padding, form=self.form)(x)
        if embedding is not None:
            h = h + Dense(channels)(embedding)
        h = nn.LayerNorm(epsilon=1e-6)(h)
        h = gelu(Dense(4 * channels)(h))
        h = Dense(channels)(h)
        gamma = self.param("gamma", nn.initializers.constant(1e-6), (channels,))
        return x + gamma * h


def halved(x: jax.Array, axes: int) -> jax.Array:
    """Each `2^axes` neighbours beside each other: `[*N, C] -> [*N / 2, 2^axes C]`."""
    space, channels = x.shape[:axes], x.shape[-1]
    split = x.reshape(*(part for n in space for part in (n // 2, 2)), channels)
    order = (*range(0, 2 * axes, 2), *range(1, 2 * axes, 2), 2 * axes)
    return split.transpose(order).reshape(*(n // 2 for n in space), -1)


def doubled(x: jax.Array, axes: int) -> jax.Array:
    """The inverse of `halved`: `[*N, 2^axes C] -> [*2N, C]`."""
    space, channels = x.shape[:axes], x.shape[-1] // 2**axes
    split = x.reshape(*space, *(2,) * axes, channels)
    order = (*(at for axis in range(axes) for at in (axis, axes + axis)), 2 * axes)
    return split.transpose(order).reshape(*(2 * n for n in space), channels)


class ConvNextNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: ConvNext
    channels: int
    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, axes = self.config, len(self.padding)
        conv = functools.partial(PeriodicConv, padding=self.padding, form=c.form)
        size = c.embedding
        embedding = Embedding(size, 4 * size)(index, conditions) if size else None

        def blocks(x: jax.Array, count: int) -> jax.Array:
            for _ in range(count):
                x = Block(self.padding, c.form)(x, embedding)
            return x

        x, skips = conv(c.width)(x), []
        for stage in range(c.stages):
            skips.append(x)
            x = ChannelNorm()(blocks(x, c.blocks))
            x = Dense(2 * c.width * 2**stage)(halved(x, axes))
        x = blocks(x, 1)
        for stage in range(c.stages, 0, -1):
            width = c.width * 2**stage
            if stage < c.stages:
                x = Dense(width)(jnp.concatenate([x, skips[stage]], -1))
            x = ChannelNorm()(blocks(x, c.blocks))
            x = DoubledDense(width // 2, axes)(x)
        return conv(self.channels, kernel_init=zeros)(x)


class DoubledDense(nn.Module):
    """torch's `ConvTranspose(C, features, 2, 2)`: one bias for all the points of a cell."""

    features: int
    axes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", torch_default, (x.shape[-1], 2**self.axes * self.features))
        return doubled(x @ kernel, self.axes) + self.param("bias", zeros, (self.features,))

"""The "modern U-Net" of PDEArena (Gupta & Brandstetter 2022) over any axes; `Unetmod-1d-64` on one.

PDEArena pads its convolutions with zeros or, in its Kuramoto-Sivashinsky configuration, around
a circle, and its up-sampling with zeros in any case; here both go around on a periodic axis, so
that a shifted field gives a shifted answer. `zero_upsampling` does as that configuration does.
Its attention takes the softmax over the asking points; here it is over those that are attended to.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork, FieldShape
from .layers import (
    CIRCLE,
    Embedding,
    Form,
    Gelu,
    Padding,
    PeriodicConv,
    PeriodicUpsample,
    check_powers,
    field_network,
    gelu_of,
    paddings,
    zeros,
)


@dataclass(frozen=True)
class Unet:
    """Widths are `hidden` times the running product of `multipliers`, halving the grid between.

    The default has 53.9 million parameters with two conditions, as the paper's has.

    Attributes:
        hidden: channels at the finest level.
        multipliers: of the channels, level by level.
        blocks: residual blocks at each level.
        form: of the convolutions: `conv`, `matmul` or `auto`, as of the `Resnet`.
        zero_upsampling: zeros beyond the ends where the grid is doubled, as in PDEArena; with the
            weights of its circular networks (`unet_from_pdearena`) it computes what those do.
        attention: every point of the coarsest grid attends to all of it, between the two blocks in
            the middle (PDEArena's `mid_attn`).
        gelu: exact, by `erf`, or its approximation by `tanh`.
    """

    hidden: int = 64
    multipliers: tuple[int, ...] = number(
        (1, 2, 2, 4), least=1, entries=1, expected="at least one, each at least 1"
    )
    blocks: int = positive(2)
    form: Form = "auto"
    zero_upsampling: bool = False
    attention: bool = False
    gelu: Gelu = "erf"
    on_other_grids: ClassVar[str] = "spacing"  # what stays; see `TrainedEmulator.on_grid`

    def validate(self) -> None:
        if self.hidden < 8 or self.hidden % 8:
            raise ConfigError("hidden", self.hidden, "a positive multiple of 8")

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The U-Net on fields of a shape.

        Raises:
            ConfigError: a setting is out of range, or an axis cannot be halved often enough.
        """
        check(self)
        check_powers(shape.grid, len(self.multipliers) - 1)
        padding = paddings(shape.boundaries, len(shape.grid))
        return field_network(UnetNet(self, shape.outputs, padding), shape)


class Block(nn.Module):
    """Pre-activation residual block with the embedding added between its convolutions."""

    features: int
    form: Form
    padding: tuple[Padding, ...] = CIRCLE
    gelu: Gelu = "erf"

    @nn.compact
    def __call__(self, x: jax.Array, embedding: jax.Array) -> jax.Array:
        norm, gelu = functools.partial(GroupNorm, axes=len(self.padding)), gelu_of(self.gelu)
        conv = functools.partial(PeriodicConv, padding=self.padding, form=self.form)
        h = conv(self.features)(gelu(norm()(x)))
        h = h + Dense(self.features)(embedding)
        h = gelu(norm()(h))
        h = conv(self.features, kernel_init=zeros)(h)
        return h + (x if x.shape[-1] == self.features else Dense(self.features)(x))


class Attention(nn.Module):
    """`x + W softmax(Q K^T / sqrt(C)) V` over all points, one head: `[*N, C] -> [*N, C]`."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-1]
        points = x.reshape(-1, channels)
        query, key, value = jnp.split(Dense(3 * channels)(points), 3, -1)
        weights = jax.nn.softmax(query @ key.T / channels**0.5, -1)
        return x + Dense(channels)(weights @ value).reshape(x.shape)


class UnetNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: Unet
    channels: int
    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, padding = self.config, self.padding
        conv = functools.partial(PeriodicConv, padding=padding, form=c.form)
        block = functools.partial(Block, form=c.form, padding=padding, gelu=c.gelu)
        beyond: tuple[Padding, ...] = ("zero",) * len(padding) if c.zero_upsampling else padding
        embedding = Embedding(c.hidden, 4 * c.hidden, c.gelu)(index, conditions)
        x = conv(c.hidden)(x)
        skips, width, deepest = [x], c.hidden, len(c.multipliers) - 1
        for level, factor in enumerate(c.multipliers):
            width *= factor
            for _ in range(c.blocks):
                x = block(width)(x, embedding)
                skips.append(x)
            if level < deepest:
                x = conv(width, stride=2)(x)
                skips.append(x)
        x = block(width)(x, embedding)
        x = Attention()(x) if c.attention else x
        x = block(width)(x, embedding)
        for level in range(deepest, -1, -1):
            for _ in range(c.blocks):
                x = block(width)(jnp.concatenate([x, skips.pop()], -1), embedding)
            width //= c.multipliers[level]
            x = block(width)(jnp.concatenate([x, skips.pop()], -1), embedding)
            if level:
                x = PeriodicUpsample(beyond)(x)
        x = gelu_of(c.gelu)(GroupNorm(8, axes=len(padding))(x))
        return conv(self.channels, kernel_init=zeros)(x)

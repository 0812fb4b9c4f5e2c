"""The 1-D "modern U-Net" of PDEArena (Gupta & Brandstetter 2022), periodic; `Unetmod-1d-64`."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork
from .layers import (
    Embedding,
    Form,
    PeriodicConv,
    PeriodicUpsample,
    check_powers,
    field_network,
    gelu,
    zeros,
)


@dataclass(frozen=True)
class UnetConfig:
    """Widths are `hidden` times the running product of `multipliers`, halving the grid between.

    The default has 53.9 million parameters with two conditions, as the paper's has.

    Attributes:
        hidden: channels at the finest level.
        multipliers: of the channels, level by level.
        blocks: residual blocks at each level.
        form: of the convolutions: `conv`, `matmul` or `auto`, as of the `ResnetConfig`.
    """

    hidden: int = 64
    multipliers: tuple[int, ...] = (1, 2, 2, 4)
    blocks: int = 2
    form: Form = "auto"

    def validate(self) -> None:
        if self.hidden < 8 or self.hidden % 8:
            raise ConfigError("hidden", self.hidden, "a positive multiple of 8")
        if not self.multipliers or min(self.multipliers) < 1:
            raise ConfigError("multipliers", self.multipliers, "at least one, each at least 1")
        if self.blocks < 1:
            raise ConfigError("blocks", self.blocks, "at least 1")


class Block(nn.Module):
    """Pre-activation residual block with the embedding added between its convolutions."""

    features: int
    form: Form

    @nn.compact
    def __call__(self, x: jax.Array, embedding: jax.Array) -> jax.Array:
        h = PeriodicConv(self.features, form=self.form)(gelu(GroupNorm()(x)))
        h = h + Dense(self.features)(embedding)
        h = gelu(GroupNorm()(h))
        h = PeriodicConv(self.features, kernel_init=zeros, form=self.form)(h)
        return h + (x if x.shape[-1] == self.features else Dense(self.features)(x))


class Unet(nn.Module):
    """`(x [N, Cin], index, conditions [P]) -> [N, channels]`; zero at initialisation."""

    config: UnetConfig
    channels: int

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, form = self.config, self.config.form
        embedding = Embedding(c.hidden, 4 * c.hidden)(index, conditions)
        x = PeriodicConv(c.hidden, form=form)(x)
        skips, width, deepest = [x], c.hidden, len(c.multipliers) - 1
        for level, factor in enumerate(c.multipliers):
            width *= factor
            for _ in range(c.blocks):
                x = Block(width, form)(x, embedding)
                skips.append(x)
            if level < deepest:
                x = PeriodicConv(width, stride=2, form=form)(x)
                skips.append(x)
        for _ in range(2):
            x = Block(width, form)(x, embedding)
        for level in range(deepest, -1, -1):
            for _ in range(c.blocks):
                x = Block(width, form)(jnp.concatenate([x, skips.pop()], -1), embedding)
            width //= c.multipliers[level]
            x = Block(width, form)(jnp.concatenate([x, skips.pop()], -1), embedding)
            if level:
                x = PeriodicUpsample()(x)
        x = gelu(GroupNorm(8)(x))
        return PeriodicConv(self.channels, kernel_init=zeros, form=form)(x)


def make_unet(
    config: UnetConfig, channels: int, points: int, conditions: int = 0, history: int = 1
) -> FieldNetwork:
    """The U-Net on fields `[channels, points]` with a second input and `conditions` scalars.

    Raises:
        ConfigError: a setting is out of range.
        ValueError: `points` cannot be halved often enough.
    """
    check(config)
    check_powers(points, len(config.multipliers) - 1)
    return field_network(Unet(config, channels), channels, points, conditions, history)

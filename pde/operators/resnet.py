"""Dilated ResNet (Stachenfeld et al. 2022) over any axes, with conditioned normalisation.

No down-sampling: at equal accuracy on Kuramoto-Sivashinsky far smaller than the U-Net, and the one
to take on a CPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import flax.linen as nn
import jax

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
    field_network,
    gelu_of,
    paddings,
    zeros,
)


@dataclass(frozen=True)
class Resnet:
    """`blocks` residual blocks of one convolution per entry of `dilations`.

    Attributes:
        width: channels.
        blocks: residual blocks.
        dilations: of the convolutions of a block, one after the other.
        embedding: size of the embedding of conditions and noise level.
        form: of the convolutions: `conv`, the backend's; `matmul`, a product of shifted copies; or
            `auto`, which takes the latter on CPU.
        gelu: exact, by `erf`, or its approximation by `tanh`.
    """

    width: int = positive(32)
    blocks: int = positive(2)
    dilations: tuple[int, ...] = number(
        (1, 2, 4, 8, 4, 2, 1), least=1, entries=1, expected="at least one, each at least 1"
    )
    embedding: int = positive(64)
    form: Form = "auto"
    gelu: Gelu = "erf"
    on_other_grids: ClassVar[str] = "spacing"  # what stays; see `TrainedEmulator.on_grid`

    def validate(self) -> None:
        if self.embedding % 2:
            raise ConfigError("embedding", self.embedding, "even: half cosines, half sines")

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The dilated ResNet on fields of a shape.

        Raises:
            ConfigError: a setting is out of range; or, when it is used, the widest dilation reaches
                around the grid.
        """
        check(self)
        padding = paddings(shape.boundaries, len(shape.grid))
        return field_network(ResnetNet(self, shape.outputs, padding), shape)


class ResnetNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: Resnet
    channels: int
    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, norm = self.config, functools.partial(GroupNorm, axes=len(self.padding))
        conv = functools.partial(PeriodicConv, padding=self.padding, form=c.form)
        gelu = gelu_of(c.gelu)
        embedding = gelu(Embedding(c.embedding, c.embedding, c.gelu)(index, conditions))
        x = conv(c.width)(x)
        for _ in range(c.blocks):
            h = x
            for dilation in c.dilations:
                scale, shift = Dense(2 * c.width)(embedding).reshape(2, c.width)
                h = gelu(norm()(h, scale, shift))
                h = conv(c.width, dilation=dilation)(h)
            x = x + h
        return conv(self.channels, kernel_init=zeros)(gelu(norm()(x)))

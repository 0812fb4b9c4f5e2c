"""scOT as released with Poseidon (Herde et al. 2024, arXiv 2405.19101), fields of two axes.

Its blocks are those of `Drift` with attention. As released, whatever the boundaries are:
convolutions are padded with zeros, shifted windows do not go around, and the norms see the lead
time alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError

from ..emulator import FieldNetwork, FieldShape
from .drift import Drift, DriftNet
from .layers import Form, Padding, field_network


@dataclass(frozen=True)
class Poseidon:
    """Size T, 20.8 million parameters of four channels.

    B: `width` 96, `depths` (8, 8, 8, 8), 157.7 million. L: `width` 192, as deep, 628.6 million.
    The noised input and the index of a `Refiner` are ignored.

    Attributes:
        width: channels of the first stage, doubled at every stage.
        depths: blocks of each stage, on the way down and again on the way up.
        heads: of the first stage, doubled at every stage.
        window: tokens along each axis of a window.
        patch: points of a patch along each axis.
        skips: ConvNeXt blocks on each skip.
        lead: time of a step, in twentieths of a trajectory over twenty: what the norms see.
        residual_scale: c of the emulator's step `u + c net(u)`, one for all channels or one for
            each: the output `y` of the blocks is then the next field, as released, and the network
            is `(y - u) / c`. (): `y` is the network, as of all others here.
        form: of the convolutions: `conv`, `matmul` or `auto`, as of the `Resnet`.
    """

    width: int = positive(48)
    depths: tuple[int, ...] = (4, 4, 4, 4)
    heads: int = positive(3)
    window: int = number(16, least=2)
    patch: int = positive(4)
    skips: int = number(2, least=0)
    lead: float = 0.05
    residual_scale: tuple[float, ...] = number((), above=0)
    form: Form = "auto"

    def validate(self) -> None:
        if self.width % self.heads:
            raise ConfigError("heads", self.heads, f"a divisor of the width {self.width}")

    @property
    def drift(self) -> Drift:
        """The settings of its blocks."""
        return Drift(
            mixer="attention",
            patch=self.patch,
            dims=tuple(self.width * 2**stage for stage in range(len(self.depths))),
            depths=self.depths,
            skips=self.skips,
            output_conv=True,
            window=self.window,
            head=self.width // self.heads,
            position_hidden=512,
            form=self.form,
        )

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The network on fields of a shape.

        Raises:
            ConfigError: a setting is out of range, or `points` are not of two axes that whole
                patches, stages and windows fill.
        """
        check(self)
        self.drift.make(shape)  # for its errors
        if len(self.residual_scale) not in (0, 1, shape.channels):
            expected = f"none, one, or one for each of {shape.channels} channels"
            raise ConfigError("residual_scale", list(self.residual_scale), expected)
        return field_network(PoseidonNet(self, shape.channels, shape.bundle, shape.history), shape)


class PoseidonNet(nn.Module):
    """`(x [h, w, (H + 1) C], index, conditions [P]) -> [h, w, bundle C]`."""

    config: Poseidon
    channels: int
    bundle: int = 1
    history: int = 1
    padding: tuple[Padding, ...] = ("zero", "zero")

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, seen = self.config, x[..., : self.history * self.channels]
        blocks = DriftNet(c.drift, self.bundle * self.channels, self.padding, c.lead, name="scot")
        y = blocks(seen, index, conditions)
        if not c.residual_scale:
            return y
        frames = y.reshape(*y.shape[:-1], self.bundle, self.channels)
        newest = seen[..., None, -self.channels :]
        return ((frames - newest) / jnp.asarray(c.residual_scale, y.dtype)).reshape(y.shape)

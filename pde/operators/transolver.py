"""Transolver (Wu et al. 2024, arXiv 2402.02366) on grids over any axes: attention between slices.

Points are gathered into few slices by learned weights, slices attend to each other, and what they
found is handed back by the same weights (section 3.2): the cost is linear in the points. As in the
released code for grids, weights and values come from convolutions of width 3. Unlike it, there are
no coordinates among the inputs, and convolutions go around circles: a shift is a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense, orthogonal

from ..emulator import FieldNetwork, FieldShape
from .layers import Embedding, Form, Padding, PeriodicConv, field_network, gelu, paddings, zeros


@dataclass(frozen=True)
class Transolver:
    """`layers` blocks of attention between slices and a pointwise MLP.

    Attributes:
        width: channels, whole heads of them.
        layers: blocks.
        heads: of the attention; each has slices of its own.
        slices: of a head.
        ratio: hidden units of a block's MLP over the width.
        embedding: size of the embedding of conditions and noise level.
        form: of the convolutions: `conv`, `matmul` or `auto`, as of the `Resnet`.
    """

    width: int = positive(64)
    layers: int = positive(4)
    heads: int = positive(4)
    slices: int = positive(32)
    ratio: int = positive(1)
    embedding: int = positive(64)
    form: Form = "auto"
    on_other_grids: ClassVar[str] = "spacing"  # what stays; see `TrainedEmulator.on_grid`

    def validate(self) -> None:
        if self.width % self.heads:
            raise ConfigError("heads", self.heads, f"a divisor of the width {self.width}")
        if self.embedding % 2:
            raise ConfigError("embedding", self.embedding, "even: half cosines, half sines")

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The network on fields of a shape.

        Raises:
            ConfigError: a setting is out of range.
        """
        check(self)
        padding = paddings(shape.boundaries, len(shape.grid))
        return field_network(TransolverNet(self, shape.outputs, padding), shape)


class SliceAttention(nn.Module):
    """Equations 2 to 4: `[*N, d] -> [*N, d]`.

    Slice g of a head holds `z_g = sum_i w_ig v_i / (sum_i w_ig + 1e-5)`, with a point's weights
    `w_i = softmax(W x_i / temperature)`; point i gets `sum_g w_ig z'_g` back.
    """

    heads: int
    slices: int
    padding: tuple[Padding, ...]
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width, space = x.shape[-1], x.shape[:-1]
        size = width // self.heads

        def seen(name: str) -> jax.Array:
            y = PeriodicConv(width, padding=self.padding, form=self.form, name=name)(x)
            return y.reshape(-1, self.heads, size)

        at, values = seen("points"), seen("values")
        start = nn.initializers.constant(0.5)
        temperature = jnp.clip(self.param("temperature", start, (self.heads, 1)), 0.1, 5.0)
        logits = Dense(self.slices, kernel_init=orthogonal(), name="slices")(at)
        weights = jax.nn.softmax(logits / temperature.astype(x.dtype))
        tokens = jnp.einsum("nhg,nhc->hgc", weights, values)
        tokens = tokens / (weights.sum(0)[..., None] + 1e-5)
        query, key, value = (Dense(size, use_bias=False, name=n)(tokens) for n in "qkv")
        mixed = jax.nn.softmax(jnp.einsum("hgc,hkc->hgk", query, key) / size**0.5)
        tokens = jnp.einsum("hgk,hkc->hgc", mixed, value)
        back = jnp.einsum("nhg,hgc->nhc", weights, tokens)
        return Dense(width, name="out")(back.reshape(*space, width))


class TransolverNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: Transolver
    channels: int
    padding: tuple[Padding, ...]

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c = self.config
        hidden = gelu(Dense(2 * c.width)(x))
        x = Dense(c.width)(hidden)
        x = x + Dense(c.width)(gelu(Embedding(c.embedding, c.embedding)(index, conditions)))
        for _ in range(c.layers):
            mix = SliceAttention(c.heads, c.slices, self.padding, c.form)
            x = x + mix(nn.LayerNorm(1e-5)(x))
            hidden = gelu(Dense(c.ratio * c.width)(nn.LayerNorm(1e-5)(x)))
            x = x + Dense(c.width)(hidden)
        return Dense(self.channels, kernel_init=zeros)(nn.LayerNorm(1e-5)(x))

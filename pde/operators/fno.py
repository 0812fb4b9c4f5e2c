"""Fourier neural operator (Li et al. 2021) over any axes, conditioned on the index.

With `rank` it is the tensorised one (TFNO, Kossaifi et al. 2023, arXiv 2310.00120); `lifting`,
`channel_mlp` and `coordinates` are parts of the networks of `neuraloperator`.

A transform takes every axis for a circle; along one that is none the fields are continued before
the first layer, which is cut away after the last, as in the authors' code, by an eighth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork, FieldShape
from ..spectral import gather_modes, scatter_modes
from .layers import (
    CIRCLE,
    Embedding,
    Gelu,
    Padding,
    at_least_float32,
    check_embedding,
    field_network,
    gelu_of,
    paddings,
    zeros,
)


@dataclass(frozen=True)
class Fno:
    """`layers` spectral layers of `width` channels that mix the lowest `modes` wavenumbers.

    Attributes:
        width: channels.
        layers: Fourier layers.
        modes: Fourier modes that a layer keeps along every axis, or along each; weights grow with
            their product. None: 32 on one axis, 12 on more.
        embedding: size of the embedding of conditions and noise level; 0 leaves both out.
        rank: weights of a spectral layer in Tucker form, over those of the full matrices (TFNO);
            None: full.
        lifting: hidden channels of a two-layer lifting; 0: one matrix.
        channel_mlp: hidden channels over `width` of an MLP after each layer; 0: none.
        coordinates: whether the network sees where each point is, in [0, 1) along every axis; a
            shifted field then no longer gives a shifted answer.
        gelu: exact, by `erf`, or its approximation by `tanh`.
    """

    width: int = positive(64)
    layers: int = positive(4)
    modes: int | tuple[int, ...] | None = positive(None)
    embedding: int = 64
    rank: float | None = number(None, above=0, most=1)
    lifting: int = number(0, least=0)
    channel_mlp: float = number(0.0, least=0)
    coordinates: bool = False
    gelu: Gelu = "erf"
    on_other_grids: ClassVar[str] = "extent"  # what stays; see `TrainedEmulator.on_grid`

    def validate(self) -> None:
        check_embedding(self.embedding)

    def kept(self, axes: int) -> tuple[int, ...]:
        """Modes along each of so many axes."""
        modes = self.modes or (32 if axes == 1 else 12)
        return modes if isinstance(modes, tuple) else (modes,) * axes

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The operator on fields of a shape.

        Raises:
            ConfigError: a setting is out of range, or more modes than an axis has.
        """
        check(self)
        check_embedding(self.embedding, shape.conditions)
        grid = shape.grid
        if isinstance(self.modes, tuple) and len(self.modes) != len(grid):
            raise ConfigError("modes", self.modes, f"one number, or one for each of {len(grid)}")
        padding = paddings(shape.boundaries, len(grid))
        wide = [n + more for n, more in zip(grid, continued(grid, padding), strict=True)]
        most = [*(n // 2 for n in wide[:-1]), wide[-1] // 2 + 1]
        if isinstance(self.modes, int):
            most = [min(most)] * len(grid)
        kept = self.kept(len(grid))
        if self.modes is not None and any(m > n for m, n in zip(kept, most, strict=True)):
            limits = ", ".join(dict.fromkeys(map(str, most)))
            on = " x ".join(map(str, grid))
            raise ConfigError("modes", self.modes, f"at most {limits} on {on} points")
        return field_network(FnoNet(self, shape.outputs, padding), shape)


class SpectralConv(nn.Module):
    """A matrix per wavenumber below `modes`, nothing above: `[*N, C] -> [*N, features]`.

    Of a real field's transform the last axis has no negative wavenumbers; along the others they
    follow the positive ones, as in the transform itself: `[2 m_1, ..., m_last, C, features]`.
    With `rank` those weights are a core times a matrix along each of their axes.
    """

    features: int
    modes: tuple[int, ...]
    rank: float | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        *space, channels = x.shape
        axes = tuple(range(len(space)))

        *others, last = self.modes
        weight = self._weight((*(2 * m for m in others), last, channels, self.features))
        low = jnp.fft.rfftn(at_least_float32(x), axes=axes)[..., :last, :]
        weight = weight[..., : low.shape[-2], :, :]
        for axis, points in enumerate(space[:-1]):
            keep = min(others[axis], points // 2)
            low, weight = gather_modes(low, keep, axis), gather_modes(weight, keep, axis)
        mixed = _mixed(low, weight)
        for axis, points in enumerate(space[:-1]):
            mixed = scatter_modes(mixed, points, axis)
        return jnp.fft.irfftn(mixed, s=space, axes=axes).astype(x.dtype)

    def _weight(self, shape: tuple[int, ...]) -> jax.Array:
        """Complex weights `shape`, `[..., C, features]`."""
        channels, features = shape[-2:]

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return draws.uniform(key, shape) / (channels * features)

        if self.rank is None:
            return self.param("real", init, shape) + 1j * self.param("imaginary", init, shape)
        ranks = tucker_ranks(shape, self.rank)
        # The product's entries then have the deviation sqrt(2 / (C + features)), as the authors'.
        std = (2 / (channels + features)) ** 0.5 / math.prod(ranks) ** 0.5
        init_factor = nn.initializers.normal(std ** (1 / (len(shape) + 1)))

        def complex_param(name: str, shape: tuple[int, ...]) -> jax.Array:
            parts = self.param(name, init_factor, (2, *shape))
            return parts[0] + 1j * parts[1]

        weight = complex_param("core", ranks)
        for axis, (size, rank) in enumerate(zip(shape, ranks, strict=True)):
            factor = complex_param(f"factor_{axis}", (size, rank))
            weight = jnp.moveaxis(jnp.tensordot(factor, weight, (1, axis)), 0, axis)
        return weight


def _mixed(low: jax.Array, weight: jax.Array) -> jax.Array:
    """Complex `[..., C]` times `[..., C, features]`, a product for each wavenumber.

    From 32 channels on as one real product of twice the width, `[Re, Im] [[A, B], [-B, A]]`: a CPU
    rolls 64 channels 1.4 times as fast, while 16 lose more by the copies than they gain.
    """
    if low.shape[-1] < 32:
        return jnp.einsum("...c,...cf->...f", low, weight)
    parts, features = jnp.concatenate([low.real, low.imag], -1), weight.shape[-1]
    rows = [(weight.real, weight.imag), (-weight.imag, weight.real)]
    block = jnp.concatenate([jnp.concatenate(row, -1) for row in rows], -2)
    both = jnp.einsum("...c,...cf->...f", parts, block)
    return jax.lax.complex(both[..., :features], both[..., features:])


def tucker_ranks(shape: Sequence[int], share: float) -> tuple[int, ...]:
    """Ranks `c I_k` whose core and factors have about `share` of the entries of `shape`, as
    TensorLy rounds them: the c with `c^N prod(I) + c sum(I^2) = share prod(I)`."""
    from scipy.optimize import brentq

    sizes, entries = np.asarray(shape, float), float(np.prod(np.asarray(shape, float)))

    def beyond(c: float) -> float:
        return c ** len(sizes) * entries + c * float(np.square(sizes).sum()) - share * entries

    scale: Any = brentq(beyond, 0.0, max(share, 1.0))
    return tuple(max(round(scale * n), 1) for n in shape)


class FnoNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: Fno
    channels: int
    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, grid = self.config, x.shape[:-1]
        gelu, wide = gelu_of(c.gelu), c.embedding
        embedding = wide and gelu(Embedding(wide, wide, c.gelu)(index, conditions))
        if c.coordinates:
            along = jnp.meshgrid(*(jnp.arange(n) / n for n in grid), indexing="ij")
            x = jnp.concatenate([x, *(at[..., None] for at in along)], -1)
        x = gelu(Dense(c.lifting)(x)) if c.lifting else x
        x = Dense(c.width)(x)
        x = jnp.pad(x, [(0, more) for more in continued(grid, self.padding)] + [(0, 0)])
        modes = c.kept(len(self.padding))
        for layer in range(c.layers):
            given = Dense(c.width)(embedding) if c.embedding else 0.0
            h = SpectralConv(c.width, modes, c.rank)(x) + Dense(c.width)(x) + given
            if c.channel_mlp:
                gate = self.param(f"gate_{layer}", nn.initializers.ones, (c.width,))
                hidden = gelu(Dense(max(round(c.channel_mlp * c.width), 1))(gelu(h)))
                h = Dense(c.width)(hidden) + gate * x
            x = h if layer == c.layers - 1 else gelu(h)
        x = x[tuple(map(slice, grid))]
        x = gelu(Dense(2 * c.width)(x))
        return Dense(self.channels, kernel_init=zeros)(x)


def continued(grid: Sequence[int], padding: Sequence[Padding]) -> list[int]:
    """By how many points each axis is continued: an eighth of what is no circle."""
    return [-(-n // 8) * (kind != "periodic") for n, kind in zip(grid, padding, strict=True)]

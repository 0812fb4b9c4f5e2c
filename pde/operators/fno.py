"""Fourier neural operator (Li et al. 2021) over any axes, conditioned on the index.

A transform takes every axis for a circle; along one that is none the fields are continued before
the first layer, which is cut away after the last, as in the authors' code, by an eighth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork, FieldShape
from ..spectral import gather_modes, scatter_modes
from .layers import (
    CIRCLE,
    Embedding,
    Padding,
    field_network,
    gelu,
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
        embedding: size of the embedding of conditions and noise level.
    """

    width: int = positive(64)
    layers: int = positive(4)
    modes: int | tuple[int, ...] | None = positive(None)
    embedding: int = positive(64)

    def validate(self) -> None:
        if self.embedding % 2:
            raise ConfigError("embedding", self.embedding, "even: half cosines, half sines")

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
        return field_network(FnoNet(self, shape.channels, padding), shape)


class SpectralConv(nn.Module):
    """A matrix per wavenumber below `modes`, nothing above: `[*N, C] -> [*N, features]`.

    Of a real field's transform the last axis has no negative wavenumbers; along the others they
    follow the positive ones, as in the transform itself: `[2 m_1, ..., m_last, C, features]`.
    """

    features: int
    modes: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        *space, channels = x.shape
        axes = tuple(range(len(space)))

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return draws.uniform(key, shape) / (channels * self.features)

        *others, last = self.modes
        shape = (*(2 * m for m in others), last, channels, self.features)
        weight = self.param("real", init, shape) + 1j * self.param("imaginary", init, shape)
        low = jnp.fft.rfftn(x, axes=axes)[..., :last, :]
        weight = weight[..., : low.shape[-2], :, :]
        for axis, points in enumerate(space[:-1]):
            keep = min(others[axis], points // 2)
            low, weight = gather_modes(low, keep, axis), gather_modes(weight, keep, axis)
        mixed = jnp.einsum("...c,...cf->...f", low, weight)
        for axis, points in enumerate(space[:-1]):
            mixed = scatter_modes(mixed, points, axis)
        return jnp.fft.irfftn(mixed, s=space, axes=axes)


class FnoNet(nn.Module):
    """`(x [*N, Cin], index, conditions [P]) -> [*N, channels]`; zero at initialisation."""

    config: Fno
    channels: int
    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c = self.config
        embedding = gelu(Embedding(c.embedding, c.embedding)(index, conditions))
        x = Dense(c.width)(x)
        inside = tuple(slice(n) for n in x.shape[:-1])
        x = jnp.pad(x, [(0, more) for more in continued(x.shape[:-1], self.padding)] + [(0, 0)])
        modes = c.kept(len(self.padding))
        for layer in range(c.layers):
            given = Dense(c.width)(embedding)
            h = SpectralConv(c.width, modes)(x) + Dense(c.width)(x) + given
            x = h if layer == c.layers - 1 else gelu(h)
        x = x[inside]
        x = gelu(Dense(2 * c.width)(x))
        return Dense(self.channels, kernel_init=zeros)(x)


def continued(grid: Sequence[int], padding: Sequence[Padding]) -> list[int]:
    """By how many points each axis is continued: an eighth of what is no circle."""
    return [-(-n // 8) * (kind != "periodic") for n, kind in zip(grid, padding, strict=True)]

"""Fourier neural operator (Li et al. 2021) in one dimension, conditioned on the index."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork
from .layers import Embedding, field_network, gelu, zeros


@dataclass(frozen=True)
class FnoConfig:
    """`layers` spectral layers of `width` channels that mix the lowest `modes` wavenumbers.

    Attributes:
        width: channels.
        layers: Fourier layers.
        modes: Fourier modes that a layer keeps.
        embedding: size of the embedding of conditions and noise level.
    """

    width: int = positive(64)
    layers: int = positive(4)
    modes: int = positive(32)
    embedding: int = positive(64)

    def validate(self) -> None:
        if self.embedding % 2:
            raise ConfigError("embedding", self.embedding, "even: half cosines, half sines")


class SpectralConv(nn.Module):
    """A matrix per wavenumber below `modes`, nothing above: `[N, C] -> [N, features]`."""

    features: int
    modes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        points, channels = x.shape

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return draws.uniform(key, shape) / (channels * self.features)

        shape = (self.modes, channels, self.features)
        weight = self.param("real", init, shape) + 1j * self.param("imaginary", init, shape)
        low = jnp.fft.rfft(x, axis=0)[: self.modes]
        mixed = jnp.einsum("kc,kcf->kf", low, weight[: len(low)])
        return jnp.fft.irfft(mixed, n=points, axis=0)


class Fno(nn.Module):
    """`(x [N, Cin], index, conditions [P]) -> [N, channels]`; zero at initialisation."""

    config: FnoConfig
    channels: int

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c = self.config
        embedding = gelu(Embedding(c.embedding, c.embedding)(index, conditions))
        x = Dense(c.width)(x)
        for layer in range(c.layers):
            given = Dense(c.width)(embedding)
            h = SpectralConv(c.width, c.modes)(x) + Dense(c.width)(x) + given
            x = h if layer == c.layers - 1 else gelu(h)
        x = gelu(Dense(2 * c.width)(x))
        return Dense(self.channels, kernel_init=zeros)(x)


def make_fno(
    config: FnoConfig, channels: int, points: int, conditions: int = 0, history: int = 1
) -> FieldNetwork:
    """The operator on fields `[channels, points]` with `conditions` scalars.

    Raises:
        ConfigError: a setting is out of range, or more modes than the grid has.
    """
    check(config)
    if config.modes > points // 2 + 1:
        raise ConfigError("modes", config.modes, f"at most {points // 2 + 1} on {points} points")
    return field_network(Fno(config, channels), channels, points, conditions, history)

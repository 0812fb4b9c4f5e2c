"""Windows continued from clean rows, on a wish: a temporal U-Net with inpainting and a condition.

The first rows of a window are known. They stand in it as they are, in training and at every call of
a sampler, and only what follows is noised and denoised. How the window should turn out is a number
(a return, say) that is embedded beside the noise; in training it is left out now and then (Ho &
Salimans 2022, arXiv:2207.12598), so that one network is asked with and without it, and a plan can
be moved further along what the wish changes than the wish alone would. Decision Diffuser (Ajay et
al. 2023, arXiv:2211.15657) plans like this.

    net = make_continued_unet(Unet(), length=16, given=1, channels=6)
    denoiser = make_denoiser(net)
    denoiser.loss((weights, given), key, rows)           # rows [B, 15, 6], given.rows [B, 1, 6]
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from ..configs import check
from ..errors import ConfigError
from ..networks import Dense, Network, from_linen
from ..trees import PyTree
from .unet import TemporalUnet, TemporalUnetConfig


class Given(NamedTuple):
    """What a window is to follow from.

    Attributes:
        rows: `[B, H, C]`, clean.
        wish: `[B]`, of the order of 1.
        known: `[B]`, 1, or 0 where there is no wish.
    """

    rows: jax.Array
    wish: jax.Array
    known: jax.Array

    def free(self) -> Given:
        """The same without a wish."""
        return self._replace(known=jnp.zeros_like(self.known))


class ContinuedUnet(TemporalUnet):
    """`(x [B, L, C], scalars [B, 3]) -> [B, L, C]`; noise, wish, and whether there is one."""

    def _embed(self, scalars: jax.Array) -> jax.Array:
        wide = self.config.features
        told = Dense(wide)(nn.silu(Dense(wide)(scalars[:, 1:2])))
        return super()._embed(scalars[:, 0]) + scalars[:, 2:] * told


@functools.lru_cache(maxsize=32)
def make_continued_unet(
    config: TemporalUnetConfig, length: int, given: int, channels: int, guidance: float = 1.0
) -> Network:
    """A raw network for `make_denoiser` whose parameters are `(weights, Given)`.

    `init(key)` gives the weights; `apply((weights, given), x [B, L - H, C], c_noise [B])` what
    follows the given rows. Equal arguments give the same functions.

    Args:
        config: of the U-Net.
        length: L, of a whole window.
        given: H, its clean rows.
        channels: C.
        guidance: w of `F(x, none) + w (F(x, wish) - F(x, none))`, two calls in one; 1 is the
            network itself, 0 it without a wish. Training is with 1.

    Raises:
        ConfigError: a setting is out of range, or the windows are too short.
    """
    check(config)
    least = 2 ** (config.blocks - 1)
    if length < least:
        raise ConfigError("length", length, f"at least {least}, which {config.blocks} blocks halve")
    if not 0 < given < length:
        raise ConfigError(
            "given", given, f"from 1 to {length - 1}, rows before the rest of {length}"
        )
    shapes = ((1, length, channels), (1, 3))
    unet = from_linen(
        ContinuedUnet(config), *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    )

    def once(weights: PyTree, given_: Given, x: jax.Array, c_noise: jax.Array) -> jax.Array:
        whole = jnp.concatenate([given_.rows, x], 1)
        if whole.shape[1:] != shapes[0][1:]:
            raise ValueError(f"windows: found {whole.shape[1:]}, expected {shapes[0][1:]}")
        scalars = jnp.stack([c_noise, given_.wish, given_.known], -1)
        return unet.apply(weights, whole, scalars)[:, given:]

    def apply(params: tuple[PyTree, Given], x: jax.Array, c_noise: jax.Array) -> jax.Array:
        weights, wanted = params
        if guidance == 1.0:
            return once(weights, wanted, x, c_noise)
        if guidance == 0.0:
            return once(weights, wanted.free(), x, c_noise)
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), wanted.free(), wanted)
        twice = jnp.concatenate([x, x]), jnp.concatenate([c_noise, c_noise])
        plain, asked = jnp.split(once(weights, both, *twice), 2)
        return plain + guidance * (asked - plain)

    return Network(unet.init, apply)

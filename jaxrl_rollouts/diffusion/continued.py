"""Windows continued from clean rows on a condition: a temporal U-Net with inpainting.

The first rows of a window are known: they are kept clean (inpainting) in training and sampling, and
only the rows after them are noised and denoised. The condition is a number, for example a return.
Training drops it at random for classifier-free guidance (Ho & Salimans 2022, arXiv:2207.12598), as
Decision Diffuser does (Ajay et al. 2023, arXiv:2211.15657). The condition (`wish`) is embedded with
the noise level and also prepended to the window as rows: a constant added to a channel is removed
by the norm of its group, entirely so in a group of one channel.

    net = make_continued_unet(Unet(), length=16, given=1, channels=6)
    denoiser = make_denoiser(net)
    denoiser.loss((weights, given), key, rows)           # rows [B, 15, 6], given.rows [B, 1, 6]
    student = make_flow(net, FlowConfig(loss="consistency"), flow_of_denoiser(denoiser))
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..errors import ConfigError
from ..networks import Network
from ..trees import PyTree
from .unet import Unet, make_temporal_unet

CONDITIONS = 2  # rows before the window: the condition, and whether there is one


class Given(NamedTuple):
    """What a window is to follow from.

    Attributes:
        rows: `[B, H, C]`, clean.
        wish: the condition, `[B]`, of the order of 1.
        known: `[B]`, 1, or 0 where there is no condition.
    """

    rows: jax.Array
    wish: jax.Array
    known: jax.Array

    def free(self) -> Given:
        """The same without a condition."""
        return self._replace(known=jnp.zeros_like(self.known))


@functools.lru_cache(maxsize=32)
def make_continued_unet(
    config: Unet, length: int, given: int, channels: int, guidance: float = 1.0
) -> Network:
    """A network for `make_denoiser` and `make_flow`; its parameters are `(weights, Given)`.

    `init(key)` gives weights; `apply((weights, given), x [B, L - H, C], c_noise [B], share [B])`
    what follows the given rows. Left out, the share of a jump is 0: a denoiser and a flow have the
    same weights. Equal arguments give the same functions.

    Args:
        guidance: w of `F(x, none) + w (F(x, wish) - F(x, none))`, two calls in one; 1 is the
            network itself, 0 the unconditional one. Training is with 1.
    """
    if not 0 < given < length:
        raise ConfigError("given", given, f"from 1 to {length - 1}, rows before others")
    unet = make_temporal_unet(config, length + CONDITIONS, channels, interval=True, conditions=1)

    def once(weights: PyTree, own: Given, x: jax.Array, *noise: jax.Array) -> jax.Array:
        conditions = jnp.stack([own.known * own.wish, own.known], -1)
        before = jnp.broadcast_to(conditions[..., None], (*conditions.shape, channels))
        whole = jnp.concatenate([before, own.rows, x], 1)
        return unet.apply(weights, whole, *noise, conditions)[:, CONDITIONS + given :]

    def apply(
        params: tuple[PyTree, Given],
        x: jax.Array,
        c_noise: jax.Array,
        share: jax.Array | None = None,
    ) -> jax.Array:
        weights, own = params
        inputs = (x, c_noise, jnp.zeros_like(c_noise) if share is None else share)
        if guidance == 1.0:
            return once(weights, own, *inputs)
        if guidance == 0.0:
            return once(weights, own.free(), *inputs)
        both = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b]), (own.free(), *inputs), (own, *inputs)
        )
        plain, asked = jnp.split(once(weights, *both), 2)
        return plain + guidance * (asked - plain)

    return Network(unet.init, apply)

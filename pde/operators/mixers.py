"""What mixes the tokens `[h, w, d]` of a block: DRIFT, attention, Fourier layers, convolution.

All have one signature, so that `drift.DriftNet` can exchange them and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.networks import Dense

from ..spectral import lengths, waves
from .convolution import Padding, extended
from .fno import SpectralConv
from .layers import (
    Form,
    at_least_float32,
    gelu,
    torch_default,
    use_matmul,
    zeros,
)

SMALL = 0.02  # deviation of the released code's weights
normal = nn.initializers.normal(SMALL)


class Depthwise(nn.Module):
    """A convolution of every channel by itself, `[h, w, d] -> [h, w, d]`; odd widths.

    On a CPU shifted copies are multiplied and added, elsewhere it is the backend's; `form` as of
    `PeriodicConv`.
    """

    width: int
    padding: tuple[Padding, ...]
    bias: bool = True
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        axes, features = len(self.padding), x.shape[-1]
        # Of each channel the inputs are those of the window: the last axis of the shape is none.
        kernel = self.param("kernel", torch_default, (*(self.width,) * axes, features))
        wide = x
        for axis, kind in enumerate(self.padding):
            wide = extended(wide, self.width // 2, axis, kind)
        if use_matmul(self.form):
            parts = []
            for at in itertools.product(range(self.width), repeat=axes):
                window = tuple(slice(i, i + n) for i, n in zip(at, x.shape, strict=False))
                parts.append(wide[window] * kernel[at])
            y = functools.reduce(operator.add, parts)
        else:
            space = "XYZ"[:axes]
            y = jax.lax.conv_general_dilated(
                wide[None],
                kernel[..., None, :],
                (1,) * axes,
                "VALID",
                dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
                feature_group_count=features,
            )[0]
        return y + self.param("bias", zeros, (features,)) if self.bias else y


def low_set(grid: tuple[int, ...], cut: float) -> np.ndarray:
    """Which `rfft2` bins are low, `[h, w // 2 + 1]`.

    `max(|k_0|, |k_1|)` below `cut` times half of the shorter axis.
    """
    return np.abs(waves(grid)).max(0) < cut * min(grid) / 2


def band_numbers(grid: tuple[int, ...], bands: int) -> np.ndarray:
    """The radial band of every `rfft2` bin, `[h, w // 2 + 1]`, of equal widths up to the corner."""
    radius = lengths(grid)
    return np.minimum((radius / (radius.max() + 1e-8) * bands).astype(int), bands - 1)


class DriftMixer(nn.Module):
    """Low wavenumbers mixed, high ones kept, each radial band gated (DRIFT-Net, 2025).

        X = rfft2(x),   a = sigmoid(MLP(mean |X| by band))  per channel and band,
        y = irfft2(a W X on the low set, (1 - a) X elsewhere) + depthwise3x3(x) + Linear(x)

    with one complex matrix W for all low wavenumbers, and one MLP for all channels. `mix`, `gate`
    and `local` are switches: W = 1; no a and no 1 - a; nothing but the inverse transform.
    """

    padding: tuple[Padding, ...]
    cut: float = 0.562
    bands: int = 6
    hidden: int = 128
    mix: bool = True
    gate: bool = True
    local: bool = True
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        *grid, features = x.shape
        space = (grid[0], grid[1])
        modes = jnp.fft.rfft2(at_least_float32(x), axes=(0, 1), norm="ortho")
        low = low_set(space, self.cut)
        columns = int(low.any(0).sum())  # beyond them nothing is low
        mixed, low_alpha, high_alpha = modes[:, :columns], jnp.ones(()), jnp.ones(())
        if self.mix:
            mixed = self._mixed(mixed)
        if self.gate:
            alpha = self._alpha(modes, space)
            low_alpha, high_alpha = alpha[:, :columns], 1.0 - alpha
        within = low[..., None]
        below = jnp.where(within[:, :columns], low_alpha * mixed, 0.0)
        beyond = [(0, 0), (0, modes.shape[1] - columns), (0, 0)]
        both = jnp.where(within, jnp.pad(below, beyond), high_alpha * modes)
        y = jnp.fft.irfft2(both, s=space, axes=(0, 1), norm="ortho").astype(x.dtype)
        if not self.local:
            return y
        y = y + Depthwise(3, self.padding, False, self.form, name="depthwise")(x)
        return y + Dense(features, name="linear")(x)

    def _mixed(self, modes: jax.Array) -> jax.Array:
        """`W X`, as one real product."""
        features = modes.shape[-1]

        def identity(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
            return jnp.eye(*shape) + SMALL * draws.normal(key, shape)

        square = (features, features)
        real = self.param("real", identity, square)
        imaginary = self.param("imaginary", normal, square)
        weight = jnp.block([[real, imaginary], [-imaginary, real]])
        done = jnp.concatenate([modes.real, modes.imag], -1) @ weight
        return jax.lax.complex(done[..., :features], done[..., features:])

    def _alpha(self, modes: jax.Array, grid: tuple[int, int]) -> jax.Array:
        """The gain of every bin and channel."""
        band = band_numbers(grid, self.bands)
        member = band[..., None] == np.arange(self.bands)
        share = member / np.maximum(member.sum((0, 1)), 1)
        # |X_high| - |X_low| without its sign, as the released code has it: one of the two is zero.
        feature = jnp.einsum("hwb,hwd->db", jnp.asarray(share, jnp.float32), jnp.abs(modes))
        hidden = nn.relu(Dense(self.hidden, name="gate_in")(feature))
        gains = nn.sigmoid(Dense(self.bands, name="gate_out")(hidden))
        return jnp.einsum("hwb,db->hwd", jnp.asarray(member, jnp.float32), gains)


def windowed(x: Any, window: tuple[int, int]) -> Any:
    """`[h, w, d] -> [windows, tokens, d]`."""
    (h, w, d), (a, b) = x.shape, window
    return x.reshape(h // a, a, w // b, b, d).swapaxes(1, 2).reshape(-1, a * b, d)


def unwindowed(x: jax.Array, window: tuple[int, int], grid: tuple[int, int]) -> jax.Array:
    """What `windowed` took apart."""
    (h, w), (a, b) = grid, window
    return x.reshape(h // a, w // b, a, b, -1).swapaxes(1, 2).reshape(h, w, -1)


def relative(window: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Log-spaced offsets within a window, `[offsets, 2]`, and whose is whose, `[tokens, tokens]`.

    Offsets are scaled to +-8 and then `sign(x) log2(1 + |x|) / 3` (Swin V2, equation 4).
    """
    spans = [np.arange(1 - n, n) * (8.0 / max(n - 1, 1)) for n in window]
    table = np.stack(np.meshgrid(*spans, indexing="ij"), -1).reshape(-1, 2)
    spaced = np.sign(table) * np.log2(1 + np.abs(table)) / 3.0
    at = np.stack(np.meshgrid(*(np.arange(n) for n in window), indexing="ij")).reshape(2, -1)
    apart = at[:, :, None] - at[:, None, :] + (np.array(window) - 1)[:, None, None]
    return spaced, apart[0] * (2 * window[1] - 1) + apart[1]


def separated(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, int], cut: tuple[bool, bool]
) -> np.ndarray:
    """Which tokens of a shifted window lie beside each other, `[windows, tokens, tokens]`.

    Along an axis that is `cut` those that were moved there from its other end do not.
    """
    numbers = np.zeros(grid, int)
    for axis, (n, w, s, ends) in enumerate(zip(grid, window, shift, cut, strict=True)):
        at = np.arange(n)
        number = (at >= n - w).astype(int) + (at >= n - s) if ends and s else 0 * at
        numbers = 3 * numbers + number.reshape((-1, 1) if axis == 0 else (1, -1))
    of_window = windowed(numbers[..., None], window)[..., 0]
    return of_window[:, :, None] == of_window[:, None, :]


class AttentionMixer(nn.Module):
    """Cosine attention in (shifted) windows with a continuous position bias (Swin V2; scOT).

        softmax(cos(q, k) exp(min(s, log 100)) + 16 sigmoid(MLP(offset))) v

    Windows as long as an axis are not shifted. Shifted windows go around circles; where an axis
    ends, tokens of opposite ends do not see each other.
    """

    padding: tuple[Padding, ...]
    window: int = 8
    heads: int = 3
    hidden: int = 512
    shifted: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h, w, features = x.shape
        window = (min(self.window, h), min(self.window, w))
        shift = tuple(self.window // 2 if self.shifted and n > self.window else 0 for n in (h, w))
        each = features // self.heads
        tokens = windowed(jnp.roll(x, [-s for s in shift], (0, 1)), window)

        def head(y: jax.Array) -> jax.Array:
            return y.reshape(*y.shape[:-1], self.heads, each).swapaxes(-2, -3)

        def direction(y: jax.Array) -> jax.Array:
            return y * jax.lax.rsqrt(jnp.square(y).sum(-1, keepdims=True) + 1e-12)

        q = direction(head(Dense(features, name="query")(tokens)))
        k = direction(head(Dense(features, use_bias=False, name="key")(tokens)))
        v = head(Dense(features, name="value")(tokens))
        sharpness = self.param(
            "log_sharpness", nn.initializers.constant(math.log(10.0)), (self.heads,)
        )
        logits = jnp.einsum("nhic,nhjc->nhij", q, k)
        logits = logits * jnp.exp(jnp.minimum(sharpness, math.log(100.0)))[:, None, None]
        offsets, whose = relative(window)
        bias = nn.relu(Dense(self.hidden, name="position_in")(jnp.asarray(offsets, jnp.float32)))
        bias = 16.0 * nn.sigmoid(Dense(self.heads, use_bias=False, name="position_out")(bias))
        # A product with whose is whose is cheaper than the scatter of a gather's gradient.
        chosen = jax.nn.one_hot(whose, len(offsets), dtype=x.dtype)
        logits = logits + jnp.einsum("ijo,oh->hij", chosen, bias)
        cut = tuple(kind != "periodic" for kind in self.padding)
        if any(s and c for s, c in zip(shift, cut, strict=True)):
            # Twice 100, as transformers' Swin V2 adds its mask.
            beside = separated((h, w), window, shift, (cut[0], cut[1]))  # type: ignore[arg-type]
            logits = jnp.where(jnp.asarray(beside)[:, None], logits, logits - 200.0)
        y = jnp.einsum("nhij,nhjc->nhic", jax.nn.softmax(logits), v)
        y = y.swapaxes(-2, -3).reshape(tokens.shape)
        y = Dense(features, name="out")(y)
        return jnp.roll(unwindowed(y, window, (h, w)), shift, (0, 1))


class FourierMixer(nn.Module):
    """A Fourier layer: a matrix for each of the lowest wavenumbers, and a linear map."""

    modes: int = 4

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        features, kept = x.shape[-1], min(self.modes, min(x.shape[:-1]) // 2)
        return SpectralConv(features, (kept,) * (x.ndim - 1))(x) + Dense(features)(x)


class SkipBlock(nn.Module):
    """ConvNeXt block on a skip, its contribution scaled from 1e-6 on; `norm` from the network."""

    padding: tuple[Padding, ...]
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array, norm: Callable[[jax.Array], jax.Array]) -> jax.Array:
        features = x.shape[-1]
        h = norm(Depthwise(7, self.padding, form=self.form)(x))
        h = Dense(features)(gelu(Dense(4 * features)(h)))
        return x + h * self.param("scale", nn.initializers.constant(1e-6), (features,))

"""One U-shaped network with an exchangeable mixer: DRIFT-Net, scOT (Herde et al. 2024) and others.

The released DRIFT-Net is scOT, the network of Poseidon, with another mixer in its blocks; so is
this one. Where the released code takes wavenumbers by their position in the array, and pads with
zeros, sets here are symmetric and circles go around.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, fraction, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense

from ..emulator import FieldNetwork, FieldShape
from .convolution import Padding, convolution, products
from .layers import (
    Embedding,
    Form,
    field_network,
    gelu,
    paddings,
    use_matmul,
    zeros,
)
from .mixers import AttentionMixer, Depthwise, DriftMixer, FourierMixer, SkipBlock

Mixer = Literal["drift", "attention", "fourier", "conv"]


@dataclass(frozen=True)
class Drift:
    """Patches to tokens; blocks at falling, then at rising resolutions; tokens to patches.

    Attributes:
        mixer: drift; attention (Swin V2's, in windows: scOT); fourier (a Fourier layer); conv
            (depthwise, 7 wide: ConvNeXt's).
        patch: points of a patch along each axis.
        dims: channels of the stages, each twice the one before; the grid of tokens is halved
            between them.
        depths: blocks of each stage, on the way down and again on the way up.
        skips: ConvNeXt blocks on each skip.
        embedding: size of the embedding of conditions and noise level.
        gain: of the two branches of a block at initialisation.
        output_conv: a convolution, 5 wide, after the patches (as published).
        cut: drift: share of the wavenumbers of each axis that are low.
        bands: drift: radial bands of the gate.
        gate_hidden: drift: hidden units of the gate.
        mix: drift: mix channels at low wavenumbers; False for an ablation.
        gate: drift: weigh bands; False: low and high ones are added up.
        local: drift: the 3 wide convolution and the linear map beside the transform.
        window: attention: tokens along each axis of a window.
        head: attention: channels of a head.
        position_hidden: attention: hidden units of the position bias.
        modes: fourier: wavenumbers along each axis that are mixed.
        form: of the convolutions: `conv`, `matmul` or `auto`, as of the `Resnet`.
    """

    mixer: Mixer = "drift"
    patch: int = positive(2)
    dims: tuple[int, ...] = (48, 96)
    depths: tuple[int, ...] = (2, 2)
    skips: int = number(0, least=0)
    embedding: int = positive(16)
    gain: float = number(0.3, above=0)
    output_conv: bool = False
    cut: float = fraction(0.562)
    bands: int = positive(6)
    gate_hidden: int = positive(128)
    mix: bool = True
    gate: bool = True
    local: bool = True
    window: int = number(8, least=2)
    head: int = positive(16)
    position_hidden: int = positive(64)
    modes: int = positive(4)
    form: Form = "auto"

    def validate(self) -> None:
        if self.embedding % 2:
            raise ConfigError("embedding", self.embedding, "even: half cosines, half sines")
        doubled = all(b == 2 * a for a, b in itertools.pairwise(self.dims))
        if min(self.dims, default=0) < 1 or not doubled:
            raise ConfigError("dims", self.dims, "at least one, each twice the one before")
        if len(self.depths) != len(self.dims) or min(self.depths) < 1:
            raise ConfigError("depths", self.depths, f"at least 1 for each of dims {self.dims}")
        if self.mixer == "attention" and self.dims[0] % self.head:
            raise ConfigError("head", self.head, f"a divisor of the first of dims {self.dims}")
        if self.mixer == "attention" and self.window % 2:
            raise ConfigError("window", self.window, "even: half of it is the shift")

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The network on fields of a shape.

        Raises:
            ConfigError: a setting is out of range, or `points` are not of two axes that whole
                patches, stages and windows fill.
        """
        check(self)
        grid = shape.grid
        if len(grid) != 2:
            raise ConfigError("points", shape.points, "two axes", "take resnet, unet or fno")
        levels = len(self.dims) - 1
        whole = self.patch * 2**levels
        if any(n % whole for n in grid):
            expected = f"multiples of {whole}: patches of {self.patch}, halved {levels} times"
            raise ConfigError("points", list(grid), expected)
        tokens = [[n // self.patch // 2**level for n in grid] for level in range(levels + 1)]
        if min(tokens[-1]) < 4:
            expected = "4 tokens along every axis of the last stage"
            raise ConfigError("dims", self.dims, expected, "take smaller patches, or fewer stages")
        if self.mixer == "attention" and any(n % min(self.window, n) for t in tokens for n in t):
            raise ConfigError("window", self.window, f"one that fills grids of tokens {tokens}")
        module = DriftNet(self, shape.outputs, paddings(shape.boundaries, len(grid)))
        return field_network(module, shape)


class ConditionedNorm(nn.Module):
    """Layer norm over channels whose scale and shift are linear in what is `given` `[E]`."""

    gain: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array, given: jax.Array) -> jax.Array:
        def start(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
            del key
            return jnp.where(jnp.arange(shape[0]) < shape[0] // 2, self.gain, 0.0).astype(dtype)

        linear = Dense(2 * x.shape[-1], kernel_init=zeros, bias_init=start)
        scale, shift = linear(given).reshape(2, -1)
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


class Mixup(nn.Module):
    """A convolution without a bias, the identity at first: `[h, w, C] -> [h, w, C]`."""

    width: int
    padding: tuple[Padding, ...]
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def identity(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            del key
            return jnp.zeros(shape).at[shape[0] // 2, shape[1] // 2].set(jnp.eye(shape[-1]))

        kernel = self.param(
            "kernel", identity, (self.width, self.width, *x.shape[-1:], *x.shape[-1:])
        )
        apply = products if use_matmul(self.form) else convolution
        return apply(x, kernel, 1, 1, self.padding)


class DriftNet(nn.Module):
    """`(x [h, w, Cin], index, conditions [P]) -> [h, w, channels]`; zero at initialisation.

    With a `lead` the norms are linear in it and the conditions themselves, without an embedding.
    """

    config: Drift
    channels: int
    padding: tuple[Padding, ...]
    lead: float | None = None

    @nn.compact
    def __call__(self, x: jax.Array, index: jax.Array, conditions: jax.Array) -> jax.Array:
        c, patch, norm, deepest = self.config, self.config.patch, ConditionedNorm, self._deepest
        if self.lead is None:
            given = gelu(Embedding(c.embedding, c.embedding)(index, conditions))
        else:
            given = jnp.append(jnp.float32(self.lead), conditions)
        h, w = (n // patch for n in x.shape[:2])
        x = x.reshape(h, patch, w, patch, -1).swapaxes(1, 2).reshape(h, w, -1)
        x = norm()(Dense(c.dims[0], name="embed")(x), given)
        kept = []
        for stage, features in enumerate(c.dims):
            before, x = x, self._blocks(x, given, stage, "down")
            if stage < deepest:
                kept.append(x)
                merged = _merge(x + before)
                x = Dense(2 * features, use_bias=False, name=f"merge_{stage}")(merged)
                x = norm()(x, given)
        for stage in range(deepest, -1, -1):
            if stage < deepest:
                x = x + self._skipped(kept.pop(), given)
            x = self._blocks(x, given, stage, "up")
            if stage:
                half = c.dims[stage - 1]
                x = _unmerge(Dense(4 * half, use_bias=False, name=f"unmerge_{stage}")(x))
                x = Dense(half, use_bias=False, name=f"mixup_{stage}")(norm()(x, given))
        size = patch * patch * self.channels
        y = Dense(size, use_bias=False, kernel_init=zeros, name="recover")(x)
        y = y.reshape(h, w, patch, patch, -1).swapaxes(1, 2).reshape(h * patch, w * patch, -1)
        y = y + self.param("bias", zeros, (self.channels,))
        return Mixup(5, self.padding, c.form)(y) if c.output_conv else y

    @property
    def _deepest(self) -> int:
        return len(self.config.dims) - 1

    def _skipped(self, skip: jax.Array, given: jax.Array) -> jax.Array:
        for _ in range(self.config.skips):
            norm = ConditionedNorm()
            skip = SkipBlock(self.padding, self.config.form)(skip, lambda y, n=norm: n(y, given))
        return skip

    def _blocks(self, x: jax.Array, given: jax.Array, stage: int, way: str) -> jax.Array:
        """`x + norm(mixer(x))`, then `x + norm(MLP(x))`, so many times."""
        c = self.config
        norm, features = functools.partial(ConditionedNorm, c.gain), x.shape[-1]
        for block in range(c.depths[stage]):
            # On the way up in the opposite order, as in scOT: the first of two goes over the edges.
            at = block if way == "down" else c.depths[stage] - 1 - block
            x = x + norm()(self._mixer(stage, at % 2 == 1)(x), given)
            x = x + norm()(Dense(features)(gelu(Dense(4 * features)(x))), given)
        return x

    def _mixer(self, stage: int, shifted: bool) -> nn.Module:
        c, padding = self.config, self.padding
        if c.mixer == "drift":
            sizes = (c.cut, c.bands, c.gate_hidden)
            parts = (c.mix, c.gate, c.local)
            return DriftMixer(padding, *sizes, *parts, c.form)
        if c.mixer == "attention":
            sizes = (c.window, c.dims[stage] // c.head, c.position_hidden)
            return AttentionMixer(padding, *sizes, shifted)
        if c.mixer == "fourier":
            return FourierMixer(c.modes)
        return Depthwise(7, padding, form=c.form)


def _merge(x: jax.Array) -> jax.Array:
    """`[h, w, d] -> [h / 2, w / 2, 4 d]`."""
    h, w, features = x.shape
    x = x.reshape(h // 2, 2, w // 2, 2, features).transpose(0, 2, 3, 1, 4)
    return x.reshape(h // 2, w // 2, 4 * features)


def _unmerge(x: jax.Array) -> jax.Array:
    """`[h, w, 4 d] -> [2 h, 2 w, d]`."""
    h, w, features = x.shape
    x = x.reshape(h, w, 2, 2, features // 4).swapaxes(1, 2)
    return x.reshape(2 * h, 2 * w, features // 4)

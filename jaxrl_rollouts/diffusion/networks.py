"""The denoiser of single rows: a residual MLP with random Fourier features of the noise.

SynthER's (Lu et al. 2023, arXiv:2303.06614, appendix): pre-activation blocks of one linear layer.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from ..configs import check, positive
from ..networks import Dense, Network, from_linen, uniform, uniform_fan_in

DTYPES: dict[str, Any] = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclass(frozen=True)
class ResidualMlp:
    """Sizes; defaults are SynthER's offline ones (25.5 million parameters for 42 columns).

    Attributes:
        width: width of the blocks; 1024 online.
        blocks: number of them.
        embedding: width of the noise embedding; 256 online.
        frequencies: number of random ones.
        frequency_seed: they are drawn from it and are not trained.
        initial: weights: `lecun`, normal of variance 1 / fan_in with zero biases; or `torch`,
            uniform within 1 / sqrt(fan_in), biases too, a third of that variance: SynthER's. Short
            trainings are better off with it: 0.386 for 0.426 of held-out loss after 3000 steps
            of width 128 on HalfCheetah's rows (3 seeds, 0.384 to 0.388 and 0.421 to 0.430).
        dtype: data type of the body's arithmetic; parameters, noise and output stay float32. On a
            CPU bfloat16 is no faster: XLA does not use what the processor has for it.
    """

    width: int = positive(2048)
    blocks: int = positive(6)
    embedding: int = positive(128)
    frequencies: int = positive(8)
    frequency_seed: int = 0
    initial: Literal["lecun", "torch"] = "lecun"
    dtype: Literal["float32", "bfloat16"] = "float32"


def fourier_features(c_noise: jax.Array, frequencies: jax.Array) -> jax.Array:
    """`[B]` noise to `[B, 1 + 2 K]`: itself, then sines and cosines of `2 pi w c`."""
    angle = 2.0 * jnp.pi * c_noise[:, None] * frequencies
    return jnp.concatenate([c_noise[:, None], jnp.sin(angle), jnp.cos(angle)], -1)


class Extra(nn.Module):
    """A flow network's inputs beside the noise, as an embedding that is zero at first.

    `(share [B], condition [B, K] or None) -> [B, width]`. With zeros added a network starts as the
    one without intervals whose weights it was given.
    """

    width: int

    @nn.compact
    def __call__(self, share: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        angle = 0.5 * jnp.pi * share[:, None] * jnp.array([1.0, 2.0, 4.0, 8.0])
        inputs = jnp.concatenate([share[:, None], jnp.sin(angle), jnp.cos(angle)], -1)
        if condition is not None:
            inputs = jnp.concatenate([inputs, condition], -1)
        h = nn.silu(Dense(self.width, name="hidden")(inputs))
        return Dense(self.width, name="output", kernel_init=nn.initializers.zeros)(h)


class ResidualMlpNet(nn.Module):
    """See the module; `(x [B, F], c_noise [B], *of Extra) -> [B, F]`."""

    config: ResidualMlp

    @nn.compact
    def __call__(self, x: jax.Array, c_noise: jax.Array, *extra: jax.Array) -> jax.Array:
        c, dtype = self.config, DTYPES[self.config.dtype]

        def dense(inputs: jax.Array, features: int, name: str, dtype: Any = None) -> jax.Array:
            if c.initial == "lecun":
                return Dense(features, dtype=dtype, name=name)(inputs)
            bound = uniform(1.0 / math.sqrt(inputs.shape[-1]))
            torch: dict[str, Any] = {"kernel_init": uniform_fan_in(), "bias_init": bound}
            return Dense(features, dtype=dtype, name=name, **torch)(inputs)

        # A named generator: what a checkpoint was trained with must not depend on jax's default.
        key = jax.random.key(c.frequency_seed, impl="threefry2x32")
        features = fourier_features(c_noise, jax.random.normal(key, (c.frequencies,)))
        time = dense(features, c.embedding, "time_0")
        time = dense(nn.silu(time), c.embedding, "time_1")
        if extra:
            time = time + Extra(c.embedding, name="extra")(*extra)
        h = dense(x, c.embedding, "input") + time
        h = dense(h, c.width, "widen", dtype)
        for i in range(c.blocks):
            h = h + dense(nn.relu(h), c.width, f"block_{i}", dtype)
        return dense(nn.relu(h).astype(jnp.float32), x.shape[-1], "output")


@functools.lru_cache(maxsize=32)
def make_residual_mlp(config: ResidualMlp, features: int, *, interval: bool = False) -> Network:
    """A raw network for `make_denoiser` on `[B, features]` rows. Equal arguments give the same one.

    Args:
        config: sizes.
        features: features of a row.
        interval: it is a flow's and takes the length of a jump: `(params, x, c_noise, share [B])`.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    shapes = [(1, features), (1,), *([(1,)] if interval else [])]
    return from_linen(
        ResidualMlpNet(config), *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    )

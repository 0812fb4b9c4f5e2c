"""PDEArena's conditioned modern U-Net in plain numpy, from its description and by its names.

https://github.com/pdearena/pdearena, `pdearena/modules/conditioned/oned_unet.py`; channels first,
one field, no batch. Weights are drawn when they are first asked for: none of them is zero.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[float])


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1.0 + _erf(x / math.sqrt(2.0))) / 2.0


class NumpyUnet:
    """`(x [Cin, *N], time, conditions) -> [channels, *N]` in float64; `state` holds its weights.

    Args:
        hidden, multipliers, blocks: as PDEArena's `hidden_channels`, `ch_mults`, `n_blocks`.
        channels: that come out.
        circular: what lies beyond the ends for convolutions; else zeros. For the up-sampling it is
            zeros in any case.
        single: the embedding of the only condition is no list of one, as in its `twod_unet.py`.
        seed: of the weights.
    """

    def __init__(
        self,
        hidden: int,
        multipliers: tuple[int, ...],
        blocks: int,
        channels: int = 1,
        circular: bool = True,
        single: bool = False,
        seed: int = 0,
    ) -> None:
        self.hidden, self.multipliers, self.blocks = hidden, multipliers, blocks
        self.channels, self.circular, self.single = channels, circular, single
        self.state: dict[str, np.ndarray] = {}
        self._rng = np.random.default_rng(seed)

    def _weight(self, name: str, shape: tuple[int, ...], about: float, size: float) -> np.ndarray:
        if name not in self.state:
            drawn = about + size * self._rng.normal(size=shape)
            self.state[name] = drawn.astype(np.float32)
        assert self.state[name].shape == shape
        return self.state[name].astype(float)

    def _linear(self, name: str, x: np.ndarray, out: int) -> np.ndarray:
        weight = self._weight(f"{name}.weight", (out, len(x)), 0.0, len(x) ** -0.5)
        return weight @ x + self._weight(f"{name}.bias", (out,), 0.0, 0.3)

    def _norm(self, name: str, x: np.ndarray, groups: int) -> np.ndarray:
        grouped = x.reshape(groups, -1)
        mean, variance = grouped.mean(1, keepdims=True), grouped.var(1, keepdims=True)
        standard = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
        column = (len(x), *(1,) * (x.ndim - 1))
        gain = self._weight(f"{name}.weight", (len(x),), 1.0, 0.3).reshape(column)
        return standard * gain + self._weight(f"{name}.bias", (len(x),), 0.0, 0.3).reshape(column)

    def _conv(self, name: str, x: np.ndarray, out: int, width: int, stride: int = 1) -> np.ndarray:
        axes, reach = x.ndim - 1, width // 2
        shape = (out, len(x), *(width,) * axes)
        weight = self._weight(f"{name}.weight", shape, 0.0, (len(x) * width**axes) ** -0.5)
        beyond = [(0, 0), *[(reach, reach)] * axes]
        wide = np.pad(x, beyond, mode="wrap" if self.circular else "constant")
        bias = self._weight(f"{name}.bias", (out,), 0.0, 0.3)
        total = np.zeros((out, *(n // stride for n in x.shape[1:])))
        for at in itertools.product(range(width), repeat=axes):
            seen = tuple(slice(i, i + n, stride) for i, n in zip(at, x.shape[1:], strict=True))
            total += np.tensordot(weight[(..., *at)], wide[(slice(None), *seen)], 1)
        return total + bias.reshape(-1, *(1,) * axes)

    def _up(self, name: str, x: np.ndarray) -> np.ndarray:
        """Width 4, stride 2, padding 1: every point is laid over four, one is cut at both ends."""
        axes = x.ndim - 1
        shape = (len(x), len(x), *(4,) * axes)  # in, out
        weight = self._weight(f"{name}.weight", shape, 0.0, (len(x) * 2**axes) ** -0.5)
        wide = np.zeros((len(x), *(2 * n + 2 for n in x.shape[1:])))
        for at in itertools.product(range(4), repeat=axes):
            laid = tuple(slice(i, i + 2 * n, 2) for i, n in zip(at, x.shape[1:], strict=True))
            wide[(slice(None), *laid)] += np.tensordot(weight[(..., *at)].T, x, 1)
        bias = self._weight(f"{name}.bias", (len(x),), 0.0, 0.3)
        return wide[(slice(None), *[slice(1, -1)] * axes)] + bias.reshape(-1, *(1,) * axes)

    def _block(self, name: str, x: np.ndarray, out: int, embedding: np.ndarray) -> np.ndarray:
        h = self._conv(f"{name}.conv1", gelu(self._norm(f"{name}.norm1", x, 1)), out, 3)
        given = self._linear(f"{name}.cond_emb", embedding, out)
        h = h + given.reshape(-1, *(1,) * (x.ndim - 1))
        h = self._conv(f"{name}.conv2", gelu(self._norm(f"{name}.norm2", h, 1)), out, 3)
        return h + (x if len(x) == out else self._conv(f"{name}.shortcut", x, out, 1))

    def _embedding(self, name: str, value: float) -> np.ndarray:
        half = self.hidden // 2
        angles = value * np.exp(-math.log(10_000) * np.arange(half) / half)
        sines = np.concatenate([np.cos(angles), np.sin(angles)])
        hidden = self._linear(f"{name}.0", sines, 4 * self.hidden)
        return self._linear(f"{name}.2", gelu(hidden), 4 * self.hidden)

    def __call__(self, x: np.ndarray, time: float, conditions: tuple[float, ...]) -> np.ndarray:
        embedding = self._embedding("time_embed", time)
        for i, value in enumerate(conditions):
            name = "pde_emb" if self.single else f"pde_emb.{i}"
            embedding = embedding + self._embedding(name, value)
        x = self._conv("image_proj", x, self.hidden, 3)
        skips, width, at = [x], self.hidden, itertools.count()
        for level, factor in enumerate(self.multipliers):
            width *= factor
            for _ in range(self.blocks):
                x = self._block(f"down.{next(at)}.res", x, width, embedding)
                skips.append(x)
            if level < len(self.multipliers) - 1:
                x = self._conv(f"down.{next(at)}.conv", x, width, 3, stride=2)
                skips.append(x)
        for name in ("middle.res1", "middle.res2"):
            x = self._block(name, x, width, embedding)
        at = itertools.count()
        for level in reversed(range(len(self.multipliers))):
            for last in (*[False] * self.blocks, True):
                width //= self.multipliers[level] if last else 1
                x = np.concatenate([x, skips.pop()])
                x = self._block(f"up.{next(at)}.res", x, width, embedding)
            if level > 0:
                x = self._up(f"up.{next(at)}.conv", x)
        assert not skips
        return self._conv("final", gelu(self._norm("norm", x, 8)), self.channels, 3)

"""Networks `pde_speed` compares, what they cost, and how their weights reach the peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from jaxrl_rollouts.group_norm import GroupNorm
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.operators.layers import PeriodicConv
from jaxrl_rollouts.trees import PyTree

CHANNELS = 1


class PlainResnet(nn.Module):
    """PDEquinox's `DilatedResNet`, which APEBench calls `Dil`, in our layers: `[N, 1] -> [N, 1]`.

    Normalisation, convolution, then the activation (GELU's tanh form, as theirs); lifted and
    projected by convolutions of width 1; no second input and nothing it is told.
    """

    width: int
    blocks: int
    dilations: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = PeriodicConv(self.width, width=1)(x)
        for _ in range(self.blocks):
            h = x
            for dilation in self.dilations:
                h = PeriodicConv(self.width, dilation=dilation)(GroupNorm()(h))
                h = nn.gelu(h, approximate=True)
            x = x + h
        return PeriodicConv(CHANNELS, width=1)(x)


def make_plain(width: int, blocks: int, dilations: tuple[int, ...], points: int) -> FieldNetwork:
    """`PlainResnet` behind the signature of all networks; it sees the field only."""
    module = PlainResnet(width, blocks, dilations)

    def init(key: jax.Array) -> PyTree:
        return module.init(key, jnp.zeros((points, CHANNELS)))["params"]

    def apply(
        params: PyTree, field: jax.Array, noised: jax.Array, index: Any, conditions: jax.Array
    ) -> jax.Array:
        del noised, index, conditions
        said: Any = module.apply({"params": params}, field.T)
        return said.T

    return FieldNetwork(init, apply)


def shake(params: PyTree, key: jax.Array) -> PyTree:
    """Parameters with noise on all of them, so that zeros and ones hide no difference."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noised = [x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noised)


def shaken(net: FieldNetwork, key: jax.Array) -> PyTree:
    """Fresh parameters, shaken."""
    init_key, noise_key = jax.random.split(key)
    return shake(net.init(init_key), noise_key)


def write_weights(path: Path, params: PyTree) -> None:
    """All parameters as one `.npz`, named `layer/name`."""
    named: dict[str, Any] = {k: np.asarray(v) for k, v in flatten_dict(params, sep="/").items()}
    np.savez(path, **named)


def forward_operations(
    width: int, blocks: int, dilations: tuple[int, ...], points: int, *, plain: bool
) -> float:
    """Operations of one field's convolutions: 2 for every weight and grid point.

    A gradient step costs three times that: forward, gradients of inputs and of weights.
    """
    ends = 2 * CHANNELS * width if plain else 9 * CHANNELS * width  # 1 and 1; 3 on two, and 3
    return 2.0 * points * (blocks * len(dilations) * 3 * width**2 + ends)

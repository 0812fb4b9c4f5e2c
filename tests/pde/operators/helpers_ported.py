"""PDEArena's modern U-Net: its weights by the names they have there, as those of our U-Net.

Names and shapes as in `pdearena/modules/conditioned/{oned,twod}_unet.py` (MIT licence,
https://github.com/pdearena/pdearena). Nothing of torch is needed: a state dict is names and arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import Unet
from jaxrl_rollouts.trees import PyTree

# Our names of a layer's arrays -> torch's.
_ARRAYS = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# Layers of a block, ours -> theirs.
_BLOCK = {
    "GroupNorm_0": "norm1",
    "PeriodicConv_0": "conv1",
    "Dense_0": "cond_emb",
    "GroupNorm_1": "norm2",
    "PeriodicConv_1": "conv2",
    "Dense_1": "shortcut",  # where the width changes
}


def _stages(config: Unet) -> Iterator[tuple[str, str]]:
    """`(kind, their name)` of all that stands along the U, in the order it is called."""
    levels = range(len(config.multipliers))
    yield "PeriodicConv", "image_proj"
    for way, blocks, last in (("down", config.blocks, levels[-1]), ("up", config.blocks + 1, 0)):
        at = 0
        for level in levels if way == "down" else reversed(levels):
            for _ in range(blocks):
                yield "Block", f"{way}.{at}.res"
                at += 1
            if level != last:
                yield {"down": "PeriodicConv", "up": "PeriodicUpsample"}[way], f"{way}.{at}.conv"
                at += 1
        if way == "down":
            yield "Block", "middle.res1"
            yield "Block", "middle.res2"
    yield "GroupNorm", "norm"
    yield "PeriodicConv", "final"


def _layers(config: Unet, conditions: int, single: bool) -> dict[str, str]:
    """Our path of every layer -> their name of it."""
    layers: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for i in range(conditions + 1):
        theirs = "time_embed" if i == 0 else "pde_emb" if single else f"pde_emb.{i - 1}"
        layers |= {f"Embedding_0/Dense_{2 * i + j}": f"{theirs}.{2 * j}" for j in (0, 1)}
    for kind, theirs in _stages(config):
        ours = f"{kind}_{counts[kind]}"
        counts[kind] += 1
        parts = _BLOCK if kind == "Block" else {}
        layers |= {f"{ours}/{part}": f"{theirs}.{name}" for part, name in parts.items()}
        layers |= {} if parts else {ours: theirs}
    return layers


def _order(layer: str, array: str, shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Their axes in our order: torch has `[out, in, *width]`, and `[in, out, *width]` upwards.

    A shortcut is a convolution of width 1 there and a matrix here.
    """
    if array != "kernel":
        return (0,)
    shortcut = layer.startswith("Block") and layer.endswith("Dense_1")
    width = tuple(range(2, 2 + axes if shortcut else len(shape)))
    return (*width, 0, 1) if layer.startswith("PeriodicUpsample") else (*width, 1, 0)


def unet_from_pdearena(state: Mapping[str, Any], config: Unet, shape: FieldShape) -> PyTree:
    """Parameters of a `Unet` from a state dict `name -> array` of the conditioned modern U-Net.

    Those of `Unetmod-1d-64` (`Unet()`, one axis, a channel, two or three conditions) and of
    its like over two axes, without attention and AdaGN.
    """
    axes, conditions = len(shape.grid), shape.conditions
    shapes = jax.eval_shape(config.make(shape).init, jax.random.key(0))
    single = conditions == 1 and "pde_emb.0.weight" in state  # its 2-D file has no list of one
    layers = _layers(config, conditions, single)
    used = set()

    def ported(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        *names, array = (key.key for key in path)
        layer = "/".join(names)
        theirs = f"{layers[layer]}.{_ARRAYS[array]}"
        values, order = np.asarray(state[theirs]), _order(layer, array, leaf.shape, axes)
        ours = (1,) * (len(order) - len(leaf.shape)) + leaf.shape
        assert values.shape == tuple(ours[order.index(axis)] for axis in range(len(order)))
        used.add(theirs)
        return jnp.asarray(values.transpose(order).reshape(leaf.shape), leaf.dtype)

    params = jax.tree_util.tree_map_with_path(ported, shapes)
    assert used == set(state), "every array has its place"
    return params

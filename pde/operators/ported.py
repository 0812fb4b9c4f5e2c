"""Weights of other people's networks for ours: PDEArena's modern U-Net by the names it has there.

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

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.trees import PyTree

from ..emulator import FieldShape
from .unet import Unet

SOURCE = "PDEArena's state dict"
SHOWN = 3  # names in an error
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


def unet_from_pdearena(
    state: Mapping[str, Any],
    config: Unet,
    shape: FieldShape,
    prefix: str = "",
) -> PyTree:
    """Parameters of a `Unet` from a state dict of PDEArena's conditioned modern U-Net.

    Those of `Unetmod-1d-64` (`Unet()`, one axis, a channel, two or three conditions) and of
    its like over two axes, without attention and AdaGN. A `Unet` of the same settings and
    `zero_upsampling` then computes what PDEArena does, with its convolutions around a circle
    (`padding_mode="circular"`) on periodic axes and with its default, zeros, at walls.

    A checkpoint of Lightning has `prefix="model."` before its names; the moving average that
    PDE-Refiner is evaluated with is a dict of its own and has none.

    Args:
        state: name -> array, as torch has it; tensors on the CPU are read as well.
        config: of the network.
        shape: of the fields.
        prefix: of the names; entries without it are not looked at.

    Raises:
        DataError: entries are missing, left over or of another shape; the first ones are named.
        ConfigError: a setting is out of range.
    """
    axes, conditions = len(shape.grid), shape.conditions
    net = config.make(shape)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    found = {name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)}
    single = conditions == 1 and "pde_emb.0.weight" in found  # its 2-D file has no list of one
    layers = _layers(config, conditions, single)

    def name(path: tuple[Any, ...]) -> tuple[str, str, str]:
        *layer, array = (key.key for key in path)
        return "/".join(layer), array, f"{layers['/'.join(layer)]}.{_ARRAYS[array]}"

    names = {name(path)[-1]: None for path, _ in jax.tree_util.tree_leaves_with_path(shapes)}
    if missing := [key for key in names if key not in found]:
        expected = f"{len(names)} arrays of a U-Net of these settings"
        raise DataError(SOURCE, _some(missing), "nothing", expected, _SETTINGS)
    if left := [key for key in found if key not in names]:
        expected = "nothing of these names in a U-Net of these settings"
        raise DataError(SOURCE, _some(left), f"{len(left)} arrays left over", expected, _SETTINGS)

    def ported(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        layer, array, theirs = name(path)
        values, order = np.asarray(found[theirs]), _order(layer, array, leaf.shape, axes)
        ours = (1,) * (len(order) - len(leaf.shape)) + leaf.shape
        expected = tuple(ours[order.index(axis)] for axis in range(len(order)))
        if values.shape != expected:
            raise DataError(SOURCE, theirs, list(values.shape), list(expected), _SETTINGS)
        return jnp.asarray(values.transpose(order).reshape(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(ported, shapes)


_SETTINGS = "hidden, multipliers, blocks, channels, history and conditions must be the network's"


def _some(names: list[str]) -> str:
    """The first names of many."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")

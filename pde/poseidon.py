"""Poseidon's released weights as an emulator: a local safetensors file, without torch.

emulator = load_poseidon("Poseidon-T/model.safetensors")       # density, velocity, pressure, 128^2
rolled = emulator.roll(u0, 14)                                  # u0 [N, 4, 128, 128]
emulator = load_poseidon("Poseidon-T/model.safetensors", fields)
fitted = fit("mse", fields, network=emulator.network, start=emulator.params)

Names and shapes are those of `scOT/model.py` (camlab-ethz/poseidon). The files on the Hub are
under CC BY-NC 4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.record.tensors import read_arrays
from jaxrl_rollouts.trees import PyTree

from .emulator import FieldShape
from .fieldset import FieldSet, Scaling
from .fitting import untrained
from .objectives import Mse
from .operators.poseidon import Poseidon
from .trained import TrainedEmulator
from .training_fields import parted

Arrays = Mapping[str, np.ndarray]
CHANNELS = ("density", "velocity_x", "velocity_y", "pressure")
# Of `scOT/problems/fluids/normalization_constants.py`.
MEANS, DEVIATIONS = (0.8, 0.0, 0.0, 0.0), (0.31, 0.391, 0.356, 0.185)
UNITS = tuple(Scaling(mean, 1 / size) for mean, size in zip(MEANS, DEVIATIONS, strict=True))
POINTS = (128, 128)
EMBED, RECOVER = "embeddings.patch_embeddings.projection", "patch_recovery.projection"


def load_poseidon(
    path: str | Path,
    fields: FieldSet | None = None,
    *,
    lead: float = 0.05,
    window: int = 16,
    seeds: int = 1,
    key: jax.Array | int = 0,
) -> TrainedEmulator:
    """An emulator with the weights of a file, whose sizes are read from it.

    Args:
        path: `model.safetensors` as released.
        fields: trajectories to continue with; channels, grid and scales are theirs. Where they have
            other channels than the file, the patch embedding and recovery are new. None: the
            fluids of the pretraining, in their units.
        lead: time of a step over that of a trajectory, in [0, 1]: 1/20 from frame to frame of the
            pretraining's files.
        window: tokens along each axis of a window; the file does not say it.
        seeds: leading axis of the parameters.
        key: for layers that are new.

    Raises:
        CheckpointError: another file, or a damaged one.
        ConfigError: constant channels, or points that patches and windows do not fill.
        MissingExtraError: safetensors is not installed.
    """
    path = Path(path)
    arrays = read_arrays(path)
    network = _network_of(path, arrays, lead, window)
    if fields is None:
        own = TrainedEmulator(
            replace(network, residual_scale=(1.0,)),
            Mse(),
            1.0,
            None,
            len(CHANNELS),
            POINTS,
            units=UNITS,
            facts={"channel_names": list(CHANNELS), "data": path.name},
        )
    else:
        fields, u = parted(fields, "auto")
        own = untrained(Mse(), network, fields, u)
        if own.constant:
            expected = "fields whose channels all change"
            raise ConfigError("fields", f"constant channels {sorted(own.constant)}", expected)
        scale = own.scale if isinstance(own.scale, tuple) else (own.scale,)
        own = replace(own, network=replace(network, residual_scale=scale))
    shape = own.net.shape
    assert shape is not None and isinstance(own.network, Poseidon)
    keys = jax.random.split(as_key(key), seeds)
    each = [ported(path, arrays, own.network, shape, key) for key in keys]
    return replace(own, params=jax.tree.map(lambda *leaves: jnp.stack(leaves), *each))


def ported(
    path: Path, arrays: Arrays, network: Poseidon, shape: FieldShape, key: jax.Array
) -> PyTree:
    """Parameters of a network on single frames by the arrays of a file.

    The embedding and the recovery keep their initial values where the channels are others; weights
    of conditions, which the released network does not have, begin at zero.
    """
    net, found = network.make(shape), dict(_converted(path, arrays, network))
    shapes = jax.eval_shape(net.init, key)
    if found["scot/Mixup_0/kernel"].shape == shapes["scot"]["Mixup_0"]["kernel"].shape:
        params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    else:
        params = jax.tree.map(np.array, net.init(key))
        found = {name: value for name, value in found.items() if not _at_an_end(name)}
    for name, value in found.items():
        *folders, last = name.split("/")
        layer = params
        for folder in folders:
            layer = layer[folder]
        if "ConditionedNorm" in name and last == "kernel":
            layer[last][:1] = value  # a row for the lead time, then one for each condition
        elif value.shape == layer[last].shape:
            layer[last] = value
        else:
            expected = f"{name} of {list(layer[last].shape)}"
            raise CheckpointError(f"{path}: found {list(value.shape)}, expected {expected}")
    return jax.tree.map(jnp.asarray, params)


def _at_an_end(name: str) -> bool:
    return name.split("/")[1] in ("embed", "recover", "bias", "Mixup_0")


def _network_of(path: Path, arrays: Arrays, lead: float, window: int) -> Poseidon:
    """The sizes that names and shapes say."""
    first = "encoder.layers.0.blocks.0.attention.self.logit_scale"
    for name in (f"{EMBED}.weight", first, "embeddings.norm.weight.weight"):
        if name not in arrays:
            found = next(iter(sorted(arrays)), "no array")
            expected = f"{name}: weights of scOT with a lead time"
            raise CheckpointError(f"{path}: found {found}, expected {expected}")

    def count(begin: str) -> int:
        numbers = (int(n[len(begin) :].split(".")[0]) for n in arrays if n.startswith(begin))
        return 1 + max(numbers, default=-1)

    stages = count("encoder.layers.")
    embed = arrays[f"{EMBED}.weight"]
    return Poseidon(
        width=len(embed),
        depths=tuple(count(f"encoder.layers.{stage}.blocks.") for stage in range(stages)),
        heads=arrays[first].size,
        window=window,
        patch=embed.shape[-1],
        skips=count("residual_blocks.0."),
        lead=lead,
    )


def _converted(path: Path, arrays: Arrays, network: Poseidon) -> Iterator[tuple[str, np.ndarray]]:
    """Our name of every array and its value in our layout."""
    for name, kind, theirs in _layers(network):
        for ours, value in _CONVERSIONS[kind](_Reader(path, arrays, theirs)):
            yield f"scot/{name}{ours}", value


class _Reader:
    """Arrays whose names begin with the name of a layer."""

    def __init__(self, path: Path, arrays: Arrays, layer: str) -> None:
        self.path, self.arrays, self.layer = path, arrays, layer

    def __call__(self, name: str) -> np.ndarray:
        whole = f"{self.layer}.{name}".strip(".")
        if whole not in self.arrays:
            raise CheckpointError(f"{self.path}: found no {whole}, expected scOT's layers")
        return np.asarray(self.arrays[whole], np.float32)


def _layers(network: Poseidon) -> Iterator[tuple[str, str, str]]:
    """Our name, kind and their name of every layer, in the order in which ours are counted."""
    counts: Counter[str] = Counter()

    def numbered(kind: str) -> str:
        counts[kind] += 1
        return f"{kind}_{counts[kind] - 1}"

    def blocks(theirs: str, depth: int) -> Iterator[tuple[str, str, str]]:
        for block in range(depth):
            at = f"{theirs}.blocks.{block}"
            yield numbered("ConditionedNorm"), "norm", f"{at}.layernorm_before"
            yield numbered("AttentionMixer"), "attention", f"{at}.attention"
            yield numbered("ConditionedNorm"), "norm", f"{at}.layernorm_after"
            yield numbered("Dense"), "linear", f"{at}.output.dense"
            yield numbered("Dense"), "linear", f"{at}.intermediate.dense"

    deepest = len(network.depths) - 1
    yield "embed", "patches", EMBED
    yield numbered("ConditionedNorm"), "norm", "embeddings.norm"
    for stage, depth in enumerate(network.depths):
        theirs = f"encoder.layers.{stage}"
        yield from blocks(theirs, depth)
        if stage < deepest:
            yield f"merge_{stage}", "matrix", f"{theirs}.downsample.reduction"
            yield numbered("ConditionedNorm"), "norm", f"{theirs}.downsample.norm"
    for stage in range(deepest, -1, -1):
        theirs = f"decoder.layers.{deepest - stage}"
        for block in range(network.skips if stage < deepest else 0):
            yield numbered("ConditionedNorm"), "norm", f"residual_blocks.{stage}.{block}.norm"
            yield numbered("SkipBlock"), "skip", f"residual_blocks.{stage}.{block}"
        yield from blocks(theirs, network.depths[stage])
        if stage:
            yield f"unmerge_{stage}", "matrix", f"{theirs}.upsample.upsample"
            yield numbered("ConditionedNorm"), "norm", f"{theirs}.upsample.norm"
            yield f"mixup_{stage}", "matrix", f"{theirs}.upsample.mixup"
    yield "", "recovery", RECOVER
    yield "Mixup_0", "convolution", "patch_recovery.mixup"


def _linear(get: _Reader, name: str = "", ours: str = "", bias: bool = True) -> Any:
    yield f"{ours}/kernel", get(f"{name}.weight".strip(".")).T
    if bias:
        yield f"{ours}/bias", get(f"{name}.bias".strip("."))


def _norm(get: _Reader) -> Any:
    yield "/Dense_0/kernel", np.concatenate([get("weight.weight"), get("bias.weight")]).T
    yield "/Dense_0/bias", np.concatenate([get("weight.bias"), get("bias.bias")])


def _attention(get: _Reader) -> Any:
    yield "/log_sharpness", get("self.logit_scale").ravel()
    for part in ("query", "key", "value"):
        yield from _linear(get, f"self.{part}", f"/{part}", bias=part != "key")
    mlp = "self.continuous_position_bias_mlp"
    yield from _linear(get, f"{mlp}.0", "/position_in")
    yield from _linear(get, f"{mlp}.2", "/position_out", bias=False)
    yield from _linear(get, "output.dense", "/out")


def _skip(get: _Reader) -> Any:
    yield "/Depthwise_0/kernel", get("dwconv.weight")[:, 0].transpose(1, 2, 0)
    yield "/Depthwise_0/bias", get("dwconv.bias")
    yield from _linear(get, "pwconv2", "/Dense_0")
    yield from _linear(get, "pwconv1", "/Dense_1")
    yield "/scale", get("weight")


def _patches(get: _Reader) -> Any:
    """A convolution `[out, in, p, p]` with the stride of its width: a product with patches."""
    weight = get("weight")
    yield "/kernel", weight.transpose(2, 3, 1, 0).reshape(-1, len(weight))
    yield "/bias", get("bias")


def _recovery(get: _Reader) -> Any:
    """A transposed convolution `[in, out, p, p]`, likewise."""
    weight = get("weight")
    yield "recover/kernel", weight.transpose(0, 2, 3, 1).reshape(len(weight), -1)
    yield "bias", get("bias")


_CONVERSIONS = {
    "linear": _linear,
    "matrix": lambda get: _linear(get, bias=False),
    "norm": _norm,
    "attention": _attention,
    "skip": _skip,
    "patches": _patches,
    "recovery": _recovery,
    "convolution": lambda get: [("/kernel", get("weight").transpose(2, 3, 1, 0))],
}

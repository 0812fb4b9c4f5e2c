"""scOT as its authors' `scOT/model.py` has it: names, shapes and the forward pass, in numpy.

Written from the torch code of camlab-ethz/poseidon and of Swin V2 in transformers, without any of
ours: fields `[C, H, W]`, tokens `[H, W, d]`, weights as in a state dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import erf

Weights = Mapping[str, np.ndarray]


class Sizes(NamedTuple):
    channels: int = 3
    width: int = 6
    depths: tuple[int, ...] = (2, 2)
    heads: int = 3
    window: int = 4
    patch: int = 4
    skips: int = 2


def _norm_shapes(name: str, d: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in ("weight", "bias"):
        yield f"{name}.{part}.weight", (d, 1)
        yield f"{name}.{part}.bias", (d,)


def _block_shapes(name: str, d: int, heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    own = f"{name}.attention.self"
    yield f"{own}.logit_scale", (heads, 1, 1)
    yield f"{own}.continuous_position_bias_mlp.0.weight", (512, 2)
    yield f"{own}.continuous_position_bias_mlp.0.bias", (512,)
    yield f"{own}.continuous_position_bias_mlp.2.weight", (heads, 512)
    for part in ("query", "key", "value"):
        yield f"{own}.{part}.weight", (d, d)
        if part != "key":
            yield f"{own}.{part}.bias", (d,)
    shapes = {"attention.output": (d, d), "intermediate": (4 * d, d), "output": (d, 4 * d)}
    for part, shape in shapes.items():
        yield f"{name}.{part}.dense.weight", shape
        yield f"{name}.{part}.dense.bias", shape[:1]
    yield from _norm_shapes(f"{name}.layernorm_before", d)
    yield from _norm_shapes(f"{name}.layernorm_after", d)


def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a state dict."""
    c, d, p, last = sizes.channels, sizes.width, sizes.patch, len(sizes.depths) - 1
    found: dict[str, tuple[int, ...]] = {
        "embeddings.patch_embeddings.projection.weight": (d, c, p, p),
        "embeddings.patch_embeddings.projection.bias": (d,),
        "patch_recovery.projection.weight": (d, c, p, p),
        "patch_recovery.projection.bias": (c,),
        "patch_recovery.mixup.weight": (c, c, 5, 5),
    }
    found |= _norm_shapes("embeddings.norm", d)
    for stage, depth in enumerate(sizes.depths):
        width, heads = d * 2**stage, sizes.heads * 2**stage
        down, up = f"encoder.layers.{stage}", f"decoder.layers.{last - stage}"
        for block in range(depth):
            found |= _block_shapes(f"{down}.blocks.{block}", width, heads)
            found |= _block_shapes(f"{up}.blocks.{block}", width, heads)
        if stage < last:
            found[f"{down}.downsample.reduction.weight"] = (2 * width, 4 * width)
            found |= _norm_shapes(f"{down}.downsample.norm", 2 * width)
            for block in range(sizes.skips):
                name = f"residual_blocks.{stage}.{block}"
                found[f"{name}.dwconv.weight"] = (width, 1, 7, 7)
                found[f"{name}.pwconv1.weight"] = (4 * width, width)
                found[f"{name}.pwconv1.bias"] = (4 * width,)
                found[f"{name}.pwconv2.weight"] = (width, 4 * width)
                found |= {f"{name}.{part}": (width,) for part in ("dwconv.bias", "weight")}
                found[f"{name}.pwconv2.bias"] = (width,)
                found |= _norm_shapes(f"{name}.norm", width)
        if stage:
            found[f"{up}.upsample.upsample.weight"] = (2 * width, width)
            found[f"{up}.upsample.mixup.weight"] = (width // 2, width // 2)
            found |= _norm_shapes(f"{up}.upsample.norm", width // 2)
    return found


def weights(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """A state dict, none of whose numbers is zero."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes(sizes).items()
    }


def _linear(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def _norm(w: Weights, name: str, x: np.ndarray, time: float) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    variance = (x**2).mean(-1, keepdims=True) - mean**2
    scale, shift = (
        w[f"{name}.{part}.weight"][:, 0] * time + w[f"{name}.{part}.bias"]
        for part in ("weight", "bias")
    )
    return scale * (x - mean) / np.sqrt(variance + 1e-5) + shift


def _conv(x: np.ndarray, weight: np.ndarray, pad: int) -> np.ndarray:
    """torch's Conv2d of stride 1 on `[C, H, W]`, zeros beyond the ends, without a bias."""
    _, h, w = x.shape
    wide = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    return np.sum(
        [
            np.einsum("oi,ihw->ohw", weight[:, :, a, b], wide[:, a : a + h, b : b + w])
            for a in range(weight.shape[2])
            for b in range(weight.shape[3])
        ],
        0,
    )


def _attention(
    w: Weights, name: str, x: np.ndarray, heads: int, window: int, far: np.ndarray
) -> np.ndarray:
    """One window `[n, d]`; `far` `[n, n]` where the mask hides."""
    own, n, each = f"{name}.self", len(x), x.shape[1] // heads
    q, k, v = (_linear(w, f"{own}.{part}", x) for part in ("query", "key", "value"))
    at = np.array([(a, b) for a in range(window) for b in range(window)])
    offset = 8.0 * (at[:, None] - at[None, :]) / (window - 1)
    offset = np.sign(offset) * np.log2(np.abs(offset) + 1.0) / np.log2(8)
    mlp = f"{own}.continuous_position_bias_mlp"
    bias = _linear(w, f"{mlp}.2", np.maximum(_linear(w, f"{mlp}.0", offset), 0.0))
    out = np.empty_like(x)
    for head in range(heads):
        part = slice(head * each, (head + 1) * each)
        unit = [y[:, part] / np.linalg.norm(y[:, part], axis=1, keepdims=True) for y in (q, k)]
        scale = np.exp(min(w[f"{own}.logit_scale"][head, 0, 0], np.log(100.0)))
        logits = unit[0] @ unit[1].T * scale + 16 / (1 + np.exp(-bias[..., head])) - 200.0 * far
        share = np.exp(logits - logits.max(1, keepdims=True))
        out[:, part] = share / share.sum(1, keepdims=True) @ v[:, part]
    assert n == window**2
    return _linear(w, f"{name}.output.dense", out)


def block(
    w: Weights, name: str, x: np.ndarray, time: float, heads: int, window: int, shifted: bool
) -> np.ndarray:
    """`ScOTLayer` on square `[h, h, d]`."""
    size = len(x)
    window = min(window, size)
    shift = window // 2 if shifted and size > window else 0
    moved = np.roll(x, (-shift, -shift), (0, 1))
    # The mask's numbers: three slices along an axis.
    at = np.arange(size)
    region = (at >= size - window).astype(int) + (at >= size - shift) if shift else 0 * at
    mixed = np.empty_like(x)
    for a in range(0, size, window):
        for b in range(0, size, window):
            here = np.s_[a : a + window, b : b + window]
            number = (3 * region[:, None] + region[None, :])[here].ravel()
            tokens = moved[here].reshape(window**2, -1)
            far = number[:, None] != number[None, :]
            done = _attention(w, f"{name}.attention", tokens, heads, window, far)
            mixed[here] = done.reshape(window, window, -1)
    mixed = np.roll(mixed, (shift, shift), (0, 1))
    x = x + _norm(w, f"{name}.layernorm_before", mixed, time)
    hidden = _gelu(_linear(w, f"{name}.intermediate.dense", x))
    after = _linear(w, f"{name}.output.dense", hidden)
    return x + _norm(w, f"{name}.layernorm_after", after, time)


def _skip(w: Weights, name: str, x: np.ndarray, time: float) -> np.ndarray:
    """`ConvNeXtBlock`."""
    moved = x.transpose(2, 0, 1)
    kernel = w[f"{name}.dwconv.weight"]
    h = np.stack(
        [_conv(one[None], own[None], 3)[0] for one, own in zip(moved, kernel, strict=True)]
    )
    h = h.transpose(1, 2, 0) + w[f"{name}.dwconv.bias"]
    h = _gelu(_linear(w, f"{name}.pwconv1", _norm(w, f"{name}.norm", h, time)))
    return x + w[f"{name}.weight"] * _linear(w, f"{name}.pwconv2", h)


def forward(state: Weights, sizes: Sizes, field: np.ndarray, time: float) -> np.ndarray:
    """The released prediction of a field `[C, H, H]`."""
    w = {name: value.astype(np.float64) for name, value in state.items()}
    p, last = sizes.patch, len(sizes.depths) - 1
    c, h, _ = field.shape
    patches = field.reshape(c, h // p, p, h // p, p)
    x = np.einsum("chawb,dcab->hwd", patches, w["embeddings.patch_embeddings.projection.weight"])
    x = x + w["embeddings.patch_embeddings.projection.bias"]
    x = _norm(w, "embeddings.norm", x, time)
    kept = []
    for stage, depth in enumerate(sizes.depths):
        name, before = f"encoder.layers.{stage}", x
        for i in range(depth):
            heads = sizes.heads * 2**stage
            x = block(w, f"{name}.blocks.{i}", x, time, heads, sizes.window, i % 2 == 1)
        kept.append(x)
        if stage < last:
            y = x + before
            y = np.concatenate([y[::2, ::2], y[1::2, ::2], y[::2, 1::2], y[1::2, 1::2]], -1)
            y = _linear(w, f"{name}.downsample.reduction", y)
            x = _norm(w, f"{name}.downsample.norm", y, time)
    for stage in range(last, -1, -1):
        name = f"decoder.layers.{last - stage}"
        if stage < last:
            skip = kept[stage]
            for i in range(sizes.skips):
                skip = _skip(w, f"residual_blocks.{stage}.{i}", skip, time)
            x = x + skip
        depth = sizes.depths[stage]
        for i in range(depth):
            # Blocks were appended from the last to the first.
            shifted, heads = (depth - 1 - i) % 2 == 1, sizes.heads * 2**stage
            x = block(w, f"{name}.blocks.{i}", x, time, heads, sizes.window, shifted)
        if stage:
            y = _linear(w, f"{name}.upsample.upsample", x)
            n, d = len(x), x.shape[-1] // 2
            y = y.reshape(n, n, 2, 2, d).transpose(0, 2, 1, 3, 4).reshape(2 * n, 2 * n, d)
            x = _linear(w, f"{name}.upsample.mixup", _norm(w, f"{name}.upsample.norm", y, time))
    y = np.einsum("hwd,dcab->chawb", x, w["patch_recovery.projection.weight"])
    y = y.reshape(field.shape) + w["patch_recovery.projection.bias"][:, None, None]
    return _conv(y, w["patch_recovery.mixup.weight"], 2)

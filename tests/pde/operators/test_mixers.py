"""Mixers against plain numpy, in their limits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.pde.operators.mixers import (
    AttentionMixer,
    Depthwise,
    DriftMixer,
    FourierMixer,
    band_numbers,
    low_set,
    relative,
    separated,
    unwindowed,
    windowed,
)

CIRCLES = ("periodic", "periodic")
PADS = {"periodic": "wrap", "zero": "constant", "edge": "edge"}


def tokens(grid: tuple[int, int] = (8, 12), features: int = 4, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(*grid, features)), jnp.float32)


def stirred(module: Any, x: jax.Array, seed: int = 1) -> Any:
    """Parameters without a zero among them."""
    params = module.init(jax.random.key(0), x)
    leaves, treedef = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    moved = [leaf + 0.3 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(treedef, moved)


def test_low_sets_hold_a_wavenumber_with_its_negative() -> None:
    low = low_set((32, 32), 0.562)
    k = np.fft.fftfreq(32, 1 / 32)
    np.testing.assert_array_equal(low[:, 0], np.abs(k) < 0.562 * 16)
    np.testing.assert_array_equal(low[1:], low[1:][::-1])
    assert low[0].sum() == 9
    assert low.sum() == 17 * 9


def test_bands_are_of_true_lengths() -> None:
    true = band_numbers((16, 16), 6)
    np.testing.assert_array_equal(true[1:], true[1:][::-1])
    assert true[-1, 0] == 0  # one wave backwards is as long as one forwards
    assert set(np.unique(true)) == set(range(6))


def drift_by_hand(x: np.ndarray, params: Any, low: np.ndarray, band: np.ndarray) -> np.ndarray:
    """The gate and the mixing, bin by bin; no local branch."""
    modes = np.fft.rfft2(x, axes=(0, 1), norm="ortho")
    weight = params["real"] + 1j * params["imaginary"]
    alpha = np.zeros(modes.shape)
    for channel in range(x.shape[-1]):
        size = np.abs(modes[..., channel])
        means = np.array([size[band == b].mean() if (band == b).any() else 0 for b in range(6)])
        hidden = np.maximum(means @ params["gate_in"]["kernel"] + params["gate_in"]["bias"], 0)
        said = hidden @ params["gate_out"]["kernel"] + params["gate_out"]["bias"]
        alpha[..., channel] = (1 / (1 + np.exp(-said)))[band]
    fused = np.where(low[..., None], alpha * (modes @ weight), (1 - alpha) * modes)
    return np.fft.irfft2(fused, s=x.shape[:2], axes=(0, 1), norm="ortho")


def test_drift_against_its_definition() -> None:
    x = tokens((8, 12))
    mixer = DriftMixer(CIRCLES, hidden=5, local=False)
    variables = stirred(mixer, x)
    params = jax.tree.map(np.asarray, variables["params"])
    low = low_set((8, 12), 0.562)
    band = band_numbers((8, 12), 6)
    expected = drift_by_hand(np.asarray(x, np.float64), params, low, band)
    np.testing.assert_allclose(mixer.apply(variables, x), expected, atol=2e-5)


def test_switches_of_the_mixer_take_one_part_away() -> None:
    x = tokens((8, 8))
    names = {"real", "imaginary", "gate_in", "gate_out", "depthwise", "linear"}
    gone = {"mix": {"real", "imaginary"}, "gate": {"gate_in", "gate_out"}}
    gone["local"] = {"depthwise", "linear"}
    for part, lost in gone.items():
        mixer = DriftMixer(CIRCLES, **{part: False})
        params = mixer.init(jax.random.key(0), x)["params"]
        assert set(params) == names - lost
    bare = DriftMixer(CIRCLES, mix=False, gate=False, local=False)
    np.testing.assert_allclose(bare.apply({}, x), x, atol=1e-5)


@pytest.mark.parametrize("padding", [CIRCLES, ("zero", "edge")])
@pytest.mark.parametrize("width", [3, 7])
def test_both_forms_of_the_depthwise_convolution_are_its_definition(
    padding: Any, width: int
) -> None:
    x = tokens((8, 12), 3)
    layers = [Depthwise(width, padding, form=form) for form in ("matmul", "conv")]
    variables = stirred(layers[0], x)
    kernel, half = np.asarray(variables["params"]["kernel"]), width // 2
    wide = np.asarray(x)
    for axis, kind in enumerate(padding):
        beyond = [(0, 0)] * 3
        beyond[axis] = (half, half)
        wide = np.pad(wide, beyond, PADS[kind])
    expected = np.zeros(x.shape) + np.asarray(variables["params"]["bias"])
    for i in range(width):
        for j in range(width):
            expected += wide[i : i + 8, j : j + 12] * kernel[i, j]
    for layer in layers:
        np.testing.assert_allclose(layer.apply(variables, x), expected, atol=1e-5)


def test_windows_and_back() -> None:
    x = tokens((8, 12))
    apart = windowed(x, (4, 6))
    assert apart.shape == (4, 24, 4)
    np.testing.assert_array_equal(apart[1, 7], x[1, 7])  # row 1, column 6 + 1
    np.testing.assert_array_equal(unwindowed(apart, (4, 6), (8, 12)), x)


def attention_by_hand(x: np.ndarray, p: Any, window: int, heads: int, shift: int, cut: bool) -> Any:
    """Token by token, each looking at those of its window."""
    h, w, d = x.shape
    each, y = d // heads, np.zeros(x.shape)
    q = x @ p["query"]["kernel"] + p["query"]["bias"]
    k, v = x @ p["key"]["kernel"], x @ p["value"]["kernel"] + p["value"]["bias"]
    for i in range(h):
        for j in range(w):
            a, b = (i - shift) % h, (j - shift) % w  # in the shifted picture
            for head in range(heads):
                part = slice(head * each, (head + 1) * each)
                logits, values = [], []
                for m in range(a // window * window, a // window * window + window):
                    for n in range(b // window * window, b // window * window + window):
                        r, s = (m + shift) % h, (n + shift) % w
                        qq, kk = q[i, j, part], k[r, s, part]
                        cosine = qq @ kk / np.linalg.norm(qq) / np.linalg.norm(kk)
                        scale = np.exp(min(p["log_sharpness"][head], np.log(100)))
                        offset = 8.0 * np.array([a - m, b - n]) / (window - 1)
                        offset = np.sign(offset) * np.log2(1 + np.abs(offset)) / 3
                        hid = np.maximum(
                            offset @ p["position_in"]["kernel"] + p["position_in"]["bias"], 0
                        )
                        said = (hid @ p["position_out"]["kernel"])[head]
                        logit = cosine * scale + 16 / (1 + np.exp(-said))
                        around = (m >= h - shift) != (a >= h - shift) or (n >= w - shift) != (
                            b >= w - shift
                        )
                        logits.append(logit - 200.0 * (cut and around and shift > 0))
                        values.append(v[r, s, part])
                weights = np.exp(np.array(logits) - max(logits))
                y[i, j, part] = weights @ np.array(values) / weights.sum()
    return y @ p["out"]["kernel"] + p["out"]["bias"]


@pytest.mark.parametrize(("shifted", "cut"), [(False, False), (True, False), (True, True)])
def test_window_attention_against_a_loop(shifted: bool, cut: bool) -> None:
    x = tokens((8, 8), 6)
    mixer = AttentionMixer(("zero", "zero") if cut else CIRCLES, 4, 2, 5, shifted)
    variables = stirred(mixer, x)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"])
    expected = attention_by_hand(np.asarray(x, np.float64), params, 4, 2, 2 * shifted, cut)
    np.testing.assert_allclose(mixer.apply(variables, x), expected, atol=2e-4)


def test_where_an_axis_ends_windows_do_not_go_around() -> None:
    x = tokens((8, 8), 4)
    mixer = AttentionMixer(("zero", "zero"), 4, 2, 5, True)
    variables = stirred(mixer, x)
    said, moved = (mixer.apply(variables, y) for y in (x, x.at[-1, :].add(3.0)))
    np.testing.assert_allclose(said[0], moved[0], atol=1e-5)
    assert np.abs(said[-1] - moved[-1]).max() > 1e-2


def test_positions_are_log_spaced_and_signed() -> None:
    offsets, whose = relative((3, 3))
    np.testing.assert_allclose(offsets[:3, 0], -np.log2(9.0) / 3)
    np.testing.assert_allclose(offsets[whose[4, 4]], 0.0)
    np.testing.assert_allclose(offsets[whose[0, 8]], -offsets[whose[8, 0]])


def test_separated_windows() -> None:
    none = separated((8, 8), (4, 4), (2, 2), (False, False))
    both = separated((8, 8), (4, 4), (2, 2), (True, True))
    assert none.all()
    assert both[0].all() and not both[3].all()  # only windows at the far ends are cut
    assert both[3].sum() == 4 * 4 * 4  # into four quarters of four tokens


def test_a_fourier_mixer_keeps_no_more_modes_than_a_grid_has() -> None:
    x = tokens((4, 4))
    mixer = FourierMixer(modes=9)
    params = mixer.init(jax.random.key(0), x)
    assert params["params"]["SpectralConv_0"]["real"].shape == (4, 2, 4, 4)
    assert mixer.apply(params, x).shape == x.shape

"""Ends of an axis: walls, Dirichlet values and Neumann, of each side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.boundaries import between_ends, is_known, lift
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.fieldset import Scaling
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, PeriodicUpsample, paddings

ONE = (Scaling(),)


def test_kinds_in_words() -> None:
    for kind in ("", "periodic", "wall", "dirichlet", "dirichlet=1.5|neumann", "dirichlet=0,3"):
        assert is_known(kind)
    for kind in ("closed", "dirichlet=high", "dirichlet=nan", "wall|periodic", "open/wall"):
        assert not is_known(kind)
    kinds = ("dirichlet=2", "neumann", "dirichlet|neumann", "open|wall", "periodic")
    assert paddings(kinds, 5) == ("zero", "edge", "zero|edge", "edge|zero", "periodic")
    with pytest.raises(DataError, match="boundaries: found .*expected 1: periodic, or wall"):
        pde.from_arrays(np.zeros((1, 2, 8)), boundaries="dirichlet=high")


def heat(u: np.ndarray, low: str, high: str, values: tuple[float, float]) -> np.ndarray:
    """`u + 0.2 (u[i - 1] - 2 u[i] + u[i + 1])` with ghost points of these ends."""
    before = values[0] if low == "dirichlet" else u[0]
    behind = values[1] if high == "dirichlet" else u[-1]
    wide = np.concatenate([[before], u, [behind]])
    return u + 0.2 * (wide[:-2] - 2 * u + wide[2:])


@pytest.mark.parametrize("form", ["matmul", "conv"])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("dirichlet", "dirichlet"),
        ("dirichlet", "neumann"),
        ("neumann", "dirichlet"),
        ("neumann",) * 2,
    ],
)
def test_one_convolution_is_a_step_of_heat_between_any_ends(form: Any, low: str, high: str) -> None:
    """With values of 3 and -1 at the ends; a straight line between them would not change."""
    values, units = (3.0, -1.0), (Scaling(0.5, 2.0),)
    text = [f"{k}={v}" if k == "dirichlet" else k for k, v in zip((low, high), values, strict=True)]
    boundary = "|".join(text)
    u = np.random.default_rng(0).normal(size=16)
    layer = PeriodicConv(1, padding=paddings((boundary,), 1), form=form)
    kernel = jnp.array([0.2, -0.4, 0.2])[:, None, None]

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        given = {"params": {"kernel": kernel, "bias": jnp.zeros(1)}}
        return layer.apply(given, field.T).T  # type: ignore[union-attr]

    net = FieldNetwork(lambda key: {}, apply, shape=FieldShape(1, 16))
    net = between_ends(net, (boundary,), units)
    seen = (u - 0.5) * 2.0
    change = np.asarray(net.apply({}, jnp.asarray(seen)[None], None, 0.0, None))[0] / 2.0
    np.testing.assert_allclose(u + change, heat(u, low, high, values), atol=1e-5)


def test_what_is_subtracted_is_a_line_along_one_axis_and_meets_its_ends_in_the_plane() -> None:
    line = lift((9,), ("dirichlet=1|dirichlet=3",), ONE)[0]
    np.testing.assert_allclose(line, 1 + 2 * np.arange(1, 10) / 10, rtol=1e-6)
    np.testing.assert_allclose(lift((9, 4), ("dirichlet=2|neumann", "periodic"), ONE), 2.0)
    plane = lift((99, 99), ("dirichlet=0,5", "dirichlet=4,5"), (Scaling(), Scaling(5.0, 2.0)))
    np.testing.assert_allclose(plane[1], 0.0, atol=1e-6)
    assert plane[0, 0, 49] < 0.2 and plane[0, 49, 0] > 3.8 and 1.9 < plane[0, 49, 49] < 2.1
    with pytest.raises(ConfigError, match="boundaries: .*one for each of 1 channels"):
        lift((9,), ("dirichlet=1,2",), ONE)


def test_upsampling_goes_on_as_each_end_does() -> None:
    x = jax.random.normal(jax.random.key(0), (6, 2))
    outs = {}
    for padding in ("zero", "edge", "zero|edge"):
        layer: Any = PeriodicUpsample((padding,))
        outs[padding] = layer.apply(layer.init(jax.random.key(1), x), x)
    np.testing.assert_array_equal(outs["zero|edge"][:6], outs["zero"][:6])
    np.testing.assert_array_equal(outs["zero|edge"][6:], outs["edge"][6:])
    assert (outs["zero"][0] != outs["edge"][0]).any()


def test_an_emulator_between_two_temperatures_is_saved_with_them(tmp_path: Path) -> None:
    """Heat between 1 and 3: less error beside the ends than of a network that has zeros there."""
    rng = np.random.default_rng(0)
    frames = [rng.normal(size=(48, 16))]
    for _ in range(6):
        frames.append(np.stack([heat(u, "dirichlet", "dirichlet", (1.0, 3.0)) for u in frames[-1]]))
    u = np.stack(frames, 1).astype(np.float32)
    net = tiny(8, (1, 1))
    errors = {}
    for kind in ("dirichlet=1|dirichlet=3", "wall"):
        fields = pde.from_arrays(u[:40], boundaries=kind)
        fitted = pde.fit("mse", fields, network=net, steps=400, training=pde.Training(lr=3e-3))
        error = fitted.roll(u[40:, 0], 1)[0, :, 0] - u[40:, 1]
        errors[kind] = np.sqrt(np.square(error[:, [0, -1]]).mean())
        loaded = pde.load_emulator(fitted.save(tmp_path / kind[:4]))
        assert loaded.boundaries == (kind,)
        np.testing.assert_array_equal(loaded.roll(u[40:, 0], 1)[0, :, 0] - u[40:, 1], error)
    assert errors["dirichlet=1|dirichlet=3"] < 0.8 * errors["wall"], errors

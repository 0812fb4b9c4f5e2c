"""APEBench's layout: round trips, and files as its scraper leaves them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import joined, solved
from helpers_layouts import ALL, APE, INFO, N, X, make
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.pde.files import read, read_apebench, write_apebench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make("ape", tmp_path)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    frames=st.integers(1, 4),
    channels=st.integers(1, 3),
    axes=st.integers(1, 3),
    points=st.integers(2, 5),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_what_is_written_is_read(
    rows: list[int], frames: int, channels: int, axes: int, points: int, dtype: str
) -> None:
    shape = (frames, channels, *(points,) * axes)
    chunks = [solved((n, *shape), i) for i, n in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = write_apebench(Path(folder) / "a_train.npy", iter(chunks), dtype=dtype)
        found = read(path)
        values = found.read(ALL, ALL)
        plain = np.load(path)
    fields, extent, dt, value = joined(chunks)
    assert found.layout == "APEBench" and found.shape == (sum(rows), *shape)
    assert values.dtype == plain.dtype == dtype
    np.testing.assert_array_equal(plain, fields.astype(dtype))
    np.testing.assert_array_equal(values, plain)
    np.testing.assert_array_equal(found.dt, dt)
    np.testing.assert_array_equal(found.extent, np.repeat(extent[:, None], axes, 1))
    np.testing.assert_array_equal(found.parameters["viscosity"], value)


def test_a_scraped_scenario(path: Path) -> None:
    found = read(path)
    assert found.layout == "APEBench" and found.shape == APE.shape
    assert found.channels == ("u_0", "u_1") and found.boundaries == ("periodic", "periodic")
    np.testing.assert_array_equal(found.read(ALL, ALL), APE)
    np.testing.assert_array_equal(found.dt, [0.1] * N)
    np.testing.assert_array_equal(found.extent, [[2.0, 2.0]] * N)
    assert {name: list(x) for name, x in found.parameters.items()} == {"diffusion_coef": [0.01] * N}
    assert read(path.with_name("2d_phy_burgers_test.npy")).shape[0] == 2


def described(path: Path, info: dict) -> None:
    path.with_name("2d_phy_burgers.json").write_text(json.dumps({"name": "a", "info": info}))


def test_a_scenario_without_units(path: Path) -> None:
    described(path, {k: v for k, v in INFO.items() if k not in ("dt", "domain_extent")})
    found = read_apebench(path)
    assert set(found.dt) == {1.0} and set(found.extent.flat) == {1.0}


def test_the_array_is_mapped_and_not_read(path: Path, monkeypatch: Any) -> None:
    modes: list[Any] = []
    original = np.memmap

    def load(path: Path, dtype: Any, mode: str, *rest: Any) -> Any:
        modes.append(mode)
        return original(path, dtype, mode, *rest)

    monkeypatch.setattr(np, "memmap", load)
    assert read_apebench(path).read(1, slice(0, 2)).shape == (1, 2, 2, X, X)
    assert set(modes) == {"r"}


def test_diffusivity_and_drag_are_parameters(path: Path) -> None:
    """As APEBench's flows in the plane have them."""
    described(path, {**INFO, "diffusivity": 0.002, "drag": -0.1, "num_warmup_steps": 3})
    found = {name: values[0] for name, values in read_apebench(path).parameters.items()}
    assert found == {"diffusion_coef": 0.01, "diffusivity": 0.002, "drag": -0.1}

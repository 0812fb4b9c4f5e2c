"""APEBench's layout: round trips, files as its scraper leaves them, and malformed ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.files import read, read_apebench, write_apebench
from jaxrl_rollouts.pde.generate import Simulation, Solved, generate

ALL = slice(None)


def solved(shape: tuple[int, ...], seed: int = 0) -> Solved:
    """Random fields `shape` and, one per row, extents, frame times and parameters."""
    rng = np.random.default_rng(seed)
    return Solved(rng.normal(size=shape), *(rng.uniform(0.5, 1.5, shape[0]) for _ in range(3)))


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
    fields, extent, dt, value = (np.concatenate(column) for column in zip(*chunks, strict=True))
    assert found.layout == "APEBench" and found.shape == (sum(rows), *shape)
    assert values.dtype == plain.dtype == dtype
    np.testing.assert_array_equal(plain, fields.astype(dtype))
    np.testing.assert_array_equal(values, plain)
    np.testing.assert_array_equal(found.dt, dt)
    np.testing.assert_array_equal(found.extent, np.repeat(extent[:, None], axes, 1))
    np.testing.assert_array_equal(found.parameters["viscosity"], value)


def test_solved_sets_keep_what_varies(tmp_path: Path) -> None:
    config = Simulation(
        equation="burgers",
        trajectories=5,
        points=16,
        frames=4,
        burn_in=2,
        chunk=2,
        extent=(20.0, 24.0),
        parameter_range=(0.5, 1.5),
    )
    whole = Solved(*(np.concatenate(x) for x in zip(*generate(config), strict=True)))
    path = tmp_path / "a.npy"
    found = read_apebench(
        write_apebench(path, generate(config), dtype="float64", parameter="diffusivity")
    )
    for numbers in (found.dt, found.extent[:, 0], found.parameters["diffusivity"]):
        assert len(set(numbers)) == 5
    np.testing.assert_array_equal(found.read(ALL, ALL), whole.fields)
    np.testing.assert_array_equal(found.parameters["diffusivity"], whole.parameter)
    info = json.loads((tmp_path / "a.json").read_text())["info"]
    assert info["num_points"] == 16 and info["num_train_samples"] == 5
    assert info["train_temporal_horizon"] == 3


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path) -> None:
    def breaks() -> Any:
        yield solved((2, 3, 1, 8))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_apebench(tmp_path / "a.npy", breaks())
    with pytest.raises(DataError, match=r"b\.npy: chunks: found none"):
        write_apebench(tmp_path / "b.npy", iter([]))
    with pytest.raises(DataError, match=r"chunks: found shape \(3, 1, 4\), expected \(3, 1, 8\)"):
        write_apebench(tmp_path / "c.npy", [solved((2, 3, 1, 8)), solved((2, 3, 1, 4))])
    with pytest.raises(DataError, match="folder"):
        write_apebench(tmp_path / "none" / "d.npy", [])
    with pytest.raises(ConfigError, match="split"):
        write_apebench(tmp_path / "e.npy", [], split="dev")
    with pytest.raises(ConfigError, match=r"ends in \.npy"):
        write_apebench(tmp_path / "f.h5", [])
    assert list(tmp_path.iterdir()) == []


N, T, C, X = 3, 4, 2, 6
VALUES = np.random.default_rng(0).normal(size=(N, T, C, X, X)).astype(np.float32)
# `asdict` of a scenario, shortened.
INFO = {
    "num_spatial_dims": 2,
    "num_points": X,
    "num_channels": C,
    "ic_config": "fourier;5;true;true",
    "num_train_samples": N,
    "train_temporal_horizon": T - 1,
    "vlim": [-1.0, 1.0],
    "domain_extent": 2.0,
    "dt": 0.1,
    "diffusion_coef": 0.01,
    "coarse_proportion": 0.5,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """What `scrape_data_and_metadata` writes."""
    np.save(tmp_path / "2d_phy_burgers_train.npy", VALUES)
    np.save(tmp_path / "2d_phy_burgers_test.npy", VALUES[:2])
    named = {"name": "2d_phy_burgers", "info": INFO}
    (tmp_path / "2d_phy_burgers.json").write_text(json.dumps(named))
    return tmp_path / "2d_phy_burgers_train.npy"


def test_a_scraped_scenario(path: Path) -> None:
    found = read(path)
    assert found.layout == "APEBench" and found.shape == VALUES.shape
    assert found.channels == ("u_0", "u_1") and found.boundaries == ("periodic", "periodic")
    np.testing.assert_array_equal(found.read(ALL, ALL), VALUES)
    np.testing.assert_array_equal(found.dt, [0.1] * N)
    np.testing.assert_array_equal(found.extent, [[2.0, 2.0]] * N)
    assert {name: list(x) for name, x in found.parameters.items()} == {"diffusion_coef": [0.01] * N}
    assert read(path.with_name("2d_phy_burgers_test.npy")).shape[0] == 2


def test_a_scenario_without_units(path: Path) -> None:
    described(info={k: v for k, v in INFO.items() if k not in ("dt", "domain_extent")})(path)
    found = read_apebench(path)
    assert set(found.dt) == {1.0} and set(found.extent.flat) == {1.0}


@pytest.mark.parametrize("rows", [1, [2, 0], slice(0, 3, 2)])
@pytest.mark.parametrize("frames", [0, slice(1, 3), [3, 1]])
def test_parts_are_read_alone(path: Path, rows: Any, frames: Any) -> None:
    picked = np.atleast_1d(np.arange(N)[rows]), np.atleast_1d(np.arange(T)[frames])
    expected = VALUES[picked[0]][:, picked[1]]
    np.testing.assert_array_equal(read_apebench(path).read(rows, frames), expected)


def test_the_array_is_mapped_and_not_read(path: Path, monkeypatch: Any) -> None:
    modes: list[Any] = []
    original = np.memmap

    def load(path: Path, dtype: Any, mode: str, *rest: Any) -> Any:
        modes.append(mode)
        return original(path, dtype, mode, *rest)

    monkeypatch.setattr(np, "memmap", load)
    assert read_apebench(path).read(1, slice(0, 2)).shape == (1, 2, C, X, X)
    assert set(modes) == {"r"}
    # A value that cannot be used elsewhere in the file is not met.
    spoilt = VALUES.copy()
    spoilt[2, 3] = np.nan
    np.save(path, spoilt)
    assert read_apebench(path).read(1, ALL).shape[0] == 1
    with pytest.raises(
        DataError, match="array: found nan in trajectory 2, frame 3, channel 0, expected"
    ):
        read_apebench(path).read([0, 2], slice(3, 4))


def described(**changes: Any) -> Callable[[Path], None]:
    """Change what the description says; None leaves an entry out."""

    def change(path: Path) -> None:
        told = {"name": "a", "info": INFO, **changes}
        told = {name: value for name, value in told.items() if value is not None}
        (path.parent / "2d_phy_burgers.json").write_text(json.dumps(told))

    return change


def text(content: str) -> Callable[[Path], None]:
    return lambda path: (path.parent / "2d_phy_burgers.json").write_text(content) and None


def saved(values: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, values)


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=VALUES)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


JSON = "2d_phy_burgers.json"
BAD = {
    "gone": (Path.unlink, "file: found nothing"),
    "a folder": (folder, "file: found a folder"),
    "nothing in it": (lambda p: p.write_bytes(b""), "found"),
    "not NumPy's": (lambda p: p.write_bytes(b"time,u\n0,1\n"), "found"),
    "an archive": (archive, "expected a whole .npy array of numbers"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-9]), "it was cut off or damaged"),
    "truncated header": (lambda p: p.write_bytes(p.read_bytes()[:40]), "a whole .npy array"),
    "pickled objects": (saved(np.array([{"a": 1}], object)), "objects, which are never loaded"),
    "integers": (saved(np.ones((N, T, C, X, X), int)), "array: found int64"),
    "text": (saved(np.full((N, T, C, X, X), "a")), "array: found <U1"),
    "three axes": (saved(VALUES[:, :, 0, 0]), "array: found shape (3, 4, 6)"),
    "empty": (saved(VALUES[:0]), "array: found shape (0, 4, 2, 6, 6)"),
    "not square": (saved(VALUES[..., :3]), "array: found shape (3, 4, 2, 6, 3)"),
    "other points": (saved(VALUES[..., :3, :3]), "num_points 6"),
    "other channels": (saved(VALUES[:, :, :1]), "num_channels 2"),
    "other dimensions": (saved(VALUES[..., 0]), "num_spatial_dims 2"),
    "no description": (lambda p: (p.parent / JSON).unlink(), "2d_phy_burgers_train.json or 2d_phy"),
    "not JSON": (text("{name: a"), f"{JSON}: file: found"),
    "a list": (text("[1, 2]"), f"{JSON}: info: found keys none"),
    "no info": (described(info=None), f"{JSON}: info: found keys name"),
    "info a number": (described(info=3), f"{JSON}: info: found int, expected an object"),
    "dt 0": (described(info={**INFO, "dt": 0}), f"{JSON}: info.dt: found 0, expected values above"),
    "dt text": (described(info={**INFO, "dt": "fast"}), f"{JSON}: info.dt: found <U4"),
    "dt NaN": (described(info={**INFO, "dt": float("nan")}), "info.dt: found a value that is not"),
    "extent negative": (described(info={**INFO, "domain_extent": -1.0}), "info.domain_extent"),
    "dt for fewer": (
        described(trajectories={"dt": [0.1]}),
        f"{JSON}: trajectories.dt: found shape (1,), expected (3,)",
    ),
    "parameter ragged": (described(trajectories={"nu": [[1], [1, 2], 3]}), "of several lengths"),
    "parameter text": (described(trajectories={"nu": ["a"] * N}), "trajectories.nu: found <U1"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files_are_named(path: Path, case: str) -> None:
    change, message = BAD[case]
    change(path)
    for reader in (read_apebench, read):
        if reader is read and case in ("an archive", "no description"):
            continue  # plain arrays, which `read` takes as they are
        with pytest.raises(DataError) as caught:
            reader(path)
        said = str(caught.value)
        assert "2d_phy_burgers" in said and ", expected " in said and "\n" not in said
        if reader is read_apebench or path.is_file() and path.read_bytes()[:6] == b"\x93NUMPY":
            assert message in said


def test_diffusivity_and_drag_are_parameters(path: Path) -> None:
    """As APEBench's flows in the plane have them."""
    described(info={**INFO, "diffusivity": 0.002, "drag": -0.1, "num_warmup_steps": 3})(path)
    found = {name: values[0] for name, values in read_apebench(path).parameters.items()}
    assert found == {"diffusion_coef": 0.01, "diffusivity": 0.002, "drag": -0.1}

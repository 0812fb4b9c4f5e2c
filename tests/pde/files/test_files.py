"""PDEArena's layout: round trip, lazy reading, and 20 files that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.image import imread

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.files import read_pdearena, write_pdearena
from jaxrl_rollouts.pde.generate import Solved


def chunk(rows: int, seed: int, frames: int = 5, points: int = 16) -> Solved:
    rng = np.random.default_rng(seed)
    fields = rng.normal(size=(rows, frames, 1, points))
    return Solved(fields, *(rng.uniform(0.5, 1.5, rows) for _ in range(3)))


CHUNKS = [chunk(3, 0), chunk(2, 1)]
WHOLE = Solved(*(np.concatenate(column) for column in zip(*CHUNKS, strict=True)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_pdearena(tmp_path / "ks.h5", iter(CHUNKS), viscosity=True)


def test_what_is_written_is_read(path: Path) -> None:
    found = read_pdearena(path)
    assert found.shape == (5, 5, 1, 16) and found.layout == "PDEArena"
    np.testing.assert_array_equal(found.read(slice(None), slice(None)), WHOLE.fields)
    np.testing.assert_array_equal(found.dt, WHOLE.dt)
    np.testing.assert_allclose(found.extent, WHOLE.extent[:, None], rtol=1e-15)
    assert found.channels == ("u",) and found.boundaries == ("periodic",)
    np.testing.assert_array_equal(found.parameters["viscosity"], WHOLE.parameter)


def test_the_layout_is_pdearenas(path: Path) -> None:
    with h5py.File(path) as file:
        group = file["train"]
        assert set(group) == {"pde_5-16", "x", "dx", "t", "dt", "v"}
        assert group["pde_5-16"].shape == (5, 5, 16) and group["pde_5-16"].dtype == np.float64
        np.testing.assert_allclose(group["x"][2, 3], 3 * WHOLE.extent[2] / 16)
        np.testing.assert_allclose(group["t"][4], np.arange(5) * WHOLE.dt[4])


def test_parts_are_read_alone(path: Path) -> None:
    found = read_pdearena(path)
    np.testing.assert_array_equal(found.read([0, 4], slice(0, None, 2)), WHOLE.fields[[0, 4], ::2])
    np.testing.assert_array_equal(found.read(1, slice(1, 3)), WHOLE.fields[1:2, 1:3])


def test_without_a_varying_parameter_there_is_none(tmp_path: Path) -> None:
    found = read_pdearena(write_pdearena(tmp_path / "a.h5", iter(CHUNKS), split="test"))
    assert found.parameters == {}


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    def breaks() -> Any:
        yield CHUNKS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pdearena(tmp_path / "a.h5", breaks())
    with pytest.raises(DataError, match="found none"):
        write_pdearena(tmp_path / "b.h5", iter([]))
    with pytest.raises(ConfigError, match="split"):
        write_pdearena(tmp_path / "c.h5", iter(CHUNKS), split="dev")
    assert list(tmp_path.iterdir()) == []


def replaced(key: str, values: Any) -> Callable:
    def change(file: h5py.File) -> None:
        del file[f"train/{key}"]
        if values is not None:
            file[f"train/{key}"] = values

    return change


def changed(key: str, place: Any, value: float) -> Callable:
    def change(file: h5py.File) -> None:
        file[f"train/{key}"][place] = value

    return change


BAD = {
    "no group": (lambda f: f.move("train", "training"), "layout: found keys training"),
    "group is an array": (
        lambda f: (f.__delitem__("train"), f.create_dataset("train", data=1)),
        "layout",
    ),
    "no fields": (replaced("pde_5-16", None), "layout"),
    "two axes": (replaced("pde_5-16", np.ones((5, 5))), "pde_5-16: found shape (5, 5)"),
    "four axes": (replaced("pde_5-16", np.ones((5, 5, 1, 16))), "found shape (5, 5, 1, 16)"),
    "no trajectories": (replaced("pde_5-16", np.ones((0, 5, 16))), "found shape (0, 5, 16)"),
    "integers": (replaced("pde_5-16", np.ones((5, 5, 16), int)), "pde_5-16: found int64"),
    "text": (replaced("pde_5-16", np.full((5, 5, 16), b"a")), "pde_5-16: found |S1"),
    "no dx": (replaced("dx", None), "train/dx"),
    "no dt": (replaced("dt", None), "train/dt"),
    "dx too short": (replaced("dx", np.ones(4)), "train/dx: found shape (4,), expected (5,)"),
    "dt of two axes": (replaced("dt", np.ones((5, 5))), "train/dt: found shape (5, 5)"),
    "v too long": (replaced("v", np.ones(6)), "train/v: found shape (6,)"),
    "dx is text": (replaced("dx", np.full(5, b"a")), "train/dx: found |S1"),
    "dx zero": (changed("dx", 2, 0.0), "train/dx: found 0.0, expected values above 0"),
    "dt negative": (changed("dt", 1, -1.0), "train/dt: found -1.0"),
    "dt NaN": (changed("dt", 1, np.nan), "expected finite numbers"),
    "v infinite": (changed("v", 1, np.inf), "train/v"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files_are_named(path: Path, case: str) -> None:
    change, message = BAD[case]
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError) as caught:
        read_pdearena(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_a_bad_value_is_found_when_it_is_read(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["train/pde_5-16"][3, 2, 1] = np.nan
    found = read_pdearena(path)
    assert found.read(slice(0, 3), slice(None)).shape == (3, 5, 1, 16)
    with pytest.raises(DataError, match="trajectory 3, frame 2, channel 0"):
        found.read(slice(None), slice(None))


@pytest.mark.parametrize("content", [None, b"", b"not HDF5"])
def test_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.h5"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.h5"):
        read_pdearena(path)


SMALL = [
    "--trajectories",
    "3",
    "--points",
    "32",
    "--frames",
    "4",
    "--burn-in",
    "2",
    "--chunk",
    "2",
    "--extent",
    "20",
    "24",
    "--parameter-range",
    "0.5",
    "1.5",
    "--no-progress",
]


def test_the_command_makes_and_shows_a_file(tmp_path: Path, capsys: Any) -> None:
    path, picture = tmp_path / "ks.h5", tmp_path / "ks.png"
    cli.main(["pde", "generate", "--out", str(path), *SMALL])
    said = capsys.readouterr().out
    assert "3 trajectories of 4 frames" in said and "viscosity" in said
    assert "1 channel(s) on 32 points" in said
    cli.main(["pde", "inspect", str(path), "--out", str(picture)])
    assert f"picture: {picture}" in capsys.readouterr().out
    assert imread(picture).ndim == 3
    assert read_pdearena(path).shape == (3, 4, 1, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--out", "a.csv"], "--out: found 'a.csv'"),
        (["generate", "--out", "none/a.h5", *SMALL], "folder"),
        (["generate", "--out", "a.h5", "--points", "33"], "points: found 33"),
        (["generate", "--out", "a.h5", "--equation", "kvd"], "did you mean kdv"),
        (["inspect", "a.h5"], "a.h5: file: found nothing"),
        (["inspect", "a.h5", "--rows", "0"], "--rows: found 0"),
        (["inspect", "a.h5", "--out", "none/a.png"], "--out: found 'none/a.png'"),
    ],
)
def test_bad_commands(
    tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["pde", *arguments])
    assert stop.value.code == 2 and message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

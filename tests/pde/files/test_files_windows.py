"""Which layout a file has, windows read alone, and the commands on every layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers_layouts import SMALL
from matplotlib.image import imread

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde import inspection
from jaxrl_rollouts.pde.files import (
    read,
    read_pdebench,
    write_apebench,
    write_pdearena,
    write_well,
)
from jaxrl_rollouts.pde.generate import Solved

N, T, X = 5, 9, 8
WRITERS: dict[str, tuple[Callable[..., Path], dict[str, Any]]] = {
    "PDEArena": (write_pdearena, {"viscosity": True}),
    "The Well": (write_well, {}),
    "APEBench": (write_apebench, {}),
}


def numbered(*space: int) -> Solved:
    """Fields that say which trajectory (hundreds) and frame (ones) they are of."""
    time = 100 * np.arange(N)[:, None] + np.arange(T)
    fields = np.broadcast_to(time.reshape(N, T, 1, *(1,) * len(space)), (N, T, 1, *space))
    column = 1.0 + np.arange(N) / 4
    return Solved(fields.astype(np.float64), 8 * column, column / 8, column)


@pytest.fixture(params=WRITERS)
def path(request: Any, tmp_path: Path) -> Path:
    """The same set in each layout; the ending says nothing about it."""
    write, options = WRITERS[request.param]
    ending = "npy" if request.param == "APEBench" else "data"
    return write(tmp_path / f"set.{ending}", [numbered(X)], **options)


def test_windows_are_read_from_their_trajectory(path: Path) -> None:
    found = read(path)
    for row in range(N):
        for begin in range(T - 4):
            window = found.read(row, slice(begin, begin + 5, 2))
            expected = 100 * row + begin + 2 * np.arange(3)
            np.testing.assert_array_equal(window[0, :, 0], np.repeat(expected[:, None], X, 1))


def test_windows_read_only_themselves(path: Path, bytes_read: list[int]) -> None:
    found = read(path)
    bytes_read.clear()
    window = found.read(3, slice(2, 4))
    size = 8 if found.layout == "PDEArena" else 4
    # APEBench is no HDF5: see its own test.
    assert sum(bytes_read) == (0 if found.layout == "APEBench" else window.size * size)


def test_other_hdf5_files_are_described(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "ns.h5", "w") as file:
        for name in ("p", "u", "t", "w"):
            file[f"train/{name}"] = np.ones(2)
    with pytest.raises(DataError, match=r"ns\.h5: layout: found train; in train: p, t, u, w, e"):
        read(tmp_path / "ns.h5")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none.h5"):
        with pytest.raises(DataError, match=r"folder: found no file|file: found nothing"):
            read(path)


def test_a_reader_refuses_another_layout(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["solution"] = np.ones((2, 2))
    with pytest.raises(DataError, match=r"a\.h5: layout: found keys solution, expected tensor"):
        read_pdebench(tmp_path / "a.h5")


@pytest.mark.parametrize(("layout", "named"), [("well", "The Well"), ("apebench", "APEBench")])
def test_the_command_writes_other_layouts(
    tmp_path: Path, capsys: Any, layout: str, named: str
) -> None:
    path = tmp_path / ("ks.npy" if layout == "apebench" else "ks.hdf5")
    arguments = ["--out", str(path), "--layout", layout, "--equation", "burgers", *SMALL.split()]
    cli.main(["pde", "generate", *arguments])
    said = capsys.readouterr().out
    assert f"{named}, 3 trajectories of 4 frames" in said and "diffusivity" in said
    assert "boundaries   periodic" in said
    assert len(set(read(path).parameters["diffusivity"])) == 3


@pytest.mark.parametrize(("layout", "out"), [("apebench", "a.h5"), ("well", "a.npy")])
def test_endings_are_checked(tmp_path: Path, capsys: Any, layout: str, out: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(
            ["pde", "generate", "--out", str(tmp_path / out), "--layout", layout, *SMALL.split()]
        )
    assert "expected a file name that ends in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def two_dimensional(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(folder / "flow.npy", rng.normal(size=(6, 5, 2, 8, 8)).astype("f4"))
    told = {"name": "flow", "info": {"dt": 0.1, "domain_extent": 2.0}}
    (folder / "flow.json").write_text(json.dumps(told))
    return folder / "flow.npy"


def test_a_field_of_two_dimensions_is_shown(tmp_path: Path, capsys: Any) -> None:
    path, picture = two_dimensional(tmp_path), tmp_path / "flow.png"
    cli.main(["pde", "inspect", str(path), "--out", str(picture), "--rows", "2"])
    said = capsys.readouterr().out
    assert "2 channel(s) on 8 x 8 points" in said and "(of 2 trajectories)" in said
    assert "u_1          spread " in said
    assert imread(picture).shape[1] > imread(picture).shape[0] > 100


def test_a_set_without_time_or_extent_is_shown(tmp_path: Path, capsys: Any) -> None:
    with h5py.File(tmp_path / "darcy.hdf5", "w") as file:
        rng = np.random.default_rng(0)
        file["tensor"], file["nu"] = rng.normal(size=(3, 1, 6, 6)), rng.normal(size=(3, 6, 6))
        file["x-coordinate"] = file["y-coordinate"] = np.arange(6) / 6
    out = tmp_path / "a.png"
    cli.main(["pde", "inspect", str(tmp_path / "darcy.hdf5"), "--out", str(out)])
    said = capsys.readouterr().out
    assert "frame time   not in the file (pde train --dt)\n" in said
    assert "extent       1 x 1\n" in said and out.exists()


@pytest.mark.parametrize(("rows", "limit"), [(2, 2**28), (64, 2 * 8 * X * 4)])
def test_inspect_reads_no_more_than_asked(
    tmp_path: Path, capsys: Any, monkeypatch: Any, bytes_read: list[int], rows: int, limit: int
) -> None:
    path = write_well(tmp_path / "a.h5", [numbered(X, 4)])
    monkeypatch.setattr(inspection, "BYTES", limit)
    inspection.inspect(str(path), rows=rows)
    said = capsys.readouterr().out
    assert ("(of 2 trajectories)" if rows == 2 else "(of 1 trajectories, 2 frames)") in said
    window = 4 * X * 4 * (2 * T if rows == 2 else 2)
    assert bytes_read[-1] == window  # after the axes and scalars

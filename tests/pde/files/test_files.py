"""PDEArena's layout: round trips, and the commands that make and show files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fixtures import joined, solved
from helpers_layouts import SMALL
from matplotlib.image import imread

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.pde.files import read_pdearena, write_pdearena

CHUNKS = [solved((rows, 5, 1, 16), rows) for rows in (3, 2)]
WHOLE = joined(CHUNKS)


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


def test_without_a_varying_parameter_there_is_none(tmp_path: Path) -> None:
    found = read_pdearena(write_pdearena(tmp_path / "a.h5", iter(CHUNKS), split="test"))
    assert found.parameters == {}


def test_the_command_makes_and_shows_a_file(tmp_path: Path, capsys: Any) -> None:
    path, picture = tmp_path / "ks.h5", tmp_path / "ks.png"
    cli.main(["pde", "generate", "--out", str(path), *SMALL.split()])
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
        (["generate", "--out", "none/a.h5", *SMALL.split()], "folder"),
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

"""Every layout: parts are read alone and nothing else with them, and bad numbers are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fixtures import joined, solved
from helpers_layouts import ALL, LAYOUTS, make

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.files import (
    read,
    write_apebench,
    write_pdearena,
    write_pdearena_flows,
    write_well,
)
from jaxrl_rollouts.pde.generate import Simulation, generate

ROWS = (1, slice(0, 2), [2, 0], np.array([1, 1, 2]), slice(1, 1), slice(0, 3, 2))
FRAMES = (0, -1, slice(1, 4), slice(0, None, 2), [3, 1], slice(2, 2))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_parts_are_read_alone(tmp_path: Path, kind: str) -> None:
    found = read(make(kind, tmp_path))
    whole = found.read(ALL, ALL)
    assert whole.shape == found.shape
    for rows in ROWS:
        for frames in FRAMES if found.shape[1] > 1 else (0, slice(0, 1)):
            some = np.atleast_1d(np.arange(len(whole))[rows])
            times = np.atleast_1d(np.arange(whole.shape[1])[frames])
            np.testing.assert_array_equal(found.read(rows, frames), whole[some][:, times])


@pytest.mark.parametrize("kind", [kind for kind in LAYOUTS if kind != "ape"])
def test_a_window_reads_no_more_than_itself(
    tmp_path: Path, bytes_read: list[int], kind: str
) -> None:
    found = read(make(kind, tmp_path))
    assert sum(bytes_read) < 2000  # coordinates and scalars
    bytes_read.clear()
    window = found.read(2, slice(1, 3) if found.shape[1] > 1 else slice(0, 1))
    assert 0 < sum(bytes_read) <= window.nbytes


@pytest.mark.parametrize("kind", [kind for kind, layout in LAYOUTS.items() if layout.entry])
def test_a_bad_value_is_found_when_it_is_read(tmp_path: Path, kind: str) -> None:
    path, layout = make(kind, tmp_path), LAYOUTS[kind]
    if kind == "ape":
        values = np.load(path)
        values[layout.entry] = np.nan
        np.save(path, values)
    else:
        with h5py.File(path, "r+") as file:
            file[layout.key][layout.entry] = np.nan
    found = read(path)
    assert np.isfinite(found.read([0, 1], ALL)).all() and np.isfinite(found.read(2, 2)).all()
    with pytest.raises(DataError) as caught:
        found.read([1, 2], slice(2, 4))
    said = rf"{layout.named}: found nan in trajectory 2, frame 3, channel \d.*, expected"
    assert re.search(said, str(caught.value)) and str(path) in str(caught.value)


WRITERS: dict[str, tuple[Callable[..., Path], str, int]] = {
    "pdearena": (write_pdearena, "h5", 1),
    "flows": (write_pdearena_flows, "h5", 2),
    "apebench": (write_apebench, "npy", 1),
    "well": (write_well, "h5", 1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path, name: str) -> None:
    write, ending, axes = WRITERS[name]
    chunk, path = solved((2, 3, 1, *(8,) * axes)), tmp_path / f"a.{ending}"

    def breaks() -> Any:
        yield chunk
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, breaks())
    with pytest.raises(DataError, match=rf"a\.{ending}: chunks: found none"):
        write(path, iter([]))
    with pytest.raises(ConfigError, match="split"):
        write(path, [chunk], split="dev")
    if name in ("apebench", "well"):
        with pytest.raises(DataError, match=r"chunks: found shape \(.*3, 1, 4\)"):
            write(path, [chunk, solved((2, 3, 1, 4))])
        with pytest.raises(DataError, match=r"folder|No such file"):
            write(tmp_path / "none" / f"d.{ending}", [chunk])
    if name in ("flows", "well"):
        with pytest.raises(DataError, match=r"chunks|fields: found shape \(2, 3, 2, 8, 8\)"):
            write(path, [chunk._replace(fields=chunk.fields.repeat(2, 2))])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "parameter"), [("apebench", "diffusivity"), ("well", "viscosity")]
)
def test_solved_sets_keep_what_varies(tmp_path: Path, name: str, parameter: str) -> None:
    write, ending, _ = WRITERS[name]
    config = Simulation(
        equation="burgers", trajectories=3, points=16, frames=3, burn_in=1, chunk=2,
        extent=(20.0, 24.0), parameter_range=(0.5, 1.5),
    )  # fmt: skip
    whole, path = joined(generate(config)), tmp_path / f"a.{ending}"
    found = read(write(path, generate(config), dtype="float64", parameter=parameter))
    varied = found.extent[:, 0], found.dt, found.parameters[parameter]
    for values, exact in zip(varied, whole[1:], strict=True):
        np.testing.assert_array_equal(values, exact)
        assert len(set(exact)) == 3
    np.testing.assert_array_equal(found.read(ALL, ALL), whole.fields)


@pytest.mark.parametrize(
    "content", [None, b"", b"not HDF5", b"CDF\x01 old NetCDF", b"PK\x03\x04 z"]
)
def test_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.h5"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(path)
    said = str(caught.value)
    assert str(path) in said and "\n" not in said
    if content:
        assert f"layout: found a file that begins with {content[:16]!r}" in said
        assert all(name in said for name in ("PDEArena", "The Well", "PDEBench", "APEBench"))


@pytest.mark.parametrize("keep", [100, 2000])
def test_a_truncated_file(tmp_path: Path, keep: int) -> None:
    path = make("well", tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"well\.dat: file: found .*expected a whole HDF5 file"):
        read(path)


def test_rows_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"well\.dat.*out of 3"):
        read(make("well", tmp_path)).read([0, 3], ALL)

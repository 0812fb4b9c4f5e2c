"""Several files as one set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import DataError

U = np.random.default_rng(0).normal(size=(7, 5, 2, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files: of 3, 2 and 2 trajectories, diffusivity 1, 2 and 3."""
    for i, rows in enumerate((slice(0, 3), slice(3, 5), slice(5, 7))):
        np.savez(tmp_path / f"d_{i}.npz", u=U[rows], dt=0.1 * (i + 1), dx=0.5, D=i + 1.0)
    (tmp_path / "notes.txt").write_text("not fields")
    return tmp_path


def test_a_folder_a_pattern_and_a_list_are_one_set(folder: Path) -> None:
    listed = [folder / f"d_{i}.npz" for i in range(3)]
    for given in (folder, str(folder), folder / "d_*.npz", f"{folder}/d_?.npz", listed):
        fields = pde.read(given)
        assert fields.shape == U.shape
        np.testing.assert_array_equal(fields.array(), U)
        np.testing.assert_array_equal(fields.parameters["D"], [1, 1, 1, 2, 2, 3, 3])
        np.testing.assert_allclose(fields.dt, 0.1 * fields.parameters["D"])
    assert pde.read([folder / "d_1.npz"]).shape[0] == 2


@pytest.mark.parametrize("rows", [4, [6, 0, 3, 0], slice(2, 6, 2), slice(0, 0), [-1]])
@pytest.mark.parametrize("frames", [1, slice(0, None, 2), [3, 1]])
def test_trajectories_are_read_alone(folder: Path, rows: object, frames: object) -> None:
    picked = [np.atleast_1d(np.arange(n)[i]) for n, i in zip((7, 5), (rows, frames), strict=True)]
    np.testing.assert_array_equal(pde.read(folder).read(rows, frames), U[np.ix_(*picked)])


def test_a_parameter_that_differs_between_files_is_a_condition(folder: Path) -> None:
    net = tiny()
    fitted = pde.fit("mse", [str(folder / f"d_{i}.npz") for i in (0, 1)], network=net, steps=1)
    assert set(fitted.emulator.conditions) == {"D", "dt"}


def test_files_of_other_fields_are_named(folder: Path) -> None:
    for name, changes, words in (
        ("points", {"u": U[:2, :, :, :4]}, r"points.npz: frames, channels, points: .*of d_0.npz"),
        ("names", {"channels": np.array(["a", "b"])}, r"names.npz: channels: found \['a', 'b'\]"),
        ("ends", {"boundaries": np.asarray("wall")}, r"ends.npz: boundaries: found \['wall'\]"),
    ):
        np.savez(folder / f"{name}.npz", **({"u": U[:2], "dt": 0.1, "dx": 0.5, "D": 1.0} | changes))
        with pytest.raises(DataError, match=words):
            pde.read([folder / "d_0.npz", folder / f"{name}.npz"])
    np.savez(folder / "none.npz", u=U[:2], dt=0.1, dx=0.5)
    with pytest.raises(DataError, match="none.npz: parameters: found none, expected D, as other"):
        pde.read([folder / "d_0.npz", folder / "none.npz"])
    with pytest.raises(DataError, match="pattern: found no file"):
        pde.read(folder / "e_*.npz")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="folder: found no file of fields"):
        pde.read(folder / "empty")

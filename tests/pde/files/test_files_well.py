"""The Well's layout: round trips, and a file as its own tools write it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from fixtures import joined, solved
from helpers_layouts import ALL, ARRAYS, N, T, X, Y, make
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.files import read, read_well, write_well


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    frames=st.integers(2, 4),
    channels=st.integers(1, 2),
    space=st.lists(st.integers(2, 5), min_size=1, max_size=3),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_what_is_written_is_read(
    rows: list[int], frames: int, channels: int, space: list[int], dtype: str
) -> None:
    chunks = [solved((n, frames, channels, *space), i) for i, n in enumerate(rows)]
    names = ("u", "v")[:channels]
    with tempfile.TemporaryDirectory() as folder:
        path = write_well(Path(folder) / "a.h5", iter(chunks), channels=names, dtype=dtype)
        found = read(path)
        values = found.read(ALL, ALL)
    fields, extent, dt, value = joined(chunks)
    assert found.layout == "The Well" and found.channels == names
    assert values.dtype == dtype and found.boundaries == ("periodic",) * len(space)
    np.testing.assert_array_equal(values, fields.astype(dtype))
    np.testing.assert_array_equal(found.dt, dt)
    np.testing.assert_array_equal(found.extent, np.tile(extent[:, None], len(space)))
    np.testing.assert_array_equal(found.parameters["viscosity"], value)


@pytest.mark.parametrize("vary", [True, False])
def test_the_schema_is_the_wells(tmp_path: Path, vary: bool) -> None:
    chunk = solved((3, 4, 1, 6), vary=vary)
    path = write_well(tmp_path / "ks.hdf5", [chunk], split="valid", name="ks_1d")
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
        assert attributes["dataset_name"] == "ks_1d" and attributes["grid_type"] == "cartesian"
        assert attributes["n_trajectories"] == 3 and attributes["n_spatial_dims"] == 1
        assert attributes["split"] == "valid"
        listed = list(attributes["simulation_parameters"])
        assert listed == ([] if vary else ["viscosity"])
        assert vary or attributes["viscosity"] == 0.75
        axes, field = file["dimensions"], file["t0_fields/u"]
        assert list(axes.attrs["spatial_dims"]) == ["x"]
        assert axes["time"].attrs["sample_varying"] == axes["x"].attrs["sample_varying"] == vary
        assert axes["time"].shape == ((3, 4) if vary else (4,))
        scalars = [file[f"scalars/{name}"] for name in file["scalars"].attrs["field_names"]]
        # The schema's float32, so that a torch batch is of one kind.
        assert {a.dtype for a in (axes["time"], axes["x"], *scalars)} == {np.dtype(np.float32)}
        last = chunk.dt[2] * np.arange(4) if vary else 0.75
        np.testing.assert_allclose(axes["time"][-1], last, rtol=1e-6)
        second = chunk.extent / 6 if vary else 2.0 / 6
        np.testing.assert_allclose(axes["x"][..., 1], second, rtol=1e-6)
        assert not axes["x"].attrs["time_varying"]
        assert field.dtype == np.float32 and list(field.attrs["dim_varying"]) == [True]
        assert field.attrs["sample_varying"] and field.attrs["time_varying"]
        assert [list(file[f"t{i}_fields"].attrs["field_names"]) for i in range(3)] == [
            ["u"],
            [],
            [],
        ]
        (boundary,) = file["boundary_conditions"].values()
        assert boundary.attrs["bc_type"] == "periodic"
        assert list(boundary.attrs["associated_dims"]) == ["x"]
        assert boundary["mask"].dtype == bool and list(np.flatnonzero(boundary["mask"])) == [0, 5]
        assert boundary["values"].shape == (2,)
        for name in file["scalars"].attrs["field_names"]:
            assert file[f"scalars/{name}"].attrs["sample_varying"] == vary
            assert not file[f"scalars/{name}"].attrs["time_varying"]
    found = read_well(path)
    np.testing.assert_array_equal(found.dt, chunk.dt)
    np.testing.assert_array_equal(found.parameters["viscosity"], chunk.parameter)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make("well", tmp_path)


def test_a_file_of_the_wells_own(path: Path) -> None:
    found = read(path)
    assert found.layout == "The Well" and found.shape == (N, T, 11, X, Y)
    names = ["density", "inflow", "mask", "velocity_x", "velocity_y", "gravity_x", "gravity_y"]
    assert found.channels == (*names, *(f"stress_{a}{b}" for a in "xy" for b in "xy"))
    assert found.boundaries == ("periodic", "open/wall")
    np.testing.assert_allclose(found.dt, [0.5] * N)
    np.testing.assert_allclose(found.extent, [[2.0, 3.0]] * N)
    assert set(found.parameters) == {"Reynolds", "angle"}
    np.testing.assert_array_equal(found.parameters["angle"], [0, 1, 2])
    np.testing.assert_array_equal(found.parameters["Reynolds"], [1e4] * N)
    values, one = found.read(ALL, ALL), np.ones((N, T, X, Y), np.float32)
    assert values.dtype == np.float32 and values.shape == found.shape
    density, inflow, mask, velocity, gravity, stress = (stored[0] for stored in ARRAYS.values())
    expected = [density, inflow[..., None] * one, mask * one, *np.moveaxis(velocity, -1, 0)]
    expected += [gravity[:, None, None, None, i] * one for i in (0, 1)]
    expected += [stress[..., i, j] * one for i in (0, 1) for j in (0, 1)]
    np.testing.assert_array_equal(values, np.stack(expected, 2))


def test_tensors_may_be_flat(path: Path) -> None:
    stress = ARRAYS["t2_fields/stress"][0].reshape(T, X, Y, 4)
    with h5py.File(path, "r+") as file:
        attributes = dict(file["t2_fields/stress"].attrs)
        del file["t2_fields/stress"]
        file["t2_fields/stress"] = stress
        file["t2_fields/stress"].attrs.update(attributes)
    values = read_well(path).read(1, ALL)[0, :, -4:]
    np.testing.assert_array_equal(values, np.moveaxis(stress, -1, 1))


@pytest.mark.parametrize(("name", "value"), [("frame_time", 0.0), ("extent", -1.0)])
def test_exact_steps_are_checked(tmp_path: Path, name: str, value: float) -> None:
    path = write_well(tmp_path / "a.h5", [solved((2, 3, 1, 8))])
    with h5py.File(path, "r+") as file:
        file[f"exact/{name}"][1] = value
    with pytest.raises(
        DataError, match=rf"a\.h5: dimensions.*found .* {value}, expected .*above 0"
    ):
        read_well(path)
    with h5py.File(path, "r+") as file:
        del file[f"exact/{name}"]
        file[f"exact/{name}"] = np.ones(5)
    with pytest.raises(DataError, match=rf"exact/{name}: found shape \(5,\)"):
        read_well(path)


def test_a_channel_for_every_axis_is_a_vector(tmp_path: Path) -> None:
    """And only constants of the equation are among the scalars, which models are told."""
    chunk = solved((2, 3, 4, 5, 6), vary=False)
    names = ("p", "velocity_y", "velocity_x", "a_x")
    path = write_well(tmp_path / "a.h5", [chunk], channels=names, dtype="float64")
    with h5py.File(path) as file:
        assert list(file["t0_fields"].attrs["field_names"]) == ["p", "a_x"]
        assert list(file["t1_fields"].attrs["field_names"]) == ["velocity"]
        assert list(file["scalars"].attrs["field_names"]) == ["viscosity"]
        vectors = np.moveaxis(chunk.fields[:, :, [2, 1]], 2, -1)
        np.testing.assert_array_equal(file["t1_fields/velocity"], vectors)
    found = read(path)
    assert found.channels == ("p", "a_x", "velocity_x", "velocity_y")
    np.testing.assert_array_equal(found.read(ALL, ALL), chunk.fields[:, :, [0, 3, 2, 1]])


@pytest.mark.parametrize("names", [("a", "a_x", "a_y"), ("a_x", "a_y", "a_z")])
def test_no_channel_is_lost_in_a_vector(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A field of the vector's own name, and a component of an axis that is not there."""
    chunk = solved((2, 3, 3, 5, 6))
    found = read(write_well(tmp_path / "a.h5", [chunk], channels=names, dtype="float64"))
    order = [names.index(name) for name in found.channels]
    assert sorted(found.channels) == sorted(names)
    np.testing.assert_array_equal(found.read(ALL, ALL), chunk.fields[:, :, order])


def test_statistics_lie_where_the_well_looks_for_them(tmp_path: Path) -> None:
    folder = tmp_path / "flow" / "data" / "train"
    folder.mkdir(parents=True)
    chunks = [solved((n, 3, 3, 4, 6), n) for n in (2, 3)]
    names = ("p", "velocity_x", "velocity_y")
    write_well(folder / "a.hdf5", chunks, channels=names)
    write_well(folder / "b.hdf5", chunks[:1], channels=names, split="test")  # counts for nothing
    write_well(tmp_path / "c.hdf5", chunks, channels=names)
    assert not (tmp_path / "stats.yaml").exists()  # of a file on its own nobody asked for them
    stats = yaml.safe_load((tmp_path / "flow" / "stats.yaml").read_text())
    u = np.concatenate([chunk.fields for chunk in chunks])
    for end, values in (("", u), ("_delta", np.diff(u, axis=1))):
        over = (0, 1, 3, 4)
        expected = {"mean": values.mean(over), "std": values.std(over)}
        expected["rms"] = np.sqrt(np.square(values).mean(over))
        for name, column in expected.items():
            found = stats[name + end]
            np.testing.assert_allclose([found["p"], *found["velocity"]], column, rtol=1e-9)


def test_the_wells_own_dummy_file_reads(tmp_path: Path) -> None:
    """The layout of its `dummy_data.py`: axes without `time_varying`, dimensions of a boundary as a
    text, a scalar field with one component, and no values at the boundaries."""
    rng = np.random.default_rng(0)
    constant = rng.random((2, 8, 6, 1)).astype("f4")
    vector = rng.random((2, 5, 8, 6, 2)).astype("f4")
    with h5py.File(tmp_path / "dummy.hdf5", "w") as file:
        file.attrs.update(dataset_name="dummy", grid_type="cartesian", n_spatial_dims=2)
        file.attrs.update(n_trajectories=2, simulation_parameters=["a", "b"], a=0.25, b=0.75)
        for name in "xy":
            condition = file.create_group(f"boundary_conditions/{name}_periodic")
            condition.attrs.update(associated_dims=name, associated_fields=[], bc_type="PERIODIC")
            condition["mask"] = np.zeros(8, bool)
        axes = file.create_group("dimensions")
        axes.attrs["spatial_dims"] = ["x", "y"]
        for name, count in (("time", 5), ("x", 8), ("y", 6)):
            axes[name] = np.linspace(0, 1, count, dtype="f4")
            axes[name].attrs["sample_varying"] = False
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["a", "b"]
        for name, value in (("a", 0.25), ("b", 0.75)):
            scalars[name] = np.array([value])
            scalars[name].attrs.update(time_varying=False, sample_varying=False)
        for group, name, values, times in (
            ("t0_fields", "constant_field", constant, False),
            ("t1_fields", "field", vector, True),
        ):
            file.create_group(group).attrs["field_names"] = [name]
            file[group][name] = values
            varying = {"dim_varying": [True, True], "sample_varying": True, "time_varying": times}
            file[group][name].attrs.update(varying)
        file.create_group("t2_fields").attrs["field_names"] = []
    found = read_well(tmp_path / "dummy.hdf5")
    assert found.channels == ("constant_field", "field_x", "field_y") and found.constant == (0,)
    assert found.boundaries == ("periodic", "periodic") and found.shape == (2, 5, 3, 8, 6)
    assert {name: list(v) for name, v in found.parameters.items()} == {
        "a": [0.25, 0.25],
        "b": [0.75, 0.75],
    }
    fields = found.array()
    np.testing.assert_array_equal(fields[:, 3, 0], constant[..., 0])
    np.testing.assert_array_equal(fields[:, :, 1:], np.moveaxis(vector, -1, 2))

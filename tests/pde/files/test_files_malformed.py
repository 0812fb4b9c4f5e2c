"""Every layout: files that are not what they should be are named, with what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers_layouts import APE, INFO, N, T, X, Y, make, normal

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.files import read, read_apebench, read_pdearena

Change = Callable[[h5py.File], Any]
ones = np.ones


def drop(*keys: str) -> Change:
    return lambda file: [file.__delitem__(key) for key in keys]


def put(key: str, values: Any) -> Change:
    """Other values under a key, with the attributes it had."""

    def change(file: h5py.File) -> None:
        attributes = dict(file[key].attrs) if key in file else {}
        if key in file:
            del file[key]
        file[key] = values
        file[key].attrs.update(attributes)

    return change


def at(key: str, place: Any, value: float) -> Change:
    return lambda file: file[key].__setitem__(place, value)


def group(key: str) -> Change:
    return lambda file: (file.__delitem__(key), file.create_group(key))


def attr(key: str, name: str, value: Any = None) -> Change:
    def change(file: h5py.File) -> None:
        file[key].attrs.pop(name, None)
        if value is not None:
            file[key].attrs[name] = value

    return change


A, F, S = "train", "valid", "0000"
BAD: dict[str, list[tuple[Change, str]]] = {
    "arena": [
        (lambda f: f.move(A, "training"), "layout: found keys training"),
        (put(A, 1), "layout"),
        (drop(f"{A}/pde_5-8"), "layout"),
        (put(f"{A}/pde_5-8", ones((3, 5))), "pde_5-8: found shape (3, 5)"),
        (put(f"{A}/pde_5-8", ones((3, 5, 1, 8))), "found shape (3, 5, 1, 8)"),
        (put(f"{A}/pde_5-8", ones((0, 5, 8))), "found shape (0, 5, 8)"),
        (put(f"{A}/pde_5-8", ones((3, 5, 8), int)), "pde_5-8: found int64"),
        (put(f"{A}/pde_5-8", np.full((3, 5, 8), b"a")), "pde_5-8: found |S1"),
        (drop(f"{A}/dx"), "train/dx"),
        (drop(f"{A}/dt"), "train/dt"),
        (put(f"{A}/dx", ones(4)), "train/dx: found shape (4,), expected (3,)"),
        (put(f"{A}/dt", ones((5, 5))), "train/dt: found shape (5, 5)"),
        (put(f"{A}/v", ones(6)), "train/v: found shape (6,)"),
        (put(f"{A}/dx", np.full(3, b"a")), "train/dx: found |S1"),
        (at(f"{A}/dx", 2, 0.0), "train/dx: found 0.0, expected values above 0"),
        (at(f"{A}/dt", 1, -1.0), "train/dt: found -1.0"),
        (at(f"{A}/dt", 1, np.nan), "expected finite numbers"),
        (at(f"{A}/v", 1, np.inf), "train/v"),
        (put(f"{A}/x", np.tile(np.geomspace(0.1, 1, 8), (3, 1))), "train/x: found steps of"),
        (put(f"{A}/t", np.geomspace(0.1, 1, 5)), "train/t: found steps of"),
    ],
    "arena_flow": [
        (drop(f"{F}/vy"), "valid/vy: found only "),
        (put(f"{F}/y", np.geomspace(0.1, 1, 6)), "valid/y: found steps of"),
        (drop(f"{F}/u"), "valid/u: found only"),
        (put(f"{F}/vx", ones((N, T, X, 7))), "valid/vx: found shape (3, 5, 8, 7)"),
        (put(f"{F}/u", ones((N, T, X))), "valid/u: found shape (3, 5, 8)"),
        (put(f"{F}/vy", ones((N, T, X, Y), int)), "valid/vy: found int64, expected floating"),
        (put(f"{F}/dt", np.array([1.5, 0.0, 1.5])), "valid/dt: found 0.0, expected values above 0"),
        (put(f"{F}/dx", ones(2)), "valid/dx: found shape (2,)"),
        (put(f"{F}/buo_y", ones((N, 2))), "valid/buo_y: found shape (3, 2)"),
        (at(f"{F}/buo_y", 1, np.nan), "valid/buo_y: found a value that is not finite"),
    ],
    "tensor": [
        (put("tensor", normal(1, N, T, X)), "found shape (1, 3, 5, 8), expected axes n, t, x"),
        (put("tensor", normal(N, X)), "tensor: found shape (3, 8)"),
        (group("tensor"), "tensor: found a group, expected an array"),
        (put("tensor", normal(0, T, X)), "tensor: found shape (0, 5, 8)"),
        (put("tensor", ones((N, T, X), int)), "found int64"),
        (drop("x-coordinate"), "x-coordinate: found only t-coordinate, tensor"),
        (drop("t-coordinate"), "t-coordinate: found only tensor, x-coordinate"),
        (put("x-coordinate", ones(9)), "x-coordinate: found shape (9,), expected (8,)"),
        (put("x-coordinate", ones(X)), "x-coordinate: found repeated"),
        (put("x-coordinate", np.full(X, np.nan)), "expected finite numbers"),
        (put("t-coordinate", ones(7)), "t-coordinate: found shape (7,), expected (5,) or (6,)"),
        (put("t-coordinate", -np.arange(T)), "expected times that increase"),
        (attr("/", "Nu", np.nan), "root@Nu"),
        (lambda f: f.clear(), "layout: found nothing, expected PDEArena"),
    ],
    "flow": [
        (drop("pressure"), "pressure: found only Vx, Vy, density"),
        (drop("Vy"), "Vy: found only Vx, density"),
        (put("Vx", normal(N, T, X, X)), "Vx: found shape (3, 5, 8, 8), expected (3, 5, 8, 6)"),
        (drop("y-coordinate"), "density: found shape (3, 5, 8, 6), expected"),
    ],
    "darcy": [(put("nu", normal(N - 1, X, Y)), "nu: found shape (2, 8, 6)")],
    "seeds": [
        (drop(f"{S}/data"), "0000/data: found only grid"),
        (drop(f"{S}/grid"), "0000/grid/x: found no 0000/grid"),
        (put(f"{S}/data", normal(T)), "0000/data: found shape (5,)"),
        (put(f"{S}/grid/t", np.arange(6)), "0000/grid/t: found shape (6,), expected (5,)"),
        (put(f"{S}/grid/y", np.full(Y, b"a")), "0000/grid/y: found |S1"),
        (lambda f: f.move(S, "seed0"), "layout: found 0001, 0002, s"),
    ],
    "incompressible": [
        (drop("velocity"), "velocity: found only force, particles, t"),
        (put("velocity", normal(N, T, X, Y, 1)), "velocity: found shape (3, 5, 8, 6, 1)"),
        (drop("particles"), "particles: found only force, t"),
        (put("particles", normal(N, 2, X, Y, 1)), "particles: found shape (3, 2, 8, 6, 1)"),
        (put("force", normal(1, X, Y, 2)), "force: found shape"),
        (drop("t"), "t: found only force, particles, velocity"),
        (put("t", np.zeros((N, T))), "t: found a step of 0"),
    ],
    "gym": [(put("velocity", normal(N, T, 4, X, Y)), "axes n, t, c, x, y; c 2 or 3")],
    "well": [
        (drop("dimensions"), "dimensions: found only boundary_conditions, scalars"),
        (put("dimensions", 1.0), "dimensions: found an array, expected a group"),
        (drop("dimensions/time"), "dimensions/time: found only x, y, expected an array"),
        (drop("dimensions/y"), "dimensions/y: found only time, x"),
        (attr("dimensions", "spatial_dims"), "dimensions@spatial_dims"),
        (attr("dimensions", "spatial_dims", [1, 2]), "a list of names"),
        (attr("/", "n_trajectories"), "root@n_trajectories: found Reynolds"),
        (attr("/", "n_trajectories", 0), "root@n_trajectories: found 0"),
        (attr("/", "n_trajectories", "3"), "expected finite numbers"),
        (attr("/", "n_spatial_dims", 3), "root@n_spatial_dims: found 3, expected 2 (dimensions)"),
        (put("dimensions/time", np.zeros(T)), "times that increase"),
        (put("dimensions/time", np.arange(T) ** 2), "times in even steps"),
        (put("dimensions/time", np.full(T, np.nan)), "dimensions/time: found a value"),
        (put("dimensions/time", np.full(T, b"a")), "dimensions/time: found |S1"),
        (put("dimensions/time", ones(0)), "dimensions/time: found shape (0,)"),
        (put("dimensions/time", ones((N, T))), "time: found shape (3, 5), expected (5,)"),
        (put("dimensions/x", np.array([0.0, 2, 1, 3, 4, 5, 6, 7])), "points in order"),
        (put("dimensions/x", ones(1)), "at least 2 points"),
        (put("dimensions/x", np.geomspace(0.1, 6, X)), "dimensions/x: found steps of 0.07948 to"),
        (attr("/", "grid_type", "spherical"), "grid_type: found spherical, expected cartesian"),
        (attr("dimensions/x", "time_varying", True), "a grid that does not move"),
        (attr("dimensions/x", "sample_varying"), "x@sample_varying: found time_varying"),
        (drop("t0_fields/mask"), "t0_fields/mask: found only density, inflow"),
        (group("t0_fields/mask"), "t0_fields/mask: found a group"),
        (put("t0_fields/density", normal(2, T, X, Y)), "shape (2, 5, 8, 6), expected (3, 5, 8, 6)"),
        (put("t1_fields/velocity", normal(N, 4, X, Y, 2)), "velocity: found shape (3, 4, 8, 6, 2)"),
        (put("t1_fields/velocity", normal(N, T, X, Y, 3)), "expected (3, 5, 8, 6, 2)"),
        (put("t0_fields/density", ones((N, T, X, Y), int)), "found int64, expected floating-point"),
        (attr("t0_fields/density", "dim_varying"), "t0_fields/density@dim_varying"),
        (attr("t0_fields/density", "dim_varying", [True]), "found [True], expected 2 times"),
        (attr("t0_fields/density", "time_varying", "yes"), "t0_fields/density@time_varying"),
        (attr("t1_fields", "field_names"), "t1_fields@field_names"),
        (drop("t0_fields", "t1_fields", "t2_fields"), "expected at least one field"),
        (drop("scalars/angle"), "scalars/angle: found only Reynolds, drift"),
        (put("scalars/angle", ones(4)), "scalars/angle: found shape (4,), expected (3,)"),
        (put("scalars/angle", np.full(N, np.inf)), "scalars/angle: found a"),
        (attr("boundary_conditions/y_wall", "associated_dims", ["z"]), "associated_dims: found z"),
        (attr("boundary_conditions/y_wall", "bc_type"), "boundary_conditions/y_wall@bc_type"),
    ],
}


def refused(path: Path, message: str, reader: Callable = read) -> None:
    with pytest.raises(DataError) as caught:
        reader(path)
    said = str(caught.value)
    assert message in said and str(path.parent) in said
    assert ", expected " in said and "\n" not in said


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, i) for kind, cases in BAD.items() for i in range(len(cases))]
)
def test_malformed_files_are_named(tmp_path: Path, kind: str, number: int) -> None:
    change, message = BAD[kind][number]
    path = make(kind, tmp_path)
    with h5py.File(path, "r+") as file:
        change(file)
    refused(path, message, read_pdearena if kind == "arena" else read)


JSON = "2d_phy_burgers.json"
Damage = Callable[[Path], Any]


def told(**changes: Any) -> Damage:
    """Change what the description says; None leaves an entry out."""
    content = {"name": "a", "info": INFO, **changes}
    content = {name: value for name, value in content.items() if value is not None}
    return lambda path: path.with_name(JSON).write_text(json.dumps(content))


def text(content: str) -> Damage:
    return lambda path: path.with_name(JSON).write_text(content)


def saved(values: Any) -> Damage:
    return lambda path: np.save(path, values)


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=APE)


BAD_APEBENCH: list[tuple[Damage, str]] = [
    (Path.unlink, "file: found nothing"),
    (lambda p: (p.unlink(), p.mkdir()), "file: found a folder"),
    (lambda p: p.write_bytes(b""), "found"),
    (lambda p: p.write_bytes(b"time,u\n0,1\n"), "found"),
    (archive, "expected a whole .npy array of numbers"),
    (lambda p: p.write_bytes(p.read_bytes()[:-9]), "it was cut off or damaged"),
    (lambda p: p.write_bytes(p.read_bytes()[:40]), "a whole .npy array"),
    (saved(np.array([{"a": 1}], object)), "objects, which are never loaded"),
    (saved(ones(APE.shape, int)), "array: found int64"),
    (saved(np.full(APE.shape, "a")), "array: found <U1"),
    (saved(APE[:, :, 0, 0]), "array: found shape (3, 5, 8)"),
    (saved(APE[:0]), "array: found shape (0, 5, 2, 8, 8)"),
    (saved(APE[..., :3]), "array: found shape (3, 5, 2, 8, 3)"),
    (saved(APE[..., :3, :3]), "num_points 8"),
    (saved(APE[:, :, :1]), "num_channels 2"),
    (saved(APE[..., 0]), "num_spatial_dims 2"),
    (lambda p: p.with_name(JSON).unlink(), "2d_phy_burgers_train.json or 2d_phy"),
    (text("{name: a"), f"{JSON}: file: found"),
    (text("[1, 2]"), f"{JSON}: info: found keys none"),
    (told(info=None), f"{JSON}: info: found keys name"),
    (told(info=3), f"{JSON}: info: found int, expected an object"),
    (told(info={**INFO, "dt": 0}), f"{JSON}: info.dt: found 0, expected values above"),
    (told(info={**INFO, "dt": "fast"}), f"{JSON}: info.dt: found <U4"),
    (told(info={**INFO, "dt": float("nan")}), "info.dt: found a value that is not"),
    (told(info={**INFO, "domain_extent": -1.0}), "info.domain_extent"),
    (told(trajectories={"dt": [0.1]}), "trajectories.dt: found shape (1,), expected (3,)"),
    (told(trajectories={"nu": [[1], [1, 2], 3]}), "of several lengths"),
    (told(trajectories={"nu": ["a"] * N}), "trajectories.nu: found <U1"),
]


@pytest.mark.parametrize("number", range(len(BAD_APEBENCH)))
def test_malformed_files_of_apebench_are_named(tmp_path: Path, number: int) -> None:
    damage, message = BAD_APEBENCH[number]
    path = make("ape", tmp_path)
    damage(path)
    refused(path, message, read_apebench)
    if damage is not archive and "_train.json" not in message:  # else plain arrays for `read`
        whole = path.is_file() and path.read_bytes()[:6] == b"\x93NUMPY"
        refused(path, message if whole else "2d_phy_burgers", read)

"""A good file of every layout as its own tools write it, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from fixtures import solved

from jaxrl_rollouts.pde.files import write_pdearena

N, T, X, Y = 3, 5, 8, 6
ALL = slice(None)
# Options of `pde generate`.
SMALL = (
    "--trajectories 3 --points 32 --frames 4 --burn-in 2 --chunk 2 --no-progress "
    "--extent 20 24 --parameter-range 0.5 1.5"
)
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def centres(points: int, length: float = 1.0) -> np.ndarray:
    return ((np.arange(points) + 0.5) * length / points).astype(np.float32)


def arena(path: Path) -> Path:
    """Ours, of several chunks."""
    chunks = [solved((rows, T, 1, X), rows) for rows in (2, 1)]
    return write_pdearena(path, iter(chunks), viscosity=True)


LENGTHS, DT = (32.0, 24.0), 1.5


def arena_flow(path: Path, split: str = "valid") -> Path:
    """As the smoke inflow's generator writes it: float64, `x` with both ends of the domain."""
    values = np.random.default_rng(0).normal(size=(N, T, 3, X, Y))
    with h5py.File(path, "w") as file:
        group = file.create_group(split)
        for channel, name in enumerate(("u", "vx", "vy")):
            group[name] = values[:, :, channel]
        group["t"] = np.tile(np.linspace(0.0, DT * (T - 1), T), (N, 1))
        group["dt"] = np.full(N, DT)
        for name, length, size in zip("xy", LENGTHS, (X, Y), strict=True):
            group[name] = np.tile(np.linspace(0.0, length, size), (N, 1))
            group[f"d{name}"] = np.full(N, length / (size - 1))
        group["buo_y"] = np.linspace(0.2, 0.5, N)
    return path


def bench(fill: Callable[[h5py.File], None]) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        with h5py.File(path, "w") as file:
            fill(file)
        return path

    return make


@bench
def tensor(file: h5py.File) -> None:
    """`transform` of Data_Merge.py: Burgers, with one instant more than frames."""
    file["tensor"] = normal(N, T, X)
    file["x-coordinate"] = centres(X)
    file["t-coordinate"] = np.arange(T + 1) * 0.01
    file.attrs["Nu"] = 0.001


@bench
def flow(file: h5py.File) -> None:
    """`merge` of Data_Merge.py: two-dimensional compressible flow."""
    for name in ("density", "pressure", "Vx", "Vy"):
        file[name] = normal(N, T, X, Y)
    file["x-coordinate"], file["y-coordinate"] = centres(X), centres(Y, 3.0)
    file["t-coordinate"] = np.arange(T + 1) * 0.05
    file.attrs.update(eta=0.1, zeta=0.1, M=1.0)


@bench
def darcy(file: h5py.File) -> None:
    """`merge` of Data_Merge.py: Darcy flow has neither frames nor times."""
    file["tensor"], file["nu"] = normal(N, 1, X, Y), normal(N, X, Y)
    file["x-coordinate"], file["y-coordinate"] = centres(X), centres(Y)
    file.attrs["beta"] = 0.1


@bench
def seeds(file: h5py.File) -> None:
    """`simulator` of gen_diff_react.py."""
    for seed in range(N):
        group = file.create_group(f"{seed:04d}")
        grid = {"x": centres(X, 2.0) - 1, "y": centres(Y, 2.0), "t": np.linspace(0, 2, T)}
        for key, values in {
            "data": normal(T, X, Y, 2),
            **{f"grid/{k}": grid[k] for k in grid},
        }.items():
            group.create_dataset(key, data=values, dtype="f4", compression="lzf")
        group.attrs["config"] = "sim:\n  seed: 0\n"


@bench
def incompressible(file: h5py.File) -> None:
    """`h5_for` of data_io.py: a chunk per frame."""
    file.attrs.update(config="sim_name: ns\n", latestIndex=T - 1)
    shapes = {"velocity": (N, T, X, Y, 2), "particles": (N, T, X, Y, 1), "force": (N, X, Y, 2)}
    for key, shape in shapes.items():
        stored: Any = {"compression": "lzf", "chunks": (1, 1, *shape[2:]), "shuffle": True}
        file.create_dataset(key, data=normal(*shape), **stored)
    file["t"] = (np.arange(T) * 0.005 * np.ones((N, 1))).astype(np.float32)


def gym(path: Path, key: str = "velocity", channels: int = 2, frames: int = 21) -> Path:
    """As netCDF4 stores it: an HDF5 file with a scale for every dimension."""
    with h5py.File(path, "w") as file:
        file[key] = normal(N, frames, channels, X, Y)
        for axis, name in enumerate(("sample", "time", "channel", "x", "y")):
            scale = file.create_dataset(name, file[key].shape[axis : axis + 1], "f4")
            scale.make_scale(f"This is a netCDF dimension but not a netCDF variable. {name}")
            file[key].dims[axis].attach_scale(scale)
    return path


# Arrays of The Well's file, and whether they vary with trajectories, with time and along the axes.
ARRAYS = {
    "t0_fields/density": (normal(N, T, X, Y), True, True, [True, True]),
    "t0_fields/inflow": (normal(N, T, X), True, True, [True, False]),
    "t0_fields/mask": (normal(X, Y), False, False, [True, True]),
    "t1_fields/velocity": (normal(N, T, X, Y, 2), True, True, [True, True]),
    "t1_fields/gravity": (normal(N, 2), True, False, [False, False]),
    "t2_fields/stress": (normal(T, X, Y, 2, 2), False, True, [True, True]),
}


@bench
def well(file: h5py.File) -> None:
    """A two-dimensional file as The Well's own: float32, names as variable-length text."""
    file.attrs.update(dataset_name="flow", grid_type="cartesian", n_spatial_dims=2)
    file.attrs.update(n_trajectories=N, simulation_parameters=["Reynolds"], Reynolds=1e4)
    axes = file.create_group("dimensions")
    axes.attrs["spatial_dims"] = ["x", "y"]
    for name, size, step in (("time", T, 0.5), ("x", X, 0.25), ("y", Y, 0.5)):
        axes[name] = np.arange(size, dtype="f4") * np.float32(step)
        axes[name].attrs["sample_varying"] = False
    still = {"sample_varying": False, "time_varying": False}
    for name, kind in (("x_periodic", "PERIODIC"), ("y_wall", "wall"), ("y_open", "open")):
        axes[name[0]].attrs["time_varying"] = False
        condition = file.create_group(f"boundary_conditions/{name}")
        condition.attrs.update(associated_dims=[name[0]], associated_fields=[], bc_type=kind)
        condition.attrs.update(still)
        condition["mask"] = np.arange(X if name[0] == "x" else Y) == 0
        condition["values"] = np.zeros(1, "f4")
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = ["Reynolds", "angle", "drift"]
    varying = {"Reynolds": (np.float32(1e4), False, False)}
    varying |= {"angle": (np.arange(N, dtype="f4"), True, False)}
    varying |= {"drift": (np.arange(T, dtype="f4"), False, True)}
    for name, (values, samples, times) in varying.items():
        scalars[name] = values
        scalars[name].attrs.update(sample_varying=samples, time_varying=times)
    for order in range(3):
        keys = [key for key in ARRAYS if key.startswith(f"t{order}")]
        group = file.create_group(f"t{order}_fields")
        group.attrs["field_names"] = [key.split("/")[1] for key in keys]
        for key in keys:
            values, samples, times, dims = ARRAYS[key]
            file[key] = values
            file[key].attrs.update(sample_varying=samples, time_varying=times, dim_varying=dims)
    file["t2_fields/stress"].attrs.update(symmetric=True, antisymmetric=False)


# `asdict` of an APEBench scenario, shortened.
INFO = {
    "num_spatial_dims": 2, "num_points": X, "num_channels": 2, "ic_config": "fourier;5;true;true",
    "num_train_samples": N, "train_temporal_horizon": T - 1, "vlim": [-1.0, 1.0],
    "domain_extent": 2.0, "dt": 0.1, "diffusion_coef": 0.01, "coarse_proportion": 0.5,
}  # fmt: skip
APE = normal(N, T, 2, X, X)


def ape(path: Path) -> Path:
    """What `scrape_data_and_metadata` writes."""
    path = path.with_name("2d_phy_burgers_train.npy")
    np.save(path, APE)
    np.save(path.with_name("2d_phy_burgers_test.npy"), APE[:2])
    named = {"name": "2d_phy_burgers", "info": INFO}
    path.with_name("2d_phy_burgers.json").write_text(json.dumps(named))
    return path


class Layout(NamedTuple):
    """A layout: its maker, and an entry of its file that is in trajectory 2, frame 3."""

    make: Callable[[Path], Path]
    key: str = ""
    entry: tuple[int, ...] = ()
    named: str = ""  # what the error calls it


LAYOUTS = {
    "arena": Layout(arena, "train/pde_5-8", (2, 3, 1), "train/pde_5-8"),
    "arena_flow": Layout(arena_flow, "valid/vy", (2, 3, 2, 3), r"valid/vy"),
    "tensor": Layout(tensor, "tensor", (2, 3, 1), "tensor"),
    "flow": Layout(flow, "pressure", (2, 3, 1, 1), "pressure"),
    "darcy": Layout(darcy),
    "seeds": Layout(seeds, "0002/data", (3, 1, 1, 1), "0002/data"),
    "incompressible": Layout(incompressible, "velocity", (2, 3, 1, 1, 1), "velocity"),
    "gym": Layout(gym, "velocity", (2, 3, 1, 2, 3), "velocity"),
    "well": Layout(well, "t1_fields/velocity", (2, 3, 1, 1, 0), "velocity"),
    "ape": Layout(ape, "", (2, 3, 0, 1, 1), "array"),
}  # fmt: skip


def make(kind: str, folder: Path) -> Path:
    """A file of a layout; its ending says nothing about it."""
    return LAYOUTS[kind].make(folder / f"{kind}.dat")

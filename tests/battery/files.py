"""A good file of every reader family, how the library reads it, and what is really in it."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

Values = dict[str, np.ndarray]
ROWS, FRAMES, POINTS = 24, 6, 16


class Family(NamedTuple):
    """Files of one kind.

    Attributes:
        make: writes a good one into a folder; returns what is given to the reader.
        read: by the library; also looks at it as a user would (`inspect`), printing.
        truth: the same numbers, found by h5py or numpy alone, in whatever order.
        file: what is damaged, relative to the folder.
        text: a JSON file beside it, "" for none.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Values]
    truth: Callable[[Path], Values]
    file: str
    text: str = ""


def _rows() -> Values:
    rng = np.random.default_rng(0)
    path = rng.normal(size=(ROWS + 1, 3)).astype("f4")
    last = np.arange(1, ROWS + 1) % 8 == 0
    return {
        "observations": path[:-1],
        "actions": rng.uniform(-1, 1, (ROWS, 2)).astype("f4"),
        "rewards": rng.normal(size=ROWS).astype("f4"),
        "next_observations": path[1:],
        "terminals": np.zeros(ROWS, bool),
        "timeouts": last,
    }


def read_rows(path: Path) -> Values:
    """What `load` gives; `inspect_file` has to come to an end for whatever it is."""
    from jaxrl_rollouts.offline.data import inspect_file, load, print_inspection

    print_inspection(inspect_file(path, download=False))
    dataset = load(path, download=False)
    keys = ["observations", "actions", "rewards"]
    if dataset.attributes.get("rewards") == "none":  # OGBench's are zeros, and that is said
        keys.remove("rewards")
    return {key: np.asarray(getattr(dataset.transitions, key)) for key in keys}


def _of_keys(keys: dict[str, str]) -> Callable[[Path], Values]:
    def truth(path: Path) -> Values:
        if path.suffix == ".npz":
            with np.load(path) as stored:
                return {name: stored[key] for name, key in keys.items()}
        with h5py.File(path) as file:
            return {name: np.asarray(file[key]) for name, key in keys.items()}

    return truth


def _d4rl(folder: Path) -> Path:
    with h5py.File(folder / "a.hdf5", "w") as file:
        for key, values in _rows().items():
            file.create_dataset(key, data=values, compression="gzip", fletcher32=True)
        file.attrs.update(env_id="Nowhere-v0", max_episode_steps=8)
    return folder / "a.hdf5"


def _neorl(folder: Path) -> Path:
    rows = _rows()
    arrays = {"obs": rows["observations"], "next_obs": rows["next_observations"]}
    arrays |= {"action": rows["actions"], "reward": rows["rewards"][:, None]}
    arrays |= {"done": rows["timeouts"][:, None] * 1.0, "index": np.array([0, 8, 16])}
    np.savez_compressed(folder / "a.npz", **arrays)
    return folder / "a.npz"


def _ogbench(folder: Path) -> Path:
    rows = _rows()
    rows["terminals"] = rows.pop("timeouts")
    np.savez(folder / "a.npz", **rows, masks=np.ones(ROWS))
    return folder / "a.npz"


def _minari(folder: Path) -> Path:
    import gymnasium
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    rows, box = _rows(), gymnasium.spaces.Box
    data = folder / "set" / "data"
    data.mkdir(parents=True)
    spaces = box(-np.inf, np.inf, (3,), np.float32), box(-1, 1, (2,), np.float32)
    storage = MinariStorage.new(data, *spaces, data_format="hdf5")
    buffers = []
    for index in range(3):
        part = slice(8 * index, 8 * index + 8)
        states = np.concatenate([rows["observations"][part], rows["next_observations"][part][-1:]])
        flags = {"terminations": rows["terminals"][part], "truncations": rows["timeouts"][part]}
        flags = {key: list(values) for key, values in flags.items()}
        columns = {"actions": rows["actions"][part], "rewards": list(rows["rewards"][part])}
        buffers.append(EpisodeBuffer(id=index, observations=states, **columns, **flags))
    storage.update_episodes(buffers)
    storage.update_metadata({"dataset_id": "toy/set-v0", "minari_version": "0.5.4"})
    return folder / "set"


def _minari_truth(path: Path) -> Values:
    with h5py.File(path / "data" / "main_data.hdf5") as file:
        episodes = [file[key] for key in file]
        parts = {key: [np.asarray(one[key]) for one in episodes] for key in ("actions", "rewards")}
        parts["observations"] = [np.asarray(one["observations"])[:-1] for one in episodes]
        return {key: np.concatenate(values) for key, values in parts.items()}


def read_fields(path: Path) -> Values:
    """All of a file's fields; `pde inspect` has to come to an end for whatever it is."""
    from jaxrl_rollouts.pde.files import read
    from jaxrl_rollouts.pde.frames import check_written
    from jaxrl_rollouts.pde.inspection import inspect

    inspect(str(path))
    found = read(path)
    assert (found.dt[np.isfinite(found.dt)] > 0).all()
    values = found.read(slice(None), slice(None))
    check_written(path, values)  # as every training does
    return {"fields": values}


def _fields() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(4, FRAMES, 1, POINTS)).astype("f4")


def _solved() -> Any:
    from jaxrl_rollouts.pde.generate import Solved

    columns = [np.linspace(0.5, 1.5, 4) for _ in range(3)]
    return [Solved(_fields(), *columns)]


def _pdearena(folder: Path) -> Path:
    from jaxrl_rollouts.pde.files import write_pdearena

    return write_pdearena(folder / "a.h5", _solved(), viscosity=True)


def _well(folder: Path) -> Path:
    from jaxrl_rollouts.pde.files import write_well

    return write_well(folder / "a.h5", _solved())


def _apebench(folder: Path) -> Path:
    from jaxrl_rollouts.pde.files import write_apebench

    return write_apebench(folder / "a.npy", _solved())


def _single(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        file["tensor"] = _fields()[:, :, 0]
        file["x-coordinate"] = np.linspace(0, 1, POINTS)
        file["t-coordinate"] = np.linspace(0, 1, FRAMES + 1)
        file.attrs["beta"] = 0.5
    return folder / "a.h5"


def _seeds(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        for row, field in enumerate(_fields()):
            file[f"{row:04}/data"] = np.moveaxis(field, 1, -1)
            file[f"{row:04}/grid/x"] = np.linspace(0, 1, POINTS)
            file[f"{row:04}/grid/t"] = np.linspace(0, 1, FRAMES)
    return folder / "a.h5"


def _array(folder: Path) -> Path:
    np.savez(folder / "a.npz", u=_fields(), dt=0.1, dx=np.full(4, 0.2), nu=np.arange(4.0))
    return folder / "a.npz"


def _big(path: Path) -> Values:
    """Of an HDF5 file all arrays of three axes or more: those of our layouts are fields."""
    if path.suffix == ".npy":
        return {"fields": np.load(path)}
    parts: list[np.ndarray] = []

    def walk(group: h5py.Group, axes: int) -> None:
        for name in group:
            with contextlib.suppress(OSError, LookupError, RuntimeError):  # of other parts
                node = group[name]
                if isinstance(node, h5py.Group):
                    walk(node, axes)
                elif not isinstance(node, h5py.Dataset) or name in ("t", "x"):
                    continue  # a column of times is no field
                elif node.ndim >= axes:
                    parts.append(np.asarray(node).ravel())

    with h5py.File(path) as file:
        walk(file, 2 if "0000" in file else 3)
    return {"fields": np.concatenate(parts)}


def _report(folder: Path) -> Path:
    from jaxrl_rollouts.reports.claims import Claim
    from jaxrl_rollouts.reports.report import Report

    report = Report("toy", "cpu", {"a": 1}, "jaxrl-rollouts run toy", seeds=3)
    report.number("return", [1.0, 2.0, 6.0])
    report.table("scores", [{"method": "ravl", "score": np.arange(3.0), "n": 1}])
    texts = {"source": "a paper", "expected": "much"}
    report.claim(Claim.of("more", values=[1.0, 2.0], at_least=0.5, **texts))
    report.note("a note")
    report.save(folder / "run")
    return folder / "run"


def read_report(path: Path) -> Values:
    """Print a report, and publish it into a folder that must stay the only one."""
    from jaxrl_rollouts.reports.report import load_report, publish
    from jaxrl_rollouts.reports.text import print_report

    report = load_report(path)
    print_report(report)
    publish(path, path.parent / "results")
    shutil.rmtree(path.parent / "results")
    return {"claims": np.array([value for claim in report.claims for value in claim.values])}


def _claims(path: Path) -> Values:
    claims = json.loads((path / "report.json").read_text())["claims"]
    return {"claims": np.array([value for claim in claims for value in claim["values"]], float)}


_OFFLINE = {key: key for key in ("observations", "actions", "rewards")}
_NEORL = {"observations": "obs", "actions": "action", "rewards": "reward"}
FAMILIES: dict[str, Family] = {
    "D4RL": Family(_d4rl, read_rows, _of_keys(_OFFLINE), "a.hdf5"),
    "Minari": Family(
        _minari, read_rows, _minari_truth, "set/data/main_data.hdf5", "set/data/metadata.json"
    ),
    "OGBench": Family(_ogbench, read_rows, _of_keys(_OFFLINE), "a.npz"),
    "NeoRL": Family(_neorl, read_rows, _of_keys(_NEORL), "a.npz"),
    "PDEArena": Family(_pdearena, read_fields, _big, "a.h5"),
    "PDEBench, one array": Family(_single, read_fields, _big, "a.h5"),
    "PDEBench, seeds": Family(_seeds, read_fields, _big, "a.h5"),
    "The Well": Family(_well, read_fields, _big, "a.h5"),
    "APEBench": Family(_apebench, read_fields, _big, "a.npy", "a.json"),
    "arrays": Family(_array, read_fields, _of_keys({"fields": "u"}), "a.npz"),
    "reports": Family(_report, read_report, _claims, "run/report.json", "run/report.json"),
}


def quietly(read: Callable[[Path], Values], path: Path) -> tuple[Values, str]:
    """What is read, and what was printed meanwhile."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        values = read(path)
    return values, printed.getvalue()

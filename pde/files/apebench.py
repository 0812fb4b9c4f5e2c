"""APEBench's layout (Koehler et al. 2024): an array `[n, T + 1, C, *space]` in NumPy's format and
what it is in a JSON file beside it, `{"name": ..., "info": {...}}`.

`NAME_train.npy` and `NAME_test.npy` share `NAME.json`, unless they have one of their own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError, one_line
from jaxrl_rollouts.foreign import check_file, clean
from jaxrl_rollouts.numpy_files import map_npy

from ..fieldset import FieldSet
from ..generate import Solved
from .pdearena import SPLITS
from .stored import (
    check_count,
    check_finite,
    check_numbers,
    check_shape,
    checked_reader,
    default_names,
    take,
)

LAYOUT = "APEBench"
MAGIC = b"\x93NUMPY"
# Settings of a scenario that are numbers of its equation: diffusion_coef, diffusion_gamma, ...
ENDINGS = ("_coef", "_alpha", "_beta", "_gamma", "_delta", "_rate", "_scale")
NUMBERS = ("diffusivity", "diffusivity_1", "diffusivity_2", "drag", "injection_mode")


def read_apebench(path: str | Path) -> FieldSet:
    """Look into an array; its fields are mapped into memory and read when needed.

    A scenario of the difficulty or normalized kind has no units: its frames are 1 apart and
    its domain has extent 1. Our writer adds `"trajectories": {"dt": [...], "domain_extent":
    [...], "viscosity": [...]}`, which goes before the numbers of `info`.
    """
    path = Path(path)
    mapped = map_npy(path)
    if mapped.dtype.kind != "f":
        raise DataError(path, "array", mapped.dtype, "floating-point numbers")
    if not 4 <= mapped.ndim <= 6 or 0 in mapped.shape:
        raise DataError(path, "array", f"shape {mapped.shape}", "[n, T + 1, C, *space], not empty")
    count, frames, channels, *space = shape = mapped.shape
    check_count(path, "array", count)
    beside = _description(path)
    info, own = _load(beside)
    expected = {"num_spatial_dims": len(space), "num_points": space[0], "num_channels": channels}
    for name, value in expected.items():
        if info.get(name, value) != value or len(set(space)) > 1:
            raise DataError(path, "array", f"shape {shape}", f"{name} {info.get(name)} ({beside})")
    parameters = {
        name: np.full(count, check_numbers(beside, f"info.{name}", value), np.float64)
        for name, value in info.items()
        if (name.endswith(ENDINGS) or name in NUMBERS) and type(value) in (int, float)
    }
    values = {name: _column(beside, info, own, name, count) for name in ("dt", "domain_extent")}
    for name in set(own) - set(values):
        parameters[name] = _column(beside, info, own, name, count)

    def load(rows: np.ndarray, frames: np.ndarray) -> np.ndarray:
        part = take(map_npy(path), rows, frames)
        check_finite(path, "array", part, rows, frames)
        return part

    extent = np.repeat(values["domain_extent"][:, None], len(space), 1)
    return FieldSet(
        path,
        LAYOUT,
        shape,
        checked_reader(path, "array", shape, load, mapped.itemsize),
        values["dt"],
        extent,
        parameters,
        default_names(channels),
        ("periodic",) * len(space),
    )


def is_described(path: Path) -> bool:
    """Whether a JSON file that may describe it lies beside an array."""
    return any(beside.is_file() for beside in _beside(path))


def _beside(path: Path) -> list[Path]:
    stem = path.stem
    stems = [stem, *(stem.removesuffix(f"_{s}") for s in SPLITS if stem.endswith(f"_{s}"))]
    return [path.with_name(f"{name}.json") for name in stems]


def _description(path: Path) -> Path:
    for beside in _beside(path):
        if beside.is_file():
            return beside
    expected = " or ".join(beside.name for beside in _beside(path))
    raise DataError(path, "description", "no JSON file beside it", expected)


def _load(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    check_file(path, "a JSON file")
    try:
        loaded = clean(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, "file", one_line(error), "a JSON file") from error
    found = loaded if isinstance(loaded, dict) else {}
    info: Any = found.get("info")
    own: Any = found.get("trajectories", {})
    for name, value in {"info": info, "trajectories": own}.items():
        if not isinstance(value, dict):
            has = f"keys {', '.join(found) or 'none'}" if value is None else type(value).__name__
            raise DataError(path, name, has, "an object")
    return info, own


def _column(
    path: Path, info: Mapping[str, Any], own: Mapping[str, Any], name: str, count: int
) -> np.ndarray:
    """A number for each trajectory."""
    if name in own:
        key = f"trajectories.{name}"
        values = check_numbers(path, key, own[name])
        check_shape(path, key, values.shape, (count,))
    else:
        key = f"info.{name}"
        values = check_numbers(path, key, info.get(name, 1.0))
        check_shape(path, key, values.shape, ())
    if name in ("dt", "domain_extent") and (values <= 0).any():
        raise DataError(path, key, values.min(), "values above 0")
    return np.broadcast_to(values, (count,)).astype(np.float64)


def write_apebench(
    path: str | Path,
    chunks: Iterable[Solved],
    *,
    split: str = "train",
    name: str = "",
    parameter: str = "viscosity",
    dtype: str = "float32",
) -> Path:
    """Write solved chunks as they come, and what they are into a JSON file of the same name.

    Both appear once the last chunk is in.

    Args:
        path: the `.npy` file.
        chunks: chunks of `generate`; fields `[b, T + 1, C, *space]`.
        split: train, valid or test: in which settings of the scenario the counts stand.
        name: name of the scenario; that of the file unless given.
        parameter: the name of the equation's parameter.
        dtype: data type of the fields.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ConfigError("split", split, f"one of {', '.join(SPLITS)}")
    if path.suffix != ".npy":
        raise ConfigError("path", str(path), "a file name that ends in .npy")
    if not path.parent.is_dir():
        raise DataError(path, "folder", "nothing", f"the folder {path.parent}")
    mark = uuid.uuid4().hex
    beside = path.with_suffix(".json")
    parts = {final: final.with_name(f".{final.name}.{mark}.part") for final in (beside, path)}
    columns: dict[str, list[float]] = {"dt": [], "domain_extent": [], parameter: []}
    shape: tuple[int, ...] = ()
    try:
        with open(parts[path], "xb") as file:
            for chunk in chunks:
                if not shape:
                    shape = chunk.fields.shape[1:]
                    _header(file, 0, shape, dtype)
                check_shape(path, "chunks", chunk.fields.shape[1:], shape)
                file.write(np.ascontiguousarray(chunk.fields, dtype).tobytes())
                for key, values in zip(
                    columns, (chunk.dt, chunk.extent, chunk.parameter), strict=True
                ):
                    columns[key] += np.asarray(values, np.float64).tolist()
            if not shape:
                raise DataError(path, "chunks", "none", "at least one")
            _header(file, len(columns["dt"]), shape, dtype)
        frames, channels, *space = shape
        info = {
            "num_spatial_dims": len(space),
            "num_points": space[0],
            "num_channels": channels,
            f"num_{split}_samples": len(columns["dt"]),
            f"{split}_temporal_horizon": frames - 1,
        }
        info |= {key: float(np.mean(columns[key])) for key in ("dt", "domain_extent")}
        described = {"name": name or path.stem, "info": info, "trajectories": columns}
        parts[beside].write_text(json.dumps(described))
        for final, part in parts.items():
            part.replace(final)
    except OSError as error:
        raise DataError(path, "file", one_line(error), "a place to write to") from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return path


def _header(file: Any, count: int, shape: tuple[int, ...], dtype: str) -> None:
    """NumPy pads its header so that the first axis can grow in place."""
    file.seek(0)
    described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (count, *shape)}
    np.lib.format.write_array_header_1_0(file, described)

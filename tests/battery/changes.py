"""Ways to damage a file: its bytes, what is in it, what it says of itself."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

EVIL = "\x1b]0;pwn\x07\x9b2J"
JUNK: list[Any] = [
    None, True, -1, 0, 3, 1e300, -1e-300, float("nan"), float("inf"), 10**30, "", "x", EVIL,
    "../../x", "/etc/passwd", "evil:make", "os:abort", [], [1], [[]], {}, {"a": {"b": []}},
    "[" * 500, "x" * 10**5,
]  # fmt: skip
Change = Callable[[Path, np.random.Generator], Any]


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple:
        return open, ("ran", "w")


# Any file: bytes.


def cut(path: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.integers(len(data))])


def flip(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 9)):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def flip_head(path: Path, rng: np.random.Generator) -> None:
    """Where formats keep their sizes and addresses."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 5)):
        data[rng.integers(min(len(data), 3000))] = rng.integers(256)
    path.write_bytes(data)


def blank(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    begin = rng.integers(len(data))
    length = int(rng.integers(1, 2000))
    data[begin : begin + length] = bytes(min(length, len(data) - begin))
    path.write_bytes(data)


def replace(path: Path, rng: np.random.Generator) -> None:
    """By something that is no file of this kind, or no file."""
    path.unlink()
    kind = rng.integers(7)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.symlink_to("/etc/passwd")
    elif kind == 4:
        path.symlink_to(path)
    elif kind == 5:
        path.write_bytes(rng.bytes(500))
    else:
        path.touch()


# HDF5: what is in it.


def _names(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(
        lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None
    )
    return names


def _taken(file: h5py.File, rng: np.random.Generator) -> tuple[str, np.ndarray, dict]:
    """A dataset, out of the file."""
    name = str(rng.choice(_names(file)))
    values, attributes = np.asarray(file[name]), dict(file[name].attrs)
    del file[name]
    return name, values, attributes


def elsewhere(path: Path, rng: np.random.Generator) -> None:
    """A dataset that is not in the file any more."""
    other = path.with_name("other.h5")
    with h5py.File(path, "a") as file:
        name, values, _ = _taken(file, rng)
        with h5py.File(other, "w") as source:
            source["x"] = np.ones_like(values)
        kind = rng.integers(6)
        if kind < 3:
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            source_name = [str(other), "gone.h5", "."][kind]
            key = name if kind == 2 else "x"
            layout[...] = h5py.VirtualSource(source_name, key, values.shape)
            file.create_virtual_dataset(name, layout)
        elif kind == 3:
            raw = [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
            shape = values.shape or (1,)
            file.create_dataset(name, shape, values.dtype, external=raw)
        elif kind == 4:
            file[name] = h5py.ExternalLink(str(other), "x")
        else:
            targets = ["/" + name, "/gone", "/" + (_names(file) or ["x"])[0]]
            file[name] = h5py.SoftLink(str(rng.choice(targets)))


def endless(path: Path, rng: np.random.Generator) -> None:
    """A few bytes that declare terabytes, or part of what they should be."""
    with h5py.File(path, "a") as file:
        name, values, attributes = _taken(file, rng)
        count = int(10 ** rng.integers(1, 13))
        shape = (count, *values.shape[1:])
        chunks = (min(count, 1000), *values.shape[1:]) if rng.integers(2) else None
        made = file.create_dataset(name, shape, values.dtype, chunks=chunks)
        made.attrs.update(attributes)
        if chunks and values.size and rng.integers(2):
            made[: len(values)] = values[:count]


def numbers(path: Path, rng: np.random.Generator) -> None:
    """Other numbers, kinds of numbers or shapes."""
    with h5py.File(path, "a") as file:
        name, values, attributes = _taken(file, rng)
        file[name] = _changed(values, rng)
        file[name].attrs.update(attributes)


def _changed(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    flat = values.astype(np.float64)
    if flat.size and rng.integers(2):
        flat.reshape(-1)[rng.integers(flat.size)] = rng.choice([np.nan, np.inf, 1e300, -1e39])
        return flat
    changes: list[Callable[[], np.ndarray]] = [
        lambda: values.astype("S8"),
        lambda: values + 1j,
        lambda: values[..., None],
        lambda: values[:-1] if values.ndim else values[None],
        lambda: values[:0] if values.ndim else values,
        lambda: values.T,
        lambda: np.concatenate([values, values]) if values.ndim else values,
        lambda: np.zeros(values.shape, [("a", "f4"), ("b", "i8")]),
        lambda: flat.astype(">f8"),
        lambda: values.ravel()[:1].reshape(()) if values.size else values,
    ]
    return changes[rng.integers(len(changes))]()


def names(path: Path, rng: np.random.Generator) -> None:
    """A dataset of another name, missing, or a group."""
    with h5py.File(path, "a") as file:
        name = str(rng.choice(_names(file)))
        kind = rng.integers(4)
        if kind == 0:
            del file[name]
        elif kind == 1:
            file.move(name, f"{name}{EVIL}")
        elif kind == 2:
            other = str(rng.choice(_names(file)))
            values = [np.asarray(file[key]) for key in (name, other)]
            for key, value in zip((other, name), values, strict=True):
                del file[key]
                file[key] = value
        else:
            del file[name]
            file[f"{name}/inner"] = 1.0


def attributes(path: Path, rng: np.random.Generator) -> None:
    with h5py.File(path, "a") as file:
        nodes = [file, *(file[name] for name in _names(file))]
        nodes += [node.parent for node in nodes[1:]]
        nodes = [node for node in nodes if len(node.attrs)] or [file]
        node = nodes[rng.integers(len(nodes))]
        known = [*node.attrs, "env_id", "action_low", "action_high", "max_episode_steps"]
        key, junk = str(rng.choice(known)), JUNK[rng.integers(len(JUNK))]
        if junk is None:
            node.attrs.pop(key, None)
        elif isinstance(junk, dict | int) and not isinstance(junk, bool) and junk == 10**30:
            node.attrs[key] = np.full(3, 2**63 - 1)
        elif isinstance(junk, dict | list):
            node.attrs[key] = np.zeros((0, 2))
        else:
            node.attrs[key] = junk[:60_000] if isinstance(junk, str) else junk


# npz and npy: what is in it.


def arrays(path: Path, rng: np.random.Generator) -> None:
    """Other arrays in an archive; objects among them."""
    if path.suffix == ".npy":
        values = np.load(path)
        np.save(path, np.array([Evil()], object) if rng.integers(4) == 0 else _changed(values, rng))
        return
    with np.load(path) as stored:
        content = dict(stored)
    key = str(rng.choice(sorted(content)))
    kind = rng.integers(6)
    if kind == 0:
        content[key] = np.array([Evil()] * 3, object)
    elif kind == 1:
        del content[key]
    elif kind == 2:
        content[f"../{key}{EVIL}"] = content.pop(key)
    elif kind == 3:
        content[key] = np.zeros(3 * 10**7)  # 240 MB in 240 kB
    else:
        content[key] = _changed(content[key], rng)
    np.savez_compressed(path, **content)
    Path("ran").unlink(missing_ok=True)


def header(path: Path, rng: np.random.Generator) -> None:
    """An array that declares another size than it has."""
    loaded = np.load(path)
    good = {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    key = str(rng.choice(sorted(good)))
    values = good[key]
    shapes = ["(10**12,)", "(99999999999, 9)", "(-4, 6)", "(2,)", "(3.5,)", "()", "(9, 9, 9)"]
    shape = rng.choice([*shapes, "__import__"])
    text = f"{{'descr': '{values.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    content += values.tobytes()
    if path.suffix == ".npy":
        path.write_bytes(content)
        return
    with zipfile.ZipFile(path, "w") as archive:
        for name in good:
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, good[name]) if name != key else entry.write(
                    content
                )


def texts(path: Path, rng: np.random.Generator) -> None:
    """A JSON file with something else somewhere, or far too deep."""
    if rng.integers(12) == 0:
        path.write_text("[" * 200_000)
        return
    data = json.loads(path.read_text())
    data.pop("digest", None)  # who changes a report can make a digest, too
    place, depth = data, rng.integers(1, 5)
    for _ in range(depth):
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not len(keys):
            break
        key = keys[rng.integers(len(keys))]
        inner = place[key]
        if isinstance(inner, dict | list) and inner and rng.integers(3):
            place = inner
            continue
        if rng.integers(4) == 0 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = JUNK[rng.integers(len(JUNK))]
        break
    if "env_spec" in data or rng.integers(6) == 0:
        spec = {"id": "x", "entry_point": "builtins:open", "kwargs": {"file": "ran", "mode": "w"}}
        data["env_spec"] = json.dumps(spec | {"additional_wrappers": []})
        data.pop("action_space", None)
    path.write_text(json.dumps(data))


BYTES: tuple[Change, ...] = (cut, flip, flip, flip_head, flip_head, blank, replace)
INSIDE: dict[str, tuple[Change, ...]] = {
    ".hdf5": (elsewhere, elsewhere, endless, numbers, numbers, names, attributes),
    ".h5": (elsewhere, elsewhere, endless, numbers, numbers, names, attributes),
    ".npz": (arrays, arrays, arrays, header),
    ".npy": (arrays, header),
    ".json": (),
}

"""From a dataset's name to its file, and from a file to a `Dataset`.

==========================  =====================================================================
name                        file
==========================  =====================================================================
a path                      itself
`hopper-medium-v2`          `hopper-medium-v2.hdf5` or `hopper_medium-v2.hdf5` in the data folder,
                            D4RL's own name in `~/.d4rl/datasets`, else downloaded
`D4RL/door/human-v2`        the folder in Minari's local store (nothing is downloaded)
==========================  =====================================================================

The data folder is `data_dir`, else `$JAXRL_ROLLOUTS_DATA`, else `~/.jaxrl_rollouts/datasets`. The
variable may name several, as `$PATH` does: all are searched, the first is written to.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import h5py

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.foreign import check_file, expanded, reading
from jaxrl_rollouts.hdf5 import open_hdf5
from jaxrl_rollouts.numpy_files import read_npz

from .arrays import from_mapping
from .catalogue import BY_STEM, CATALOGUE
from .d4rl import load_d4rl
from .download import download as fetch
from .minari import is_minari, load_minari, minari_store, need_minari
from .neorl import from_neorl, is_neorl
from .ogbench import from_ogbench, is_ogbench
from .sizes import SIZES
from .transitions import Dataset

_SUFFIXES = (".hdf5", ".h5", ".npz")
_MINARI_ID = re.compile(r"([\w.-]+/)+[\w.-]+-v\d+")  # without a namespace: D4RL's names


def data_folders(data_dir: str | Path | None = None) -> list[Path]:
    """The folders datasets are looked for in, in this order."""
    if data_dir:
        return [expanded(data_dir)]
    named = os.environ.get("JAXRL_ROLLOUTS_DATA", "").split(os.pathsep)
    folders = [expanded(name) for name in named if name]
    return folders or [expanded("~/.jaxrl_rollouts/datasets")]


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder datasets are downloaded to and made in: the first of `data_folders`."""
    return data_folders(data_dir)[0]


def resolve(
    name_or_path: str | Path, data_dir: str | Path | None = None, *, download: bool = True
) -> Path:
    """The file (Minari: the folder) a name or path stands for; may download a D4RL file.

    Args:
        name_or_path: see the table in this module.
        data_dir: the data folder.
        download: False never opens a connection.

    Raises:
        DataError: no such file, an unknown name (with the closest ones), or a D4RL file that
            can be neither found nor downloaded; the message names the file and its folder.
    """
    text = str(name_or_path)
    folders = data_folders(data_dir)
    if text in CATALOGUE:
        return _resolve_d4rl(text, folders, download)
    path = expanded(name_or_path)
    stored = minari_store() / text
    try:
        if text and path.exists():
            return path
        if text and not path.is_absolute() and (stored / "data").is_dir():
            return stored
    except OSError:  # too long for a file name, or behind a closed folder
        pass
    if path.suffix in _SUFFIXES or isinstance(name_or_path, Path):
        raise DataError(path, "file", "nothing", "a dataset file")
    if _MINARI_ID.fullmatch(text):
        need_minari()
        hint = f"fetch it with: minari download {text}"
        raise DataError(text, "dataset", "nothing", "a Minari dataset on this machine", hint)
    raise _unknown(text, "the name of a dataset or a path")


def _resolve_d4rl(name: str, folders: list[Path], download: bool) -> Path:
    url = CATALOGUE[name].url
    original = PurePosixPath(url).name
    files = [f"{name}.hdf5"]
    # D4RL's own file names are ambiguous in a shared folder where they carry no version.
    if BY_STEM.get(PurePosixPath(url).stem) == name:
        files.append(original)
    places = [folder / file for folder in folders for file in files]
    cache = os.environ.get("D4RL_DATASET_DIR") or "~/.d4rl/datasets"
    places.append(expanded(cache) / original)
    for place in places:
        if place.is_file():
            return place
    if not download:
        hint = f"fetch {url} and put it at {places[0]}"
        raise DataError(name, "file", "nothing", "a downloaded file", hint)
    return fetch(url, places[0], name=name, size=SIZES.get(name))


def _unknown(name: str, expected: str) -> DataError:
    names = [*CATALOGUE]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else ""
    shown = name if len(name) <= 80 else name[:77] + "..."
    return DataError(shown or "dataset", "name", repr(shown), expected, hint)


def sniff(path: Path) -> str:
    """What a file or folder holds: `d4rl`, `minari` or `npz`."""
    if path.is_dir():
        if (path / "metadata.json").is_file() or (path / "data" / "metadata.json").is_file():
            return "minari"
        hint = "name the file in it"
        raise DataError(path, "file", "a folder", "a file, or a Minari dataset's folder", hint)
    expected = "an HDF5 file (D4RL, Minari) or npz file (NeoRL, OGBench)"
    check_file(path, expected)
    with reading(path, "a dataset file"), path.open("rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        return "npz"
    if start != b"\x89HDF" and not h5py.is_hdf5(path):
        raise DataError(path, "file", "neither HDF5 nor npz", expected)
    with open_hdf5(path) as file:
        return "minari" if "episode_0" in file and "observations" not in file else "d4rl"


def load(
    data: str | Path | Mapping[str, Any] | Any,
    *,
    data_dir: str | Path | None = None,
    download: bool = True,
    max_episode_steps: int | None = None,
    action_low: Any = None,
    action_high: Any = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    infos: bool = False,
    stream: Stream = "never",
    cut_mismatches: bool = False,
) -> Dataset:
    """Find and read a dataset; `attributes["format"]` says as what.

    Args:
        data: a path or name (see `resolve`); a mapping of arrays under D4RL's, NeoRL's, OGBench's
            or other common names (`keys`), such as `np.load` gives; or a `MinariDataset`.
        data_dir: see `resolve`.
        download: see `resolve`.
        max_episode_steps: time limit for data that do not mark it (D4RL v0, NeoRL); known for
            D4RL's names.
        action_low, action_high: bounds of the actions as they are in the data, a number or one for
            each entry. Actions are rescaled from there to [-1, 1], those outside are refused.
            Left out: the file's attributes of these names, or Minari's action space; without
            those nothing is rescaled.
        action_limit: largest magnitude of an action entry without bounds, None for no check.
        clip: clip actions to the bounds, or the limit, instead of refusing them.
        infos: also read `qpos` and `qvel` (D4RL layout only).
        stream: `always` leaves the rows on the disk, where agents without a world model read them
            while they train; `auto` does where they and their copies would not fit into memory.
            D4RL's layout and Minari's only.
        cut_mismatches: end episodes where the stored `next_observations` of a row are not the row
            that follows (D4RL's layout and plain arrays only).

    Raises:
        DataError: not found, or not what a dataset should be; see the loaders.
        ConfigError: an argument out of range or without meaning for the format.
        MissingExtraError: a Minari dataset without the package `minari`.
    """
    actions: dict[str, Any] = {
        "action_low": action_low,
        "action_high": action_high,
        "action_limit": action_limit,
        "clip": clip,
    }
    path = Path("(arrays)")
    if isinstance(data, Mapping):
        kind = "npz"
    elif is_minari(data):
        kind = "minari"
    elif not isinstance(data, str | Path):
        expected = "a name, a path, a mapping of arrays under D4RL's names, or a MinariDataset"
        hint = "arrays are taken by from_arrays(observations, actions, rewards, terminals)"
        raise DataError(path, "data", type(data).__name__, expected, hint)
    else:
        path = resolve(data, data_dir, download=download)
        kind = sniff(path)
    if infos and kind != "d4rl":
        raise ConfigError("infos", infos, f"False: {kind} files hold no qpos and qvel")
    if stream == "always" and kind not in ("d4rl", "minari"):
        raise ConfigError("stream", stream, f"auto or never: {kind} files are read whole")
    if cut_mismatches and kind == "minari":
        raise ConfigError("cut_mismatches", True, "False: Minari marks its ends")
    if kind == "minari":
        if max_episode_steps is not None:
            raise ConfigError("max_episode_steps", max_episode_steps, "None: Minari marks its ends")
        # Given the data file itself, step up to the folder that the package expects.
        folder = path if path.is_dir() else path.parent
        return load_minari(data if is_minari(data) else folder, **actions, stream=stream)
    if kind == "npz":
        arrays = data if isinstance(data, Mapping) else None
        actions |= {"cut_mismatches": True} if cut_mismatches else {}
        return load_npz(path, arrays, max_episode_steps=max_episode_steps, **actions)
    name = str(data) if str(data) in CATALOGUE else None
    options = {"max_episode_steps": max_episode_steps, "infos": infos, "stream": stream}
    options |= {"cut_mismatches": cut_mismatches}
    return load_d4rl(path, name=name, **options, **actions)


def load_npz(
    path: Path,
    arrays: Mapping[str, Any] | None = None,
    *,
    max_episode_steps: int | None = None,
    **actions: Any,
) -> Dataset:
    """An npz file, or arrays from memory, in the layout that their names show."""
    memory = arrays is not None
    arrays = dict(read_npz(path) if arrays is None else arrays)
    label = "arrays" if memory else path.stem
    marked = "NeoRL" if is_neorl(arrays) else "OGBench" if is_ogbench(arrays) else ""
    if marked and actions.pop("cut_mismatches", False):
        raise ConfigError("cut_mismatches", True, f"False: {marked} marks its ends")
    if is_neorl(arrays):
        steps = 1000 if max_episode_steps is None else max_episode_steps
        return from_neorl(arrays, path, max_episode_steps=steps, **actions)
    if is_ogbench(arrays):
        if max_episode_steps is not None:
            raise ConfigError(
                "max_episode_steps", max_episode_steps, "None: OGBench marks its ends"
            )
        return from_ogbench(arrays, path, name=label, **actions)
    return from_mapping(arrays, path, name=label, max_episode_steps=max_episode_steps, **actions)

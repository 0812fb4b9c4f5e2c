"""From a dataset's name to its file, and from a file to a `Dataset`.

==========================  =====================================================================
name                        file
==========================  =====================================================================
a path                      itself
`hopper-medium-v2`          `hopper-medium-v2.hdf5` or `hopper_medium-v2.hdf5` in the data folder,
                            D4RL's own name in `~/.d4rl/datasets`, else downloaded
`jr/halfcheetah-medium`     `halfcheetah_medium.hdf5` in the data folder
`D4RL/door/human-v2`        the folder in Minari's local store, if it is there
==========================  =====================================================================

The data folder is `data_dir`, else `$JAXRL_ROLLOUTS_DATA`, else `~/.jaxrl_rollouts/datasets`.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path, PurePosixPath

import h5py

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.hdf5 import open_hdf5

from .catalogue import BY_STEM, CATALOGUE, JR_DATASETS
from .d4rl import load_d4rl
from .download import download as fetch
from .minari import load_minari
from .neorl import load_neorl
from .transitions import Dataset

_SUFFIXES = (".hdf5", ".h5", ".npz")


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder datasets are looked for in and downloaded to."""
    folder = data_dir or os.environ.get("JAXRL_ROLLOUTS_DATA") or "~/.jaxrl_rollouts/datasets"
    return Path(folder).expanduser()


def resolve(
    name_or_path: str | Path, data_dir: str | Path | None = None, *, download: bool = True
) -> Path:
    """The file (Minari: the folder) a name or path stands for; may download a D4RL file.

    Args:
        name_or_path: see the table in this module.
        data_dir: the data folder.
        download: False never opens a connection.

    Raises:
        DataError: no such file, a name nobody knows (with the closest ones), or a D4RL file that
            is neither here nor to be had; the message says what to fetch and where to put it.
    """
    text = str(name_or_path)
    folder = data_folder(data_dir)
    if text in CATALOGUE:
        return _resolve_d4rl(text, folder, download)
    if text.startswith("jr/"):
        return _resolve_jr(text, folder)
    path = Path(name_or_path).expanduser()
    stored = _minari_store() / text
    try:
        if text and path.exists():
            return path
        if text and not path.is_absolute() and (stored / "data").is_dir():
            return stored
    except OSError:  # too long for a file name, or behind a closed folder
        pass
    if path.suffix in _SUFFIXES or isinstance(name_or_path, Path):
        raise DataError(path, "file", "nothing", "a dataset file")
    raise _unknown(text, "the name of a dataset or a path")


def _resolve_d4rl(name: str, folder: Path, download: bool) -> Path:
    url = CATALOGUE[name].url
    original = PurePosixPath(url).name
    places = [folder / f"{name}.hdf5"]
    # D4RL's own file names are ambiguous in a shared folder where they carry no version.
    if BY_STEM.get(PurePosixPath(url).stem) == name:
        places.append(folder / original)
    cache = os.environ.get("D4RL_DATASET_DIR") or "~/.d4rl/datasets"
    places.append(Path(cache).expanduser() / original)
    for place in places:
        if place.is_file():
            return place
    if not download:
        hint = f"fetch {url} and put it at {places[0]}"
        raise DataError(name, "file", "nothing", "a downloaded file", hint)
    return fetch(url, places[0], name=name)


def _resolve_jr(name: str, folder: Path) -> Path:
    file = f"{name.removeprefix('jr/').replace('-', '_')}.hdf5"
    if (folder / file).is_file():
        return folder / file
    if name in JR_DATASETS:
        hint = f"put it at {folder / file} or name its folder in $JAXRL_ROLLOUTS_DATA"
        raise DataError(name, "file", "nothing", file, hint)
    raise _unknown(name, f"the name of a dataset, or a file {folder / file}")


def _unknown(name: str, expected: str) -> DataError:
    names = [*CATALOGUE, *JR_DATASETS]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else ""
    shown = name if len(name) <= 80 else name[:77] + "..."
    return DataError(shown or "dataset", "name", repr(shown), expected, hint)


def _minari_store() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def sniff(path: Path) -> str:
    """What a file or folder holds: `d4rl`, `minari` or `neorl`.

    Raises:
        DataError: none of them.
    """
    if path.is_dir():
        if (path / "metadata.json").is_file() or (path / "data" / "metadata.json").is_file():
            return "minari"
        hint = "name the file in it"
        raise DataError(path, "file", "a folder", "a file, or a Minari dataset's folder", hint)
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except PermissionError:
        raise DataError(path, "file", "no permission to read", "a readable file") from None
    except OSError:
        raise DataError(path, "file", "nothing", "a dataset file") from None
    if start[:2] == b"PK":
        return "neorl"
    if not start or (start != b"\x89HDF" and not h5py.is_hdf5(path)):
        found = "neither HDF5 nor npz" if start else "0 bytes"
        raise DataError(path, "file", found, "an HDF5 file (D4RL, Minari) or npz file (NeoRL)")
    with open_hdf5(path) as file:
        return "minari" if "episode_0" in file and "observations" not in file else "d4rl"


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    download: bool = True,
    max_episode_steps: int | None = None,
    action_limit: float | None = 1.0,
    clip: bool = False,
    infos: bool = False,
) -> Dataset:
    """Find and read a dataset; `attributes["format"]` says as what.

    Args:
        name_or_path: see `resolve`.
        data_dir: see `resolve`.
        download: see `resolve`.
        max_episode_steps: time limit for files that do not mark it (D4RL v0, NeoRL); known for
            D4RL's names.
        action_limit: largest magnitude of an action entry, None for no check.
        clip: clip actions to the limit instead of refusing them.
        infos: also read `qpos` and `qvel` (D4RL layout only).

    Raises:
        DataError: not found, or not what a dataset should be; see the loaders.
        ConfigError: an argument out of range or without meaning for the format.
        MissingExtraError: a Minari dataset without the package `minari`.
    """
    path = resolve(name_or_path, data_dir, download=download)
    text = str(name_or_path)
    label = text if text in CATALOGUE or text.startswith("jr/") else None
    kind = sniff(path)
    if infos and kind != "d4rl":
        raise ConfigError("infos", infos, f"False: {kind} files hold no qpos and qvel")
    if kind == "minari":
        if max_episode_steps is not None:
            raise ConfigError("max_episode_steps", max_episode_steps, "None: Minari marks its ends")
        # Given the data file itself, step up to the folder the package wants.
        folder = path if path.is_dir() else path.parent
        return load_minari(folder, action_limit=action_limit, clip=clip)
    if kind == "neorl":
        steps = 1000 if max_episode_steps is None else max_episode_steps
        return load_neorl(path, max_episode_steps=steps, action_limit=action_limit, clip=clip)
    return load_d4rl(
        path,
        name=label,
        max_episode_steps=max_episode_steps,
        action_limit=action_limit,
        clip=clip,
        infos=infos,
    )

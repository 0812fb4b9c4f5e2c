"""Every malformed input ends in one line that names the file and the key."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers_data import PLAN, make, neorl_arrays, raw_arrays, write_raw

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.data import inspect_file, load, load_d4rl, load_neorl, write_d4rl

FLOATS = ("observations", "actions", "rewards", "next_observations")
FLAGS = ("terminals", "timeouts")
REQUIRED = ("observations", "actions", "rewards", "terminals")
ENDS = (4, 7, 12, 17, 19)


def put(values: np.ndarray, value: float) -> np.ndarray:
    """`values` with one entry of row 5 replaced."""
    changed = values.astype(np.float64)
    changed[5] = value
    return changed


def d4rl_cases() -> dict[str, tuple[dict, str, str]]:
    """Name: (arrays to put into a good file, None to leave one out; key; words in the message)."""
    good = raw_arrays()
    text = np.array([b"a"] * 19)
    cases: dict[str, tuple[dict, str, str]] = {}
    for key in REQUIRED:
        cases[f"missing {key}"] = ({key: None}, key, "an array")
    for key in FLOATS:
        cases[f"nan in {key}"] = ({key: put(good[key], np.nan)}, key, "first in row 5")
        cases[f"infinity in {key}"] = ({key: put(good[key], -np.inf)}, key, "first in row 5")
        cases[f"float32 overflow in {key}"] = ({key: put(good[key], 1e39)}, key, "row 5")
        cases[f"complex {key}"] = ({key: good[key] + 1j}, key, "dtype complex")
    for key in (*FLOATS, *FLAGS):
        cases[f"text in {key}"] = ({key: text}, key, "dtype")
        cases[f"one axis too many in {key}"] = ({key: good[key][None]}, key, "shape")
        cases[f"scalar {key}"] = ({key: np.float32(0)}, key, "shape ()")
        cases[f"{key} too short"] = ({key: good[key][:-1]}, key, "rows")
        cases[f"{key} is a group"] = ({key: None, f"{key}/inner": good[key]}, key, "a group")
    del cases["observations too short"]  # then all the others are too long: the next one
    cases["observations too long"] = (
        {"observations": np.repeat(good["observations"], 2, 0)},
        "actions",
        "expected 38 rows",
    )
    for key in FLAGS:
        cases[f"2 in {key}"] = ({key: put(good[key], 2)}, key, "2.0 in row 5")
        cases[f"nan in {key}"] = ({key: put(good[key], np.nan)}, key, "nan in row 5")
    cases["zero rows"] = ({k: v[:0] for k, v in good.items()}, "observations", "0 rows")
    cases["no action columns"] = ({"actions": good["actions"][:, :0]}, "actions", "column")
    cases["actions beyond 1"] = ({"actions": put(good["actions"], 1.5)}, "actions", "1.5 in row 5")
    narrow = good["next_observations"][:, :2]
    cases["narrow successors"] = ({"next_observations": narrow}, "next_observations", "2 columns")
    cut = {"timeouts": None, "terminals": np.zeros(19, bool)}
    cases["nothing cuts"] = (cut, "timeouts", "--max-episode-steps")
    blind = {"timeouts": None, "next_observations": None}
    cases["shift over unmarked limits"] = (blind, "timeouts", "--max-episode-steps")
    single = {"next_observations": None, "timeouts": np.ones(19, bool)}
    single["terminals"] = np.zeros(19, bool)
    cases["no successor anywhere"] = (single, "next_observations", "successor is known")
    return cases


CASES = d4rl_cases()


def one_line(error: DataError, path: Path, key: str) -> str:
    message = str(error)
    assert "\n" not in message and str(path) in message and f" {key}: " in message
    assert error.key == key and error.source == str(path)
    assert "found" in message and "expected" in message
    return message


@pytest.mark.parametrize("case", CASES)
def test_d4rl_file(tmp_path, case):
    change, key, words = CASES[case]
    arrays = {k: v for k, v in (raw_arrays() | change).items() if v is not None}
    path = write_raw(tmp_path / "bad.hdf5", arrays)
    with pytest.raises(DataError) as caught:
        load_d4rl(path)
    assert words in one_line(caught.value, path, key)
    if "too short" not in case and "too long" not in case:
        found = inspect_file(path)  # reports instead of dying
        assert found.problems or case in ("actions beyond 1",)


@pytest.mark.parametrize("key", ["qpos", "qvel"])
def test_infos_missing_or_short(tmp_path, key):
    good = {"infos/qpos": np.zeros((19, 2)), "infos/qvel": np.zeros((19, 2))}
    name = f"infos/{key}"
    path = write_raw(tmp_path / "a.hdf5", raw_arrays() | good | {name: np.zeros((18, 2))})
    with pytest.raises(DataError) as caught:
        load_d4rl(path, infos=True)
    assert "18 rows" in one_line(caught.value, path, name)
    with h5py.File(path, "a") as file:
        del file[name]
    with pytest.raises(DataError) as caught:
        load_d4rl(path, infos=True)
    one_line(caught.value, path, name)


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", True])
def test_file_with_an_impossible_time_limit(tmp_path, value):
    path = write_raw(tmp_path / "a.hdf5", raw_arrays(), {"max_episode_steps": value})
    with pytest.raises(DataError) as caught:
        load_d4rl(path)
    one_line(caught.value, path, "attribute max_episode_steps")


def whole(tmp_path: Path) -> bytes:
    return write_raw(tmp_path / "whole.hdf5", raw_arrays()).read_bytes()


@pytest.mark.parametrize("loader", [load, load_d4rl, load_neorl])
@pytest.mark.parametrize("kind", ["folder", "missing", "empty", "text", "half", "head"])
def test_not_a_dataset(tmp_path, loader, kind):
    path = tmp_path / "file.hdf5"
    data = whole(tmp_path)
    contents = {"empty": b"", "text": b"<html>log in</html>", "half": data[: len(data) // 2]}
    contents["head"] = data[:100]
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(contents[kind])
    with pytest.raises(DataError) as caught:
        loader(path)
    one_line(caught.value, path, "file")
    if kind in contents:
        found = inspect_file(path)
        assert found.rows == 0 and found.problems and found.format == "unreadable"


@pytest.mark.parametrize("key", ["observations", "next_observations"])
def test_damaged_in_the_middle(tmp_path, key):
    path = tmp_path / "damaged.hdf5"
    write_d4rl(path, make([(200, "truncated")] * 10, size=20))
    with h5py.File(path) as file:
        chunk = file[key].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        load_d4rl(path)
    one_line(caught.value, path, key)
    assert inspect_file(path).problems


def test_permission_refused_by_the_system(tmp_path, monkeypatch):
    path = write_raw(tmp_path / "locked.hdf5", raw_arrays())

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("jaxrl_rollouts.hdf5.h5py.File", refuse)
    with pytest.raises(DataError) as caught:
        load_d4rl(path)
    assert "permission" in one_line(caught.value, path, "file")


def neorl_cases() -> dict[str, tuple[dict, str, str]]:
    good = neorl_arrays(make(PLAN), ENDS)
    cases: dict[str, tuple[dict, str, str]] = {}
    for key in good:
        cases[f"missing {key}"] = ({key: None}, key, "read as NeoRL's layout")
        cases[f"text in {key}"] = ({key: np.array(["a"] * 19)}, key, "dtype")
        cases[f"objects in {key}"] = ({key: np.array([{}] * 19, object)}, key, "plain arrays")
    for key in ("obs", "action", "reward", "next_obs"):
        cases[f"nan in {key}"] = ({key: put(good[key], np.nan)}, key, "first in row 5")
        cases[f"{key} cube"] = ({key: good[key][..., None]}, key, "shape")
    cases["done 3"] = ({"done": put(good["done"], 3)}, "done", "row 5")
    cases["done inside an episode"] = ({"done": put(good["done"], 1)}, "done", "row 5")
    cases["short reward"] = ({"reward": good["reward"][:-2]}, "reward", "17 rows")
    cases["wide action"] = ({"action": good["action"] * 9}, "actions"[:-1], "magnitude")
    cases["index empty"] = ({"index": np.zeros(0, np.int64)}, "index", "0 entries")
    cases["index falls"] = ({"index": np.array([0, 7, 4])}, "index", "increasing")
    cases["index repeats"] = ({"index": np.array([0, 0, 4])}, "index", "increasing")
    cases["index beyond"] = ({"index": np.array([0, 4, 20])}, "index", "ends up to 19")
    cases["index negative"] = ({"index": np.array([-1, 4, 19])}, "index", "from 0")
    cases["index neither"] = ({"index": np.array([4, 7, 12])}, "index", "from 4 to 12")
    cases["no rows"] = ({k: v[:0] for k, v in good.items()}, "obs", "0 rows")
    return cases


NEORL = neorl_cases()


@pytest.mark.parametrize("case", NEORL)
def test_neorl_file(tmp_path, case):
    change, key, words = NEORL[case]
    good = neorl_arrays(make(PLAN), ENDS)
    path = tmp_path / "bad.npz"
    np.savez(path, **{k: v for k, v in (good | change).items() if v is not None})
    # Without an index the columns have NeoRL's names, and no more.
    for loader in (load_neorl, load)[: 1 + ((good | change).get("index") is not None)]:
        with pytest.raises(DataError) as caught:
            loader(path)
        assert words in one_line(caught.value, path, key)
    assert inspect_file(path).problems or case in ("wide action", "missing index")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"attributes": {"when": object()}}, "attribute when"),
        ({"infos": {"qpos": np.zeros((3, 2))}}, "infos/qpos"),
        ({"infos": {"qpos": np.float32(1)}}, "infos/qpos"),
        ({"infos": {"notes": np.array([{}] * 19, object)}}, "infos/notes"),
    ],
)
@pytest.mark.parametrize("before", [None, b"an older file"])
def test_failed_writing_leaves_what_was_there(tmp_path, change, key, before):
    path = tmp_path / "out.hdf5"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(DataError) as caught:
        write_d4rl(path, make(PLAN), **change)
    one_line(caught.value, path, key)
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else ["out.hdf5"])
    assert before is None or path.read_bytes() == before


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    real = h5py.File.create_dataset

    def fill_up(self, name, **kwargs):
        if name == "rewards":
            raise OSError(28, "No space left on device")
        return real(self, name, **kwargs)

    monkeypatch.setattr(h5py.File, "create_dataset", fill_up)
    path = tmp_path / "out.hdf5"
    with pytest.raises(DataError) as caught:
        write_d4rl(path, make(PLAN))
    assert "No space left" in one_line(caught.value, path, "rewards")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("place", "key"), [("no/such/folder.hdf5", "folder"), ("taken", "file")])
def test_nowhere_to_write(tmp_path, place, key):
    (tmp_path / "taken").mkdir()
    with pytest.raises(DataError) as caught:
        write_d4rl(tmp_path / place, make(PLAN))
    one_line(caught.value, tmp_path / place, key)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_bad_rows_are_not_written(tmp_path):
    rows = make(PLAN)
    rows.rewards[3] = np.nan
    with pytest.raises(DataError, match="rewards"):
        write_d4rl(tmp_path / "out.hdf5", rows)
    assert not list(tmp_path.iterdir())

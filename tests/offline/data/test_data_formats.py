from __future__ import annotations

import builtins
import json
import os

import h5py
import numpy as np
import pytest
from helpers_data import PLAN, TERMINATED, TRUNCATED, UNFINISHED, make, neorl_arrays, save_minari
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts import feeds, foreign
from jaxrl_rollouts.errors import ConfigError, DataError, MissingExtraError
from jaxrl_rollouts.offline.data import episodes, load, load_minari, load_neorl

ENDINGS = st.sampled_from([TERMINATED, TRUNCATED])


def npz(path, rows, ends):
    np.savez(path, **neorl_arrays(rows, ends))
    return path


@given(st.lists(st.tuples(st.integers(1, 5), ENDINGS), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=50)
def test_neorl_splits_done_by_length(tmp_path_factory, plan, as_starts):
    # A time limit of 6: an early end is a termination, the sixth step is not.
    plan = [(6, ending) if ending == TRUNCATED else (length, ending) for length, ending in plan]
    rows = make(plan)
    ends = np.cumsum([length for length, _ in plan])
    index = np.concatenate([[0], ends[:-1]]) if as_starts else ends
    path = npz(tmp_path_factory.mktemp("neorl") / "Hopper-v3-low-100-train.npz", rows, index)
    dataset = load_neorl(path, max_episode_steps=6)
    for before, after in zip(rows, dataset.transitions, strict=True):
        assert before.dtype == after.dtype and before.tobytes() == after.tobytes()
    assert dataset.environment == "Hopper-v3"
    assert dataset.name == "neorl/Hopper-v3-low-100-train"


@pytest.mark.parametrize(("task", "columns"), [("Hopper", 12), ("Walker2d", 18)])
def test_neorls_tasks_have_the_position_first(tmp_path, task, columns):
    rows = make([(6, TRUNCATED)], size=columns)
    path = npz(tmp_path / f"{task}-v3-low-100-train.npz", rows, [6])
    found = load_neorl(path).environment
    assert found == f"{task}-v3?exclude_current_positions_from_observation=false"
    narrow = npz(path, make([(6, TRUNCATED)], size=columns - 1), [6])
    assert load_neorl(narrow).environment == f"{task}-v3"


def test_neorl_cuts_without_done_are_truncations(tmp_path):
    rows = make([(3, UNFINISHED), (2, TERMINATED), (4, UNFINISHED)])
    back = load(npz(tmp_path / "a.npz", rows, [3, 5, 9]))
    parts = episodes(back.transitions)
    assert parts.truncated.tolist() == [True, False, True]
    assert parts.terminated.tolist() == [False, True, False]
    assert back.attributes["format"] == "neorl" and back.environment is None


def test_neorl_limit_must_cover_the_episodes(tmp_path):
    path = npz(tmp_path / "a.npz", make(PLAN), [4, 7, 12, 17, 19])
    with pytest.raises(DataError, match="episode of 5 steps"):
        load_neorl(path, max_episode_steps=4)
    with pytest.raises(ConfigError, match="max_episode_steps"):
        load_neorl(path, max_episode_steps=0)
    with pytest.raises(ConfigError, match="infos"):
        load(path, infos=True)


@pytest.mark.filterwarnings("ignore")
def test_minari_by_name_folder_and_file(store):
    rows = save_minari("toy/plain-v0", PLAN)
    folder = store / "toy" / "plain-v0"
    for place in ("toy/plain-v0", folder, folder / "data", folder / "data" / "main_data.hdf5"):
        dataset = load(place)
        back = dataset.transitions
        for key in ("observations", "actions", "rewards", "next_observations", "terminations"):
            assert getattr(back, key).tobytes() == getattr(rows, key).tobytes()
        assert back.truncations.tolist() == [*rows.truncations[:-1].tolist(), True]
        assert dataset.attributes["episodes_cut"] == 1
        assert dataset.name == "toy/plain-v0" and dataset.attributes["format"] == "minari"
        assert len(dataset.sha256) == 64
    assert len(episodes(back).starts) == len(PLAN)
    with pytest.raises(ConfigError, match="max_episode_steps"):
        load("toy/plain-v0", max_episode_steps=3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parts", [False, True])
def test_minari_rows_on_disk_are_the_rows_in_memory(store, monkeypatch, parts):
    import minari

    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(store / "rows"))
    save_minari("toy/wide-v0", PLAN, scale=2.0, parts=parts)
    some = minari.load_dataset("toy/wide-v0").filter_episodes(lambda episode: episode.id != 1)
    for source in ("toy/wide-v0", some):
        memory, disk = load(source), load(source, stream="always")
        assert memory.rows_file is None and disk.rows_file is not None
        for one, other in zip(memory.transitions, disk.transitions, strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)
        assert memory.attributes == disk.attributes and memory.sha256 == disk.sha256
        np.testing.assert_array_equal(memory.action_high, disk.action_high)
        made = disk.rows_file.stat().st_mtime_ns
        again = load(source, stream="always")
        assert again.rows_file == disk.rows_file and made == again.rows_file.stat().st_mtime_ns
        assert again.attributes == memory.attributes
    assert len(list((store / "rows").glob("*.npy"))) == 2


def test_minari_stays_on_disk_where_memory_is_short(store, monkeypatch):
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(store / "rows"))
    rows = save_minari("toy/plain-v0", PLAN)
    # Observation and successor of 3 each (an episode has one more), 2 actions and a reward.
    size = 4 * (2 * 3 * (len(rows.rewards) + len(PLAN)) + 3 * len(rows.rewards))
    for room, on_disk in ((4 * size, False), (4 * size - 1, True)):
        monkeypatch.setattr(feeds, "free_memory", lambda room=room: room)
        assert (load("toy/plain-v0", stream="auto").rows_file is not None) == on_disk
    monkeypatch.setattr(foreign, "free_memory", lambda: size // 2)
    assert load("toy/plain-v0", stream="auto").rows_file is not None
    with pytest.raises(DataError, match="memory that are free"):
        load("toy/plain-v0")


def test_minari_bad_rows_on_disk_are_refused(store, monkeypatch):
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(store / "rows"))
    save_minari("toy/bad-v0", PLAN)
    with h5py.File(store / "toy" / "bad-v0" / "data" / "main_data.hdf5", "a") as file:
        file["episode_1/rewards"][0] = np.nan
    first = PLAN[0][0]
    with pytest.raises(DataError, match=rf"rewards: found NaN.*row 0 \(counted from row {first}"):
        load("toy/bad-v0", stream="always")
    assert not list((store / "rows").glob("*"))


@pytest.mark.filterwarnings("ignore")
def test_minari_action_bounds(store):
    save_minari("toy/wide-v0", PLAN, scale=2.0)
    dataset = load_minari("toy/wide-v0")
    np.testing.assert_allclose(dataset.transitions.actions, make(PLAN).actions, atol=1e-6)
    assert dataset.action_low.tolist() == [-2, -2] and dataset.action_high.tolist() == [2, 2]
    with pytest.raises(DataError, match="declared"):
        load_minari("toy/wide-v0", action_low=-1, action_high=1)
    clipped = load_minari("toy/wide-v0", action_low=-1, action_high=1, clip=True)
    assert np.abs(clipped.transitions.actions).max() == 1


@pytest.mark.filterwarnings("ignore")
def test_minari_with_discrete_actions_is_refused(store):
    import json

    save_minari("toy/bad-v0", PLAN)
    file = store / "toy" / "bad-v0" / "data" / "metadata.json"
    facts = json.loads(file.read_text())
    facts["action_space"] = '{"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}'
    file.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="discrete actions are not supported"):
        load("toy/bad-v0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("key", "values", "words"),
    [
        ("observations", np.zeros((4, 3), np.float32), "one more than rewards"),
        ("actions", np.zeros((3, 2), np.float32), "3 rows"),
        ("actions", np.zeros(4, np.int64), "shape"),
        ("rewards", np.array([b"x"] * 4), "dtype"),
        ("terminations", np.full(4, 7), "7 in row 0"),
        ("truncations", np.zeros(9, bool), "9 rows"),
    ],
)
def test_minari_malformed_episode(store, key, values, words):
    import h5py

    save_minari("toy/bad-v0", PLAN)
    with h5py.File(store / "toy" / "bad-v0" / "data" / "main_data.hdf5", "a") as file:
        del file[f"episode_0/{key}"]
        file[f"episode_0/{key}"] = values
    with pytest.raises(DataError) as caught:
        load_minari("toy/bad-v0")
    assert caught.value.key == f"episode_0/{key}" and words in str(caught.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damage", ["no episode", "no key", "metadata", "data"])
def test_minari_damaged(store, damage):
    import h5py

    save_minari("toy/bad-v0", PLAN)
    data = store / "toy" / "bad-v0" / "data"
    if damage in ("no episode", "no key"):
        with h5py.File(data / "main_data.hdf5", "a") as file:
            del file["episode_1" if damage == "no episode" else "episode_1/actions"]
    else:
        file = data / ("metadata.json" if damage == "metadata" else "main_data.hdf5")
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DataError) as caught:
        load("toy/bad-v0")
    assert "bad-v0" in str(caught.value) and "\n" not in str(caught.value)


def test_minari_not_here(store):
    for loader in (load_minari, load):
        with pytest.raises(DataError, match="minari download toy/none-v0"):
            loader("toy/none-v0")


def test_minari_not_installed(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "minari":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    for loader in (load_minari, load):
        with pytest.raises(MissingExtraError, match=r"jaxrl-rollouts\[minari\]"):
            loader("toy/none-v0")


def change(file, **changes):
    facts = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))


@pytest.mark.filterwarnings("ignore")
def test_minari_folders_run_and_follow_nothing(store):
    save_minari("toy/plain-v0", PLAN)
    data = store / "toy" / "plain-v0" / "data"
    file, before = data / "metadata.json", (data / "metadata.json").read_text()
    ran = store / "ran"
    spec = {"id": "x", "entry_point": "builtins:open", "additional_wrappers": []}
    spec |= {"kwargs": {"file": str(ran), "mode": "w"}}
    cases = [
        ({"action_space": None, "env_spec": json.dumps(spec)}, "action_space: found nothing"),
        ({"observation_space": 3, "env_spec": json.dumps(spec)}, "observation_space: found int"),
        ({"data_format": "arrow"}, "data_format: found arrow, expected hdf5"),
        ({"total_episodes": 10**12}, "total_episodes: found 1000000000000, expected a number up"),
        ({"total_episodes": -1}, "total_episodes: found -1"),
    ]
    for changes, says in cases:
        change(file, **changes)
        for place in ("toy/plain-v0", data):
            with pytest.raises(DataError, match=says):
                load_minari(place)
        file.write_text(before)
    assert not ran.exists() and len(load_minari("toy/plain-v0"))
    with h5py.File(data / "main_data.hdf5", "a") as stored:
        del stored["episode_0/rewards"]
        stored["episode_0/rewards"] = h5py.ExternalLink("other.h5", "x")
    with pytest.raises(DataError, match="episode_0/rewards: found a link to another file"):
        load_minari("toy/plain-v0")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DataError, match="metadata.json: file: found a pipe"):
        load_minari("toy/plain-v0")

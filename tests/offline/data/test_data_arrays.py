"""Datasets from memory: the same checks as for files, and OGBench's and other npz."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from helpers_data import PLAN, TRUNCATED, make, neorl_arrays, raw_arrays, write_raw

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import from_arrays, inspect, load


def test_arrays_become_the_rows_that_they_are():
    rows = make(PLAN)
    dataset = from_arrays(**raw_arrays(rows), environment="pendulum", name="mine")
    for before, after in zip(rows, dataset.transitions, strict=True):
        np.testing.assert_array_equal(before, after)
    assert (dataset.name, dataset.environment, len(dataset)) == ("mine", "pendulum", 19)
    other = from_arrays(**raw_arrays(make(PLAN, seed=1)))
    assert dataset.sha256 == from_arrays(**raw_arrays(rows)).sha256 != other.sha256
    assert inspect(dataset).format == "arrays"


def test_actions_are_rescaled_from_their_bounds():
    arrays = raw_arrays()
    arrays["actions"] = arrays["actions"] * 3 + 1
    dataset = from_arrays(**arrays, action_low=-2, action_high=[4, 4])
    np.testing.assert_allclose(dataset.transitions.actions, make(PLAN).actions, atol=1e-6)
    assert dataset.action_low.tolist() == [-2, -2] and dataset.action_high.tolist() == [4, 4]
    with pytest.raises(DataError, match=r"arrays: actions: found .* declared \[-1, 1\]"):
        from_arrays(**arrays)
    assert np.abs(from_arrays(**arrays, clip=True).transitions.actions).max() == 1


def test_successors_and_ends_are_worked_out_as_in_files():
    arrays = raw_arrays(make([(4, TRUNCATED), (4, TRUNCATED)]))
    del arrays["next_observations"], arrays["timeouts"]
    with pytest.raises(DataError, match="--max-episode-steps"):
        from_arrays(**arrays)
    dataset = from_arrays(**arrays, max_episode_steps=4)
    assert len(dataset) == 6 and dataset.transitions.truncations.tolist() == 2 * [
        False,
        False,
        True,
    ]
    with pytest.raises(ConfigError, match="max_episode_steps: found 0"):
        from_arrays(**arrays, max_episode_steps=0)


@pytest.mark.parametrize(
    ("key", "values", "says"),
    [
        ("actions", np.arange(19) % 3, "discrete actions are not supported, only vectors"),
        ("observations", np.arange(19), "discrete observations are not supported"),
        ("actions", np.zeros(19), r"one number a row is \[N, 1\]"),
        ("observations", np.zeros((19, 8, 8, 3), np.uint8), "images are not supported"),
        ("observations", np.zeros((2, 10, 3)), r"one after the other, reshape\(-1, 3\)"),
        ("observations", {"at": np.zeros((19, 2))}, "several parts are not supported"),
        ("rewards", np.full(19, np.nan), "NaN or infinity in 19 of 19 rows"),
        ("rewards", np.zeros(18), "18 rows"),
    ],
)
def test_what_is_not_supported_is_said_in_one_line(key, values, says):
    with pytest.raises(DataError, match=says) as caught:
        from_arrays(**raw_arrays() | {key: values}, name="mine")
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"mine: {key}: ")


def test_a_dict_and_an_open_npz_are_loaded(tmp_path):
    arrays = raw_arrays()
    np.savez(tmp_path / "own.npz", **arrays)
    from_file, from_dict = load(tmp_path / "own.npz"), load(arrays)
    with np.load(tmp_path / "own.npz") as opened:
        from_open = load(opened)
    for dataset in (from_file, from_dict, from_open):
        np.testing.assert_array_equal(dataset.transitions.actions, make(PLAN).actions)
        assert dataset.action_low is None, "nothing was declared"
    assert from_file.name == "own" and from_dict.name == "arrays"
    assert load(neorl_arrays(make(PLAN), (4, 7, 12, 17, 19))).attributes["format"] == "neorl"
    with pytest.raises(DataError, match="only actions, observations, rewards, expected an array"):
        load({key: arrays[key] for key in ("observations", "actions", "rewards")})


GYMNASIUM = {"terminals": "terminations", "timeouts": "truncations"}
RLLIB = {"observations": "obs", "next_observations": "new_obs"} | GYMNASIUM


@pytest.mark.parametrize("names", [GYMNASIUM, RLLIB, {"observations": "obs", "actions": "action"}])
@pytest.mark.parametrize("kind", ["dict", "npz", "hdf5", "hdf5 on the disk"])
def test_other_names_are_mapped_and_reported(tmp_path, monkeypatch, names, kind):
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "rows"))
    arrays = {names.get(key, key): values for key, values in raw_arrays().items()}
    source, options = arrays, {}
    if kind == "npz":
        source = tmp_path / "a.npz"
        np.savez(source, **arrays)
    elif kind != "dict":
        source = write_raw(tmp_path / "a.hdf5", arrays)
        options = {"stream": "always"} if "disk" in kind else {}
    dataset = load(source, **options)
    for before, after in zip(make(PLAN), dataset.transitions, strict=True):
        np.testing.assert_array_equal(before, after)
    said = dataset.attributes["read_as"]
    assert all(f"{theirs} as {ours}" in said for ours, theirs in names.items())
    assert inspect(dataset).read_as == said
    wrong = next(iter(names.values()))
    if kind == "dict":
        with pytest.raises(DataError, match=f": {wrong}: found shape"):
            load(arrays | {wrong: np.zeros((19, 2, 2, 2))})


@pytest.mark.parametrize("name", ["episode_terminals", "dones"])
@pytest.mark.parametrize("kind", ["dict", "hdf5"])
def test_ends_of_both_kinds_are_told_apart(tmp_path, name, kind):
    arrays = raw_arrays()
    arrays[name] = arrays["terminals"] | arrays.pop("timeouts")
    source = arrays if kind == "dict" else write_raw(tmp_path / "a.hdf5", arrays)
    dataset = load(source)
    for before, after in zip(make(PLAN), dataset.transitions, strict=True):
        np.testing.assert_array_equal(before, after)
    assert f"{name} as the ends of episodes" in dataset.attributes["read_as"]
    del arrays["terminals"]
    alone = arrays if kind == "dict" else write_raw(tmp_path / "b.hdf5", arrays)
    if name != "dones":
        with pytest.raises(DataError, match="no terminals"):
            load(alone)
        return
    assert "time limits" in load(alone).attributes["read_as"]
    found = load(alone, max_episode_steps=5).transitions
    both = np.flatnonzero(arrays[name])
    assert np.flatnonzero(found.truncations).tolist() == [11, 16]  # of five steps
    assert sorted(np.flatnonzero(found.truncations | found.terminations)) == both.tolist()


@pytest.mark.parametrize(
    "names",
    [
        {"observations": "obs", "next_observations": "obs2", "actions": "act", "rewards": "rew"},
        {key: key.capitalize() for key in ("observations", "actions", "rewards", "terminals")},
    ],
)
def test_names_of_other_programs_and_capitals_are_mapped(names):
    arrays = {names.get(key, key): values for key, values in raw_arrays().items()}
    dataset = load(arrays)
    for before, after in zip(make(PLAN), dataset.transitions, strict=True):
        np.testing.assert_array_equal(before, after)
    assert all(f"{new} as {old}" in dataset.attributes["read_as"] for old, new in names.items())


@pytest.mark.parametrize("ends", ["dones_float", "terminals", "timeouts"])
@pytest.mark.parametrize("kind", ["dict", "hdf5"])
def test_masks_are_zero_where_no_value_follows(tmp_path, kind, ends):
    """jaxrl's masks with its dones_float, OGBench's with terminals that mark every end."""
    arrays = raw_arrays()
    over, cut = arrays.pop("terminals"), arrays.pop("timeouts")
    arrays |= {"masks": 1.0 - over, ends: cut if ends == "timeouts" else over | cut}
    dataset = load(arrays if kind == "dict" else write_raw(tmp_path / "m.hdf5", arrays))
    for before, after in zip(make(PLAN), dataset.transitions, strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_is_there_is_listed_under_its_own_names(tmp_path):
    arrays = raw_arrays()
    given = {"obs": arrays["observations"], "act": arrays["actions"], "data": {"a": np.zeros(3)}}
    with pytest.raises(DataError, match=r"found only act, data \(a dict\), obs, expected an array"):
        load(given)
    with h5py.File(tmp_path / "g.hdf5", "w") as file:
        file["data/observations"] = arrays["observations"]
    with pytest.raises(DataError, match=r"observations: found only data \(a group\), exp"):
        load(tmp_path / "g.hdf5")


def test_whole_numbers_are_no_continuous_actions(tmp_path):
    arrays = raw_arrays()
    arrays["actions"] = (arrays["actions"] > 0).astype(np.int64)
    for source in (arrays, write_raw(tmp_path / "i.hdf5", arrays)):
        with pytest.raises(DataError, match="dtype int64.*discrete actions are not supp.*astype"):
            load(source)
    assert len(load(arrays | {"actions": arrays["actions"].astype(float)})) == 19


def test_two_names_for_one_column_are_refused():
    arrays = raw_arrays()
    arrays["obs"] = arrays["states"] = arrays.pop("observations")
    with pytest.raises(DataError, match="observations: found obs and states, expected one of them"):
        load(arrays)


def test_a_column_too_wide_for_its_steps_is_reported():
    """What float32 loses of an offset is mended (`test_offset`), of a range it is not."""
    arrays = raw_arrays(make([(200, TRUNCATED)]))
    place = np.where(np.arange(200) < 100, 5.2e6, -5.2e6) + 0.05 * np.arange(200)
    arrays["observations"] = np.column_stack([arrays["observations"], place])
    del arrays["next_observations"]
    with pytest.warns(UserWarning, match=r"observations\[3\]: float32 rounds it by") as caught:
        from_arrays(**arrays)
    assert len(caught) == 1 and "its range is too wide" in str(caught[0].message)
    arrays["observations"][:, 3] = np.abs(place)
    arrays["rewards"] = 1e8 + 0.01 * np.arange(200)
    with pytest.warns(UserWarning, match=r"rewards\[0\]: float32 .*subtract an offset") as caught:
        from_arrays(**arrays)
    assert len(caught) == 1, "the column is less its offset"


def ogbench(**more):
    """Two trajectories of four rows, the last of each without a successor."""
    rows = make([(4, TRUNCATED), (4, TRUNCATED)])
    ends = np.asarray(rows.truncations, np.float32)
    return {"observations": rows.observations, "actions": rows.actions, "terminals": ends} | more


def test_ogbench_marks_time_limits_and_has_no_rewards(tmp_path):
    np.savez(tmp_path / "cube-single-play-v0.npz", **ogbench(qpos=np.zeros((8, 3))))
    dataset = load(tmp_path / "cube-single-play-v0.npz")
    rows = dataset.transitions
    assert dataset.name == "cube-single-play-v0" and dataset.attributes["format"] == "ogbench"
    assert len(dataset) == 6 and not rows.terminations.any() and not rows.rewards.any()
    assert rows.truncations.tolist() == 2 * [False, False, True]
    np.testing.assert_array_equal(rows.next_observations[:, 1], [1, 2, 3, 1, 2, 3])
    assert dataset.attributes["rewards"] == "none"


def test_ogbench_single_task_arrays_say_where_the_task_is_done():
    rows, masks = make([(4, TRUNCATED), (4, TRUNCATED)]), np.float32([1, 1, 1, 0, 1, 1, 1, 1])
    given = {"rewards": masks - 1, "next_observations": rows.next_observations, "masks": masks}
    dataset = load(ogbench(**given))
    assert dataset.transitions.terminations.tolist() == [False] * 3 + [True] + [False] * 4
    assert np.flatnonzero(dataset.transitions.truncations).tolist() == [7]
    assert "rewards" not in dataset.attributes and dataset.transitions.rewards.sum() == -1


@pytest.mark.parametrize(
    ("left_out", "other", "hint"),
    [("rewards", "reawrds", "is it reawrds"), ("terminals", "is_terminal", "needs is_last")],
)
def test_a_name_that_is_close_is_named(left_out, other, hint):
    arrays = raw_arrays()
    arrays[other] = arrays.pop(left_out)
    with pytest.raises(DataError, match=f"expected an array {left_out}.*{hint}"):
        load(arrays)

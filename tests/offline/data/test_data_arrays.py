"""Datasets from memory: the same checks as for files, and OGBench's and other npz."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_data import PLAN, TRUNCATED, make, neorl_arrays, raw_arrays

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
    with pytest.raises(DataError, match="give max_episode_steps"):
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
        ("actions", np.zeros(19), r"one number a row is \[N, 1\]"),
        ("observations", np.zeros((19, 8, 8, 3), np.uint8), "images are not supported"),
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

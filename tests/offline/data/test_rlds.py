"""RLDS's steps as rows: T + 1 steps are T rows, and what marks their ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.data import Dataset, inspect, load

# Two episodes of 3 and 2 rows: the first terminates, the second is cut.
OBSERVED = np.arange(7.0)[:, None] + np.array([0, 10], np.float32)
STEPS = {
    "observation": OBSERVED,
    "action": np.array([[0.1], [0.2], [0.3], [np.nan], [0.5], [0.6], [np.nan]], np.float32),
    "reward": np.array([1, 2, 3, np.nan, 5, 6, np.nan], np.float32),  # of last steps: nothing
    "is_first": np.array([1, 0, 0, 0, 1, 0, 0], bool),
    "is_last": np.array([0, 0, 0, 1, 0, 0, 1], bool),
    "is_terminal": np.array([0, 0, 0, 1, 0, 0, 0], bool),
    "discount": np.array([1, 1, 0, 0, 1, 1, 1], np.float32),
}


def without(*keys: str, **changes: Any) -> dict[str, Any]:
    return {key: values for key, values in (STEPS | changes).items() if key not in keys}


def check(dataset: Dataset) -> None:
    rows = dataset.transitions
    np.testing.assert_array_equal(rows.observations, OBSERVED[[0, 1, 2, 4, 5]])
    np.testing.assert_array_equal(rows.next_observations, OBSERVED[[1, 2, 3, 5, 6]])
    np.testing.assert_array_equal(rows.rewards, [1, 2, 3, 5, 6])
    np.testing.assert_array_equal(rows.actions, STEPS["action"][[0, 1, 2, 4, 5]])
    assert rows.terminations.tolist() == [False, False, True, False, False]
    assert rows.truncations.tolist() == [False, False, False, False, True]
    assert dataset.attributes["successors"] == "stored"


@pytest.mark.parametrize(
    "left_out",
    [
        (),
        ("discount", "is_first"),
        ("discount", "is_last"),
        ("is_terminal",),
        ("is_terminal", "is_first"),
        ("is_terminal", "is_last"),
    ],
)
def test_a_last_step_is_an_observation_and_no_row(left_out: tuple[str, ...]) -> None:
    dataset = load(without(*left_out))
    check(dataset)
    assert "which is no row (RLDS)" in inspect(dataset).read_as
    ours = {"Observations": OBSERVED, "actions": STEPS["action"]}
    check(load(without("observation", "action", *left_out) | ours))


def test_an_hdf5_file_of_steps(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "steps.hdf5", "w") as file:
        for key, values in STEPS.items():
            file[key] = values
        file["infos/qpos"] = file["infos/qvel"] = OBSERVED
    dataset = load(tmp_path / "steps.hdf5", infos=True)
    check(dataset)
    np.testing.assert_array_equal(dataset.infos["qpos"], OBSERVED[[0, 1, 2, 4, 5]])


def test_an_episode_that_was_not_finished_ends_at_its_last_observation() -> None:
    check(load(without("is_first", is_last=np.array([0, 0, 0, 1, 0, 0, 0], bool))))


WRONG = {
    "two readings": (without(next_observations=OBSERVED), "found next_observations beside is_last"),
    "no terminals": (without("is_terminal", "discount"), "expected is_terminal, or a discount"),
    "inside": (without(is_terminal=np.arange(7) == 1), "found a terminal step 1 that is not the"),
    "discount inside": (
        without("is_terminal", discount=np.array([1, 0, 0, 0, 1, 1, 1], np.float32)),
        "discount: found 0 in step 1, inside an episode",
    ),
    "first and last": (without(is_last=np.arange(7) % 3 == 2), "is_first 0 in step 3"),
    "lengths": (without(is_terminal=np.zeros(6, bool)), "is_terminal: found 6 rows, expected 7"),
    "all last": (without("is_first", is_last=np.ones(7, bool)), "expected an episode of two steps"),
    "a dict": (without(observation={"a": OBSERVED}), "observation: found Python objects"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_steps_that_contradict_themselves_are_refused(kind: str) -> None:
    arrays, message = WRONG[kind]
    with pytest.raises(DataError, match=message):
        load(arrays)


def test_a_discount_of_0_terminates_a_row() -> None:
    """Acme's transitions: discounts other than 0 are what a value is multiplied by."""
    rows = {"observations": OBSERVED, "next_observations": OBSERVED + 1}
    rows |= {"actions": np.zeros((7, 1)), "rewards": np.ones(7), "dones": np.arange(7) % 3 == 0}
    discounts = np.array([0.99, 0.99, 0.99, 0, 0.99, 0.99, 0.5], np.float32)
    found = load(rows | {"discounts": discounts}).transitions
    assert np.flatnonzero(found.terminations).tolist() == [3]
    assert np.flatnonzero(found.truncations).tolist() == [0, 6]
    with pytest.raises(DataError, match=r"discounts: found 1\.5 in row 0, expected 0 to 1"):
        load(rows | {"discounts": discounts * 0 + 1.5})

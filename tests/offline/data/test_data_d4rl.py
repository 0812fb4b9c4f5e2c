from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
from helpers_data import (
    PLAN,
    TERMINATED,
    TRUNCATED,
    UNFINISHED,
    make,
    raw_arrays,
    write_raw,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.data import (
    episode_returns,
    episodes,
    from_arrays,
    load_d4rl,
    write_d4rl,
)
from jaxrl_rollouts.offline.data.successors import cut_by_length, mismatches, shift
from jaxrl_rollouts.offline.data.transitions import file_sha256
from jaxrl_rollouts.offline.tapes.tape import read_tape

ENDINGS = st.sampled_from([TERMINATED, TRUNCATED])
PLANS = st.lists(st.tuples(st.integers(1, 6), ENDINGS), min_size=1, max_size=6)


def without_successors(path, rows):
    arrays = raw_arrays(rows)
    del arrays["next_observations"]
    return write_raw(path, arrays)


def check_rows(rows, plan):
    """Every kept row is a step of one episode with its own successor, in order."""
    episode, step = rows.observations[:, 0], rows.observations[:, 1]
    np.testing.assert_array_equal(rows.next_observations[:, 0], episode)
    np.testing.assert_array_equal(rows.next_observations[:, 1], step + 1)
    parts = episodes(rows)
    for start, end in zip(parts.starts, parts.ends, strict=True):
        assert len(np.unique(episode[start:end])) == 1
        np.testing.assert_array_equal(step[start:end], np.arange(end - start))
    ending = rows.terminations | rows.truncations
    assert not len(mismatches(rows.observations, rows.next_observations, ending))
    kept = {int(e) for e in episode}
    assert len(parts.starts) == len(kept) <= len(plan)


@given(PLANS, st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_stored_successors_lose_nothing(tmp_path_factory, plan, tail):
    plan = [*plan, (tail, UNFINISHED)] if tail else plan
    rows = make(plan)
    path = tmp_path_factory.mktemp("d4rl") / "file.hdf5"
    write_d4rl(path, rows)
    back = load_d4rl(path)
    for before, after in zip(rows, back.transitions, strict=True):
        assert before.dtype == after.dtype and before.tobytes() == after.tobytes()
    check_rows(back.transitions, plan)
    assert back.attributes["successors"] == "stored"
    assert back.attributes["successor_mismatches"] == 0


@given(PLANS, st.integers(0, 4))
@settings(deadline=None, max_examples=80)
def test_shifted_successors_never_cross_an_episode(tmp_path_factory, plan, tail):
    plan = [*plan, (tail, UNFINISHED)] if tail else plan
    rows = make(plan)
    path = without_successors(tmp_path_factory.mktemp("d4rl") / "file.hdf5", rows)
    ended = [length for length, ending in plan if ending == TERMINATED]
    if not ended and all(length == 1 for length, _ in plan):
        with pytest.raises(DataError, match="next_observations"):
            load_d4rl(path)
        return
    back = load_d4rl(path)
    # One row of each episode has no successor in the file. Ends stay, for values, and nothing else
    # is lost.
    assert len(back) == sum(length - (ending != TERMINATED) for length, ending in plan)
    assert back.attributes["dropped_rows"] == len(plan) - len(ended)
    assert back.attributes["ends_alone"] == len(ended)
    assert back.attributes["dropped_truncations"] == sum(e == TRUNCATED for _, e in plan)
    kept = [e for length, e in plan if length > 1 or e == TERMINATED]
    parts = episodes(back.transitions)
    assert parts.terminated.tolist() == [ending == TERMINATED for ending in kept]
    assert parts.truncated.tolist() == [ending == TRUNCATED for ending in kept]
    ends = np.asarray(back.transitions.terminations)
    label = np.array([100.0, 1.0])  # of a step of an episode
    at = np.searchsorted(
        rows.observations[:, :2] @ label, back.transitions.observations[:, :2] @ label
    )
    np.testing.assert_array_equal(back.transitions.rewards, rows.rewards[at])
    np.testing.assert_array_equal(ends, rows.terminations[at])
    np.testing.assert_array_equal(
        back.transitions.next_observations[ends], back.transitions.observations[ends]
    )
    # What learns what comes next sees true successors only, within episodes that were all cut.
    known = back.with_successors
    check_rows(known, plan)
    assert len(known.rewards) == sum(length - 1 for length, _ in plan)
    parts = episodes(known)
    assert not parts.terminated.any()
    kept = [ending for length, ending in plan if length > 1]
    assert parts.truncated.tolist() == [ending != UNFINISHED for ending in kept]


def test_known_shift():
    observations = np.arange(6, dtype=np.float32)[:, None]
    terminations = np.array([0, 0, 1, 0, 0, 0], bool)
    truncations = np.array([0, 0, 0, 0, 1, 0], bool)
    shifted = shift(observations, terminations, truncations)
    assert shifted.rows.tolist() == [0, 1, 2, 3]
    assert shifted.next_observations[:, 0].tolist() == [1, 2, 2, 4]
    assert shifted.truncations.tolist() == [False, False, False, True]
    assert shifted.dropped == (2, 1)


def test_rewards_at_ends_are_learned_without_successors() -> None:
    """As AntMaze has them: nothing but the last row of an episode is worth anything."""
    count, rng = 40, np.random.default_rng(0)
    ends = np.arange(count) % 10 == 9
    columns = {
        "observations": rng.normal(size=(count, 2)),
        "actions": rng.uniform(-1, 1, (count, 1)),
        "rewards": ends.astype(np.float32),
        "terminals": ends,
        "timeouts": np.zeros(count, bool),
    }
    dataset = from_arrays(**columns)
    assert dataset.transitions.rewards.sum() == 4 and len(dataset) == count
    assert dataset.with_successors.rewards.sum() == 0
    assert (episode_returns(dataset.transitions) == 1).all()
    whole = from_arrays(**columns, next_observations=columns["observations"] + 1)
    assert whole.with_successors is whole.transitions


def test_cut_by_length_starts_anew_after_a_termination():
    terminations = np.array([0, 1, 0, 0, 0, 0, 0, 1, 0], bool)
    expected = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0], bool)
    np.testing.assert_array_equal(cut_by_length(terminations, 3), expected)


def test_missing_timeouts_are_cut_by_the_limit(tmp_path):
    rows = make([(4, TRUNCATED), (2, TERMINATED), (4, TRUNCATED), (3, UNFINISHED)])
    arrays = raw_arrays(rows)
    del arrays["timeouts"]
    by_argument = load_d4rl(write_raw(tmp_path / "a.hdf5", arrays), max_episode_steps=4)
    by_file = load_d4rl(write_raw(tmp_path / "b.hdf5", arrays, {"max_episode_steps": 4}))
    by_name = load_d4rl(write_raw(tmp_path / "c.hdf5", arrays), name="pen-human-v0")
    for dataset in (by_argument, by_file):
        np.testing.assert_array_equal(dataset.transitions.truncations, rows.truncations)
    assert not by_name.transitions.truncations.any()  # D4RL's limit for pen is 100
    only_terminals = load_d4rl(tmp_path / "a.hdf5")
    assert not only_terminals.transitions.truncations.any()
    assert "a.hdf5" in str(only_terminals.source)


def test_timeouts_win_over_the_limit(tmp_path):
    rows = make([(4, TRUNCATED), (4, TRUNCATED)])
    path = write_raw(tmp_path / "a.hdf5", raw_arrays(rows))
    back = load_d4rl(path, max_episode_steps=2).transitions
    np.testing.assert_array_equal(back.truncations, rows.truncations)


def test_infos_follow_their_rows(tmp_path):
    rows = make(PLAN)
    qpos = rows.observations[:, :2] * 10
    write_d4rl(tmp_path / "a.hdf5", rows, infos={"qpos": qpos, "qvel": qpos + 1})
    assert load_d4rl(tmp_path / "a.hdf5").infos == {}
    infos = load_d4rl(tmp_path / "a.hdf5", infos=True).infos
    assert infos["qpos"].tobytes() == qpos.tobytes()
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        del file["next_observations"]
    dataset = load_d4rl(tmp_path / "a.hdf5", infos=True)
    expected = dataset.transitions.observations[:, :2] * 10
    np.testing.assert_array_equal(dataset.infos["qpos"], expected)


def test_attributes_and_provenance(tmp_path):
    given = {"env_id": "Hopper-v4", "seed": 3, "rate": 0.5, "kinds": ["a", "b"]}
    path = tmp_path / "hopper_mixed.hdf5"
    write_d4rl(path, make(PLAN), given)
    dataset = load_d4rl(path)
    assert {key: dataset.attributes[key] for key in given} == given
    assert dataset.environment == "Hopper-v4" and dataset.name == "hopper_mixed"
    assert dataset.sha256 == file_sha256(path) and dataset.source == path
    assert dataset.attributes["format"] == "d4rl" and len(dataset) == 19


@pytest.mark.parametrize(
    ("stem", "attributes", "name"),
    [
        ("hopper_medium-v2", {}, "hopper-medium-v2"),
        ("hopper-medium-v0", {}, "hopper-medium-v0"),
        ("hopper_medium", {}, "hopper_medium"),
        ("hopper_medium", {"env_id": "Hopper-v4"}, "hopper_medium"),
        ("other", {"env_id": "Hopper-v4"}, "other"),
    ],
)
def test_a_file_is_not_taken_for_another_dataset(tmp_path, stem, attributes, name):
    path = write_raw(tmp_path / f"{stem}.hdf5", raw_arrays(), attributes)
    assert load_d4rl(path).name == name


@pytest.mark.parametrize("declared", ["file", "argument"])
def test_declared_bounds_rescale_and_stay_with_the_dataset(tmp_path, declared):
    rows, bounds = make(PLAN), {"action_low": [-2.0, 0.0], "action_high": [2.0, 0.5]}
    own = rows.actions * np.float32([2, 0.25]) + np.float32([0, 0.25])
    arrays = raw_arrays() | {"actions": own}
    stored, given = (bounds, {}) if declared == "file" else ({}, bounds)
    dataset = load_d4rl(write_raw(tmp_path / "a.hdf5", arrays, stored), **given)
    np.testing.assert_allclose(dataset.transitions.actions, rows.actions, atol=1e-6)
    assert dataset.action_low.tolist() == [-2, 0] and dataset.action_high.tolist() == [2, 0.5]
    write_d4rl(tmp_path / "b.hdf5", dataset.transitions, **bounds)
    with h5py.File(tmp_path / "b.hdf5") as file:
        np.testing.assert_allclose(file["actions"][()], own, atol=1e-6)
    again = load_d4rl(tmp_path / "b.hdf5")
    np.testing.assert_allclose(again.transitions.actions, rows.actions, atol=1e-6)


def test_actions_outside_the_bounds_of_the_file_are_refused_or_clipped(tmp_path):
    arrays = raw_arrays() | {"actions": raw_arrays()["actions"] * 3}
    path = write_raw(tmp_path / "a.hdf5", arrays, {"action_low": -2.0, "action_high": 2.0})
    with pytest.raises(DataError, match=r"actions: found .* expected actions in the declared"):
        load_d4rl(path)
    assert np.abs(load_d4rl(path, clip=True).transitions.actions).max() == 1
    odd = write_raw(tmp_path / "b.hdf5", raw_arrays(), {"action_low": 1.0, "action_high": -1.0})
    with pytest.raises(DataError, match="attribute action_low"):
        load_d4rl(odd)


def test_same_rows_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_d4rl(tmp_path / name, make(PLAN), {"seed": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_dtypes_and_columns_are_taken(tmp_path):
    rows = make(PLAN)
    arrays = raw_arrays(rows)
    arrays |= {"observations": arrays["observations"].astype(np.float64)}
    arrays |= {"rewards": arrays["rewards"][:, None], "terminals": arrays["terminals"] * 1.0}
    back = load_d4rl(write_raw(tmp_path / "a.hdf5", arrays)).transitions
    for before, after in zip(rows, back, strict=True):
        assert before.dtype == after.dtype and before.tobytes() == after.tobytes()


def test_columns_that_disagree_are_warned_of(tmp_path):
    arrays = raw_arrays()
    arrays["observations"] = np.flip(arrays["observations"], 0).copy()
    path = write_raw(tmp_path / "a.hdf5", arrays)
    with pytest.warns(UserWarning, match="differ from the row that follows"):
        dataset = load_d4rl(path)
    assert dataset.attributes["successor_mismatches"] > 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_d4rl(write_raw(tmp_path / "b.hdf5", raw_arrays()))


@pytest.mark.parametrize("each", [False, True])
def test_observations_that_never_move_are_refused(tmp_path, each):
    # A collector stored views of one buffer: one row in the whole file, or one in each episode.
    rows, arrays = make(PLAN), raw_arrays()
    first = np.flatnonzero(rows.observations[:, 1] == 0)
    episode = rows.observations[:, 0].astype(int)
    arrays["observations"] = rows.observations[first[episode] if each else np.zeros(19, int)]
    path = write_raw(tmp_path / "a.hdf5", arrays)
    with pytest.raises(DataError, match="copies") as caught:
        load_d4rl(path)
    assert (caught.value.key, caught.value.found) == (
        "observations",
        "one and the same all episode",
    )


def test_resting_environments_are_not_refused(tmp_path):
    arrays = raw_arrays()
    arrays["observations"][:] = arrays["next_observations"][:] = 1
    assert len(load_d4rl(write_raw(tmp_path / "a.hdf5", arrays))) == 19


def test_a_file_of_a_real_simulator(made_hopper):
    dataset = load_d4rl(made_hopper / "hopper-random.hdf5", infos=True)
    rows, tape = dataset.transitions, read_tape(made_hopper / "hopper-random.tape")
    assert dataset.name == "hopper-random"
    np.testing.assert_allclose(episode_returns(rows), tape.returns, rtol=1e-6)
    # Observations are qpos without x, then qvel clipped to 10.
    velocity = np.clip(dataset.infos["qvel"], -10, 10)
    states = np.concatenate([dataset.infos["qpos"][:, 1:], velocity], 1)
    ending = rows.terminations | rows.truncations
    assert not len(mismatches(states, rows.next_observations, ending))
    np.testing.assert_allclose(rows.observations, states, rtol=1e-5, atol=1e-5)

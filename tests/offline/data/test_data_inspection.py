from __future__ import annotations

import io
import json

import numpy as np
import pytest
from helpers_data import (
    PLAN,
    TERMINATED,
    TRUNCATED,
    kinds,
    make,
    neorl_arrays,
    raw_arrays,
    write_raw,
)
from matplotlib.image import imread
from rich.console import Console

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import (
    Dataset,
    draw_inspection,
    inspect,
    inspect_file,
    load,
    load_d4rl,
    print_inspection,
    write_d4rl,
)
from jaxrl_rollouts.offline.tapes.tape import read_tape


def saved(tmp_path, rows, name="hopper-mixed", **attributes):
    write_d4rl(tmp_path / "hopper_mixed.hdf5", rows, attributes, action_limit=None)
    return load_d4rl(tmp_path / "hopper_mixed.hdf5", name=name, action_limit=None)


def printed(found):
    stream = io.StringIO()
    print_inspection(found, Console(file=stream, width=160))
    return stream.getvalue()


def test_counts_and_returns(tmp_path):
    rows = make(PLAN)
    found = inspect(saved(tmp_path, rows, name="hopper-medium-v2"))
    assert (found.rows, found.observation_size, found.action_size) == (19, 3, 2)
    assert (found.episodes, found.terminated, found.truncated, found.unfinished) == (5, 2, 2, 1)
    assert found.time_limit is None and found.cut_short == 0
    sums = np.add.reduceat(rows.rewards.astype(float), [0, 4, 7, 12, 17])
    np.testing.assert_allclose(found.episode_returns, sums)
    np.testing.assert_allclose(found.returns.mean, sums[:4].mean())
    np.testing.assert_allclose(found.returns.quantiles[3], np.median(sums[:4]))
    assert found.episode_lengths == (4, 3, 5, 5, 2)
    assert found.episode_whole == (True, True, True, True, False)
    score = 100 * (sums[:4].mean() + 20.272305) / (3234.3 + 20.272305)
    np.testing.assert_allclose(found.normalised_return, score)
    np.testing.assert_allclose(found.normalised_std, 100 * sums[:4].std() / (3234.3 + 20.272305))
    assert found.suspicions == () and found.problems == ()
    assert "nothing suspicious" in printed(found)


def test_no_score_without_references(tmp_path):
    found = inspect(saved(tmp_path, make(PLAN), name=None))
    assert found.name == "hopper_mixed" and found.normalised_return is None
    assert "no reference returns" in printed(found)


def test_partial_returns_are_kept_apart(tmp_path):
    plan = [(6, TRUNCATED), (2, TRUNCATED), (4, TERMINATED), (6, TRUNCATED)]
    rows = make(plan)._replace(rewards=np.ones(18, np.float32))
    found = inspect(saved(tmp_path, rows))
    assert found.time_limit == 6 and found.cut_short == 1
    assert found.returns.mean == (6 + 4 + 6) / 3 and found.returns_finished.mean == 18 / 4
    suspicion = kinds(found)["truncations", "episode cut before the time limit"]
    assert suspicion.count == 1 and suspicion.rows == (6,)
    assert "before the limit" in printed(found)


def test_ranges(tmp_path):
    rows = make(PLAN)
    columns = {r.column: r for r in inspect(saved(tmp_path, rows)).ranges}
    assert list(columns)[:4] == [
        "observations[0]",
        "observations[1]",
        "observations[2]",
        "actions[0]",
    ]
    assert columns["observations[0]"].low == 0 and columns["observations[0]"].high == 4
    assert columns["rewards"].low == rows.rewards.min()
    np.testing.assert_allclose(columns["actions[1]"].std, rows.actions[:, 1].std(), rtol=1e-5)


def test_suspicious_rows(tmp_path):
    rows = make(PLAN)
    rows.observations[:, 2] = 7
    rows.next_observations[:, 2] = 7
    rows.next_observations[1, 1] = 50
    rows.actions[8, 0] = -1.5
    found = kinds(inspect(saved(tmp_path, rows)))
    assert set(found) == {
        ("observations[2]", "constant column"),
        ("next_observations", "not the row that follows"),
        ("actions", "action out of bounds"),
    }
    assert found["next_observations", "not the row that follows"].rows == (1,)
    assert found["actions", "action out of bounds"].rows == (8,)


def test_endings_are_not_mistaken_for_jumps(tmp_path):
    # At an ending the next row is another episode's; that is no inconsistency.
    rows = make([(1, TERMINATED), (1, TRUNCATED), (2, TERMINATED)])
    assert inspect(saved(tmp_path, rows)).suspicions == ()


def test_stuck_observations(tmp_path):
    rows = make(PLAN)
    rows.observations[:] = rows.observations[:1]
    stuck = Dataset("x", rows, None, tmp_path, "")
    found = kinds(inspect(stuck))
    assert found["observations", "same as the row before"].count == 14
    assert found["next_observations", "not the row that follows"].count == 14
    path = write_raw(tmp_path / "a.hdf5", raw_arrays(rows))
    found = inspect_file(path)
    assert "observations: found one and the same all episode" in found.problems[0]
    assert kinds(found)["observations", "same as the row before"].count == 14
    assert "problem: " in printed(found)


def test_dropped_rows_are_told(tmp_path):
    arrays = raw_arrays()
    del arrays["next_observations"]
    found = inspect(load_d4rl(write_raw(tmp_path / "a.hdf5", arrays)))
    ends = "terminals without a successor: used for values, not for dynamics models"
    lost, alone = kinds(found)["rows", "rows dropped"], kinds(found)["terminations", ends]
    assert lost.count + alone.count == 5 and alone.count == arrays["terminals"].sum() > 0


def test_files_that_load_refuses(tmp_path):
    arrays = raw_arrays()
    arrays["rewards"][3] = np.nan
    arrays["observations"][5, 1] = np.inf
    path = write_raw(tmp_path / "bad.hdf5", arrays, {"env_id": "Hopper-v4"})
    found = inspect_file(path)
    assert len(found.problems) == 1 and "observations" in found.problems[0]
    assert kinds(found)["rewards", "non-finite"].rows == (3,)
    assert kinds(found)["observations", "non-finite"].rows == (5,)
    assert found.rows == 19 and found.environment == "Hopper-v4"
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["episode_returns"][0] is None
    assert "problem: " in printed(found)
    draw_inspection(found, tmp_path / "bad.png")


@pytest.mark.parametrize("left_out", sorted(raw_arrays()))
def test_files_with_a_missing_array(tmp_path, left_out):
    arrays = raw_arrays()
    del arrays[left_out]
    found = inspect_file(write_raw(tmp_path / "bad.hdf5", arrays))
    optional = ("next_observations", "timeouts")
    assert bool(found.problems) == (left_out not in optional)
    assert found.rows > 0
    json.dumps(found.to_json(), allow_nan=False)
    assert printed(found)


def test_arrays_of_unequal_length_are_cut(tmp_path):
    arrays = raw_arrays() | {"rewards": np.ones(7, np.float32)}
    found = inspect_file(write_raw(tmp_path / "bad.hdf5", arrays))
    assert found.rows == 7 and "rewards" in found.problems[0]


def test_broken_npz(tmp_path):
    arrays = neorl_arrays(make(PLAN), [4, 7, 12, 17, 19])
    arrays["obs"][2] = np.nan
    np.savez(tmp_path / "a.npz", **arrays)
    found = inspect_file(tmp_path / "a.npz")
    assert found.format == "neorl" and found.rows == 19
    assert kinds(found)["observations", "non-finite"].rows == (2,)


@pytest.mark.filterwarnings("error")
def test_columns_by_names_of_ones_own_are_told_which_ones_are_read(tmp_path):
    np.savez(tmp_path / "own.npz", pose=np.ones((3, 2)), command=np.ones((3, 1)))
    found = inspect_file(tmp_path / "own.npz")
    assert found.format == "arrays" and found.rows == 0
    (problem,) = found.problems
    assert "only command, pose" in problem and "as well: actions, rewards, terminals" in problem
    with pytest.raises(DataError, match="needed as well"):
        load(tmp_path / "own.npz")


@pytest.mark.parametrize("contents", [b"", b"hello", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"])
def test_no_arrays_at_all(tmp_path, contents):
    path = tmp_path / "a.hdf5"
    path.write_bytes(contents)
    found = inspect_file(path)
    assert found.rows == found.episodes == 0 and found.returns is None and found.problems
    json.dumps(found.to_json(), allow_nan=False)
    assert "problem: " in printed(found)
    draw_inspection(found, tmp_path / "a.png")
    assert imread(tmp_path / "a.png").shape[2] == 4


def test_what_inspection_still_refuses(tmp_path):
    with pytest.raises(DataError, match="nothing"):
        inspect_file(tmp_path / "none.hdf5")
    path = write_raw(tmp_path / "a.hdf5", raw_arrays())
    with pytest.raises(ConfigError, match="max_episode_steps"):
        inspect_file(path, max_episode_steps=-1)


def test_actions_beyond_one_are_measured_and_a_problem(tmp_path):
    """As training refuses them where no bounds are declared."""
    arrays = raw_arrays()
    arrays["actions"][4] = 2
    path = write_raw(tmp_path / "a.hdf5", arrays)
    found = inspect_file(path)
    assert kinds(found)["actions", "action out of bounds"].rows == (4,)
    with pytest.raises(DataError) as refused:
        load(path)
    assert found.problems == (str(refused.value),) and found.rows == 19
    quiet = inspect_file(path, action_limit=2.0)
    assert quiet.suspicions == quiet.problems == ()
    assert not inspect_file(path, action_low=-2.0, action_high=2.0).problems


def test_names_are_not_read_as_markup(tmp_path):
    path = write_raw(tmp_path / "[bold]x.hdf5", raw_arrays())
    assert "[bold]x" in printed(inspect_file(path))


def test_picture(tmp_path):
    found = inspect(saved(tmp_path, make([(5, TRUNCATED)] * 60 + [(2, TERMINATED)] * 20)))
    draw_inspection(found, tmp_path / "a.png")
    image = imread(tmp_path / "a.png")
    assert image.shape == (832, 1300, 4)
    assert len(np.unique(image.reshape(-1, 4), axis=0)) > 50
    with pytest.raises(DataError, match="picture"):
        draw_inspection(found, tmp_path / "none" / "a.png")
    with pytest.raises(DataError, match="picture"):
        draw_inspection(found, tmp_path / "a.unknown")


def test_a_file_of_a_real_simulator(made_hopper, tmp_path):
    found = inspect_file(made_hopper / "hopper-random.hdf5")
    mean = read_tape(made_hopper / "hopper-random.tape").returns.mean()
    assert found.rows == 2000 and found.episodes > 20
    np.testing.assert_allclose(found.returns.mean, mean, rtol=1e-5)
    draw_inspection(found, tmp_path / "hopper.png")
    assert (tmp_path / "hopper.png").stat().st_size > 20_000


def test_declared_bounds_are_shown(tmp_path):
    path = write_raw(tmp_path / "a.hdf5", raw_arrays())
    found = inspect_file(path, action_low=[-2, -1], action_high=2)
    assert found.action_bounds == "[-2, 2], [-1, 2]"
    assert "rescaled to [-1, 1] from [-2, 2], [-1, 2]" in printed(found)
    assert inspect_file(path).action_bounds == "" and "rescaled" not in printed(inspect_file(path))


ENDS = "every row ends an episode"


@pytest.mark.parametrize(
    ("change", "array", "kind", "count", "rows"),
    [
        ({"rewards": (5, 1e30)}, "rewards", "extreme", 1, (5,)),
        ({"rewards": (5, -2e5)}, "rewards", "extreme", 1, (5,)),
        ({"observations": ((7, 2), 1e9)}, "observations[2]", "extreme", 1, (7,)),
        ({"rewards": (slice(None), 0)}, "rewards", "all zero", 300, ()),
        ({"rewards": (slice(None), -1)}, "rewards", "constant column", 300, ()),
        ({"terminations": (slice(None), True)}, "terminations", ENDS, 300, ()),
        ({"truncations": (slice(None), True)}, "truncations", ENDS, 300, ()),
        ({"actions": (slice(None), -1)}, "actions", "at the bounds", 300, (0, 1, 2, 3, 4)),
    ],
)
def test_what_is_no_measurement_or_teaches_nothing(tmp_path, change, array, kind, count, rows):
    good = make([(60, TRUNCATED)] * 5, size=4)
    assert not inspect(saved(tmp_path, good)).suspicions
    ((key, (at, value)),) = change.items()
    getattr(good, key)[at] = value
    found = inspect(saved(tmp_path, good))
    assert kinds(found)[array, kind].count == count and kinds(found)[array, kind].rows == rows
    assert f"look at: {array}: {kind}: {count}" in printed(found)


def test_sparse_rewards_and_one_row(tmp_path):
    sparse = make([(60, TRUNCATED)] * 5, size=4)
    sparse.rewards[:] = 0
    sparse.rewards[[59, 119]] = 1.0
    assert not inspect(saved(tmp_path, sparse)).suspicions
    one = inspect(saved(tmp_path, make([(1, TERMINATED)])))
    assert ("rows", "only one row") in kinds(one)


def test_control_characters_of_a_file_are_not_printed(tmp_path):
    dataset = saved(tmp_path, make(PLAN), name="a\x1b[2Jb", env_id="c\x9b\x07d")
    text = printed(inspect(dataset))
    assert "a[2Jb (d4rl, cd)" in text and not set(text) & {"\x1b", "\x9b", "\x07"}

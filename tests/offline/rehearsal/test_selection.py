"""Rules of selection against plain numpy, and on data where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.rehearsal.selection import RULES, select

N, LONG = 60, 15


def rows() -> Transitions:
    """Four episodes of 15 rows; of the first and the third the last row is an end."""
    rng = np.random.default_rng(0)
    s, n = (rng.normal(size=(N, 2)).astype(np.float32) * [1.0, 10.0] for _ in range(2))
    a, r = rng.uniform(-1, 1, (N, 1)).astype(np.float32), rng.normal(size=N).astype(np.float32)
    last = np.arange(N) % LONG == LONG - 1
    ends = last & (np.arange(N) // LONG % 2 == 0)
    return Transitions(s, a, r, n, ends, last & ~ends)


def given() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"actions": rng.uniform(-1, 1, (N, 1)), "predicted": rng.normal(size=(N, 2))}


@pytest.mark.parametrize("rule", RULES)
def test_no_row_is_kept_twice_and_a_whole_buffer_is_the_data(rule: Any) -> None:
    for count in (1, 7, N):
        found = select(rule, rows(), count, **given())
        assert found.shape == (count,) and len(np.unique(found)) == count
    assert np.array_equal(np.sort(found), np.arange(N))
    again = select(rule, rows(), 7, **given())
    assert np.array_equal(again, select(rule, rows(), 7, **given()))


def test_the_highest_rewards_and_the_nearest_actions() -> None:
    t, more = rows(), given()
    best = {i for i in range(N) if (t.rewards > t.rewards[i]).sum() < 8}
    assert set(select("reward", t, 8)) == best
    apart = np.abs(more["actions"] - t.actions)[:, 0]
    nearest = {i for i in range(N) if (apart < apart[i]).sum() < 8}
    assert set(select("policy", t, 8, **more)) == nearest


def test_the_best_episodes_are_kept_whole_and_in_order() -> None:
    t = rows()
    sums = t.rewards.reshape(4, LONG).sum(1)
    first, second = np.argsort(-sums)[:2]
    want = [*range(first * LONG, first * LONG + LONG), *range(second * LONG, second * LONG + 5)]
    assert select("episodes", t, LONG + 5).tolist() == want


def test_coverage_takes_the_farthest_from_those_before() -> None:
    t = rows()
    found = select("coverage", t, 12)
    points = t.observations / t.observations.std(0)
    for i in range(1, 12):
        apart = np.linalg.norm(points[:, None] - points[found[:i]][None], axis=-1).min(1)
        np.testing.assert_allclose(apart[found[i]], apart.max(), rtol=1e-6)
    same = t._replace(observations=np.ones((N, 2), np.float32))
    assert len(np.unique(select("coverage", same, N))) == N


def on_a_grid(size: int = 21) -> tuple[Transitions, np.ndarray]:
    """A row at every point of a grid; the model moves one point along the first axis."""
    s = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), -1)
    s = s.reshape(-1, 2).astype(np.float32)
    flags, zero = np.zeros(len(s), bool), np.zeros(len(s), np.float32)
    t = Transitions(s, zero[:, None], zero, s, flags, flags)
    return t, s + np.array([1.0, 0.0], np.float32)


def test_with_a_perfect_model_and_dense_data_mbes_follows_the_policys_path() -> None:
    t, predicted = on_a_grid()
    found = select("mbes", t, 10, predicted=predicted)
    np.testing.assert_array_equal(
        t.observations[found], [[i + 1, 0] for i in range(10)]
    )  # the only episode starts at the origin


def test_mbes_begins_anew_after_its_length_and_after_an_end() -> None:
    t, predicted = on_a_grid()
    short = t.observations[select("mbes", t, 4, predicted=predicted, length=2)]
    assert short[:2].tolist() == [[1, 0], [2, 0]]
    # The nearest row that is left of the start's successor (1, 0).
    assert np.abs(short[2] - [1, 0]).sum() == 1
    ends = t.terminations.copy()
    ends[2 * 21] = True  # at (2, 0)
    cut = t._replace(terminations=ends)  # which makes (2, 1) a start
    paths = [t.observations[select("mbes", cut, 3, s, predicted=predicted)] for s in range(8)]
    paths = [path.tolist() for path in paths if path[0].tolist() == [1, 0]]
    assert paths and all(path[1] == [2, 0] for path in paths)
    assert all(path[2] in ([0, 0], [1, 1], [3, 1]) for path in paths)


def test_refused() -> None:
    with pytest.raises(ConfigError, match="count: found 61, expected 1 to 60"):
        select("random", rows(), 61)
    with pytest.raises(ConfigError, match="predicted: found None, expected an array"):
        select("mbes", rows(), 3)
    with pytest.raises(ConfigError, match="rule: found 'rewards'"):
        select("rewards", rows(), 3)  # type: ignore[arg-type]

"""Changes and values that are no measurement."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.suspicions import Sentinel, find_odd_changes, find_sentinels, find_still


def waves(count: int = 8, frames: int = 20) -> np.ndarray:
    """`[N, T, 32]` waves that travel, each its own way."""
    rng = np.random.default_rng(0)
    x, time = np.arange(32) / 32 * 2 * np.pi, np.arange(frames)[:, None]
    phase = 6 * rng.random((count, 1, 1))
    return np.sin(x + phase + 0.3 * time)


def judged(fields: np.ndarray) -> dict[str, list[list[int]]]:
    sizes = np.sqrt((np.diff(fields, axis=1) ** 2).mean(-1))
    found = find_odd_changes(sizes, (fields[:, 1:] == 0).all(-1))
    return {one.kind: one.places.tolist() for one in found}


def test_nothing_is_odd_about_waves_noise_decay_and_rest() -> None:
    rng = np.random.default_rng(1)
    time = np.arange(60)[:, None]
    decay = waves(6, 60) * np.exp(-time)
    rest = np.minimum(time, 30) * np.ones((5, 1, 32))
    for fields in (waves(), rng.normal(size=(9, 40, 3)), rng.normal(size=(9, 40, 3)).cumsum(1)):
        assert judged(fields) == {}
    assert judged(decay) == {} and judged(rest[:, :31]) == {}
    assert find_odd_changes(np.zeros((3, 5))) == [] == find_odd_changes(np.full((3, 5), np.nan))


def test_zeros_repeats_jumps_and_gaps_are_told_apart() -> None:
    fields = waves()
    fields[2, 12:] = 0
    assert judged(fields)["zeros"] == [[2, t] for t in range(11, 19)]
    fields = waves()
    fields[2, 12] = 0
    assert judged(fields)["zeros"] == [[2, 11]], "one alone, into which the change is large"
    fields = waves()
    fields[2, 13] = fields[2, 12]
    assert judged(fields) == {"repeat": [[2, 12]]}
    fields = waves()
    fields[3, 7:] += 40.0
    assert judged(fields) == {"jump": [[3, 6]]}
    fields = np.delete(waves(8, 23), [7, 8, 9], 1)
    assert judged(fields) == {"left out": [[n, 6] for n in range(8)]}


def test_a_sequence_may_hold_several() -> None:
    sizes = np.tile(0.1 + 0.01 * np.arange(10), 5)
    sizes[9::10] = np.nan
    assert find_odd_changes(sizes[None]) == []
    sizes[33] = 9.0
    (odd,) = find_odd_changes(sizes[None])
    assert odd.kind == "jump" and odd.places.tolist() == [[0, 33]]


@pytest.mark.parametrize("value", [-9999.0, 9.96921e36, -1e30])
def test_a_frequent_value_far_away_is_named(value: float) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    rows[5::10, 1] = value
    rows[7, 2] = value  # once: an outlier, and no sentinel
    assert find_sentinels(rows) == [Sentinel(1, float(np.float32(value)), 10, 5)]
    flags = (np.arange(100) % 3 == 0)[:, None] * 1e6
    assert find_sentinels(flags) == [], "two values alone say nothing"
    rows[:, 1] = np.nan
    assert find_sentinels(rows) == []


def test_several_sentinels_in_one_column_are_all_named() -> None:
    """-9999 beside 9999, and beside -8888; counts that are far apart by nature are none."""
    rows = np.random.default_rng(0).normal(size=(100, 3))
    rows[5::10, 0], rows[7::10, 0] = -9999.0, 9999.0
    rows[5::10, 1], rows[7::10, 1] = -9999.0, -8888.0
    rows[:, 2] = np.resize([0.0, 1.0, 50.0, 100.0], 100)
    fills = rows[:, :1].copy()
    fills[2::10] = 9.96921e36  # of another size: found first, and the others in what is left
    assert [one.value for one in find_sentinels(fills)] == [9.96921e36, 9999.0, -9999.0]
    found = [(one.column, one.value, one.count, one.first) for one in find_sentinels(rows)]
    assert sorted(found) == [
        (0, -9999.0, 10, 5),
        (0, 9999.0, 10, 7),
        (1, -9999.0, 10, 5),
        (1, -8888.0, 10, 7),
    ]


def test_a_column_that_stands_still_is_named_and_a_limit_is_not() -> None:
    rng = np.random.default_rng(0)
    rows, ends = rng.normal(size=(400, 4)).cumsum(0), np.arange(400) % 40 == 39
    rows[50:60, 0] = rows[50, 0]  # the last value is held
    rows[130:140, 1] = rows[:, 1].min() - 30.0  # a jump to a value of its own
    wave = np.sin(0.1 * np.arange(400))
    rows[:, 2] = np.clip(3.0 * wave, -2.99, 2.99)  # a limit, reached step by step
    rows[:, 3] = np.round(wave)  # stands still by nature
    found = {one.column: one.rows.tolist() for one in find_still(rows, ends)}
    assert found == {0: list(range(51, 60)), 1: list(range(131, 140))}
    rows[200:210] = rows[200]  # no column moves: rows that repeat are another finding
    assert {one.column for one in find_still(rows, ends)} == {0, 1}

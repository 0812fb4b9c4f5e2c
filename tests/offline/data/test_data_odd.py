"""What `inspect` says of rows that are finite and no measurement."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers_data import kinds

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import (
    episodes,
    from_arrays,
    inspect,
)
from jaxrl_rollouts.offline.data.bounds import from_unit, is_unit, read_bounds, to_unit
from jaxrl_rollouts.offline.data.views import warnings_of
from jaxrl_rollouts.offline.task import odd_facts


def smooth(lengths, jump=0.0):
    """Rows of random walks; each episode begins `jump` away from where the last one ended."""
    rng = np.random.default_rng(0)
    states = rng.normal(0, 0.1, (sum(lengths), 3)).cumsum(0)
    ends = np.zeros(len(states), bool)
    ends[np.cumsum(lengths) - 1] = True
    states += jump * np.append(0, np.cumsum(ends)[:-1])[:, None]
    arrays = {"observations": states, "actions": rng.uniform(-1, 1, (len(states), 1))}
    return arrays | {"rewards": states[:, 0], "terminals": ends & False, "timeouts": ends}


def test_flags_one_row_late_are_named_with_their_rows():
    arrays = smooth([40] * 6, jump=9.0)
    assert kinds(inspect(from_arrays(**arrays))).keys() == {("rows", "rows dropped")}
    arrays["timeouts"] = np.roll(arrays["timeouts"], 1) & (np.arange(240) > 0)
    found = kinds(inspect(from_arrays(**arrays)))["observations", "jump into the row after"]
    assert found.count == 5 and found.rows == (39, 79, 119, 159, 199)
    assert "one row late" in found.hint
    one = smooth([40] * 6)
    one["observations"][100:] += 30.0
    found = kinds(inspect(from_arrays(**one)))["observations", "jump into the row after"]
    assert (found.rows, found.hint) == ((99,), "")


def pushed(rows=3000):
    """A damped pendulum pushed by chance: angles, speeds, pushes; episodes of 100 rows."""
    rng = np.random.default_rng(0)
    pushes, state, states = rng.uniform(-1, 1, (rows, 1)), np.zeros(2), []
    for row, (push,) in enumerate(pushes):
        state = rng.normal(size=2) if row % 100 == 0 else state
        states.append(state)
        x, v = state
        state = np.array([x + 0.1 * v, v + 0.1 * (push - np.sin(x) - 0.3 * v)])
    ends = np.arange(rows) % 100 == 99
    arrays = {"observations": np.array(states), "actions": pushes, "rewards": pushes[:, 0]}
    return arrays | {"terminals": ends & False, "timeouts": ends}


def test_a_row_left_out_and_rows_exchanged_are_named():
    """In changes about twice the usual ones; nothing is named where nothing is wrong."""
    sound = pushed()
    assert kinds(inspect(from_arrays(**sound))).keys() == {("rows", "rows dropped")}
    out = {key: np.delete(values, [250, 1777], 0) for key, values in sound.items()}
    found = kinds(inspect(from_arrays(**out)))
    named = found["observations", "a change of two steps into the row after"]
    # The file's last one is row 1776 - 1: one was taken out before it.
    assert named.rows == (249, 1775) and named.hint == "a row left out?"
    order = np.arange(3000)
    order[[250, 251]] = 251, 250
    mixed = {key: values[order] for key, values in sound.items()}
    found = kinds(inspect(from_arrays(**mixed)))["observations", "a step back into the row after"]
    assert (found.rows, found.hint) == ((250,), "rows out of order?")
    assert any("row left out" in fact for fact in odd_facts(from_arrays(**out)))


def test_blocks_of_zeros_and_sentinels_are_named():
    arrays = smooth([40] * 6)
    arrays["observations"][65:75] = 0
    found = kinds(inspect(from_arrays(**arrays)))[
        "observations", "zero in all columns after something"
    ]
    assert found.count == 10 and found.rows[0] == 64
    arrays = smooth([40] * 6)
    arrays["observations"][3::7, 1] = -9999
    dataset = from_arrays(**arrays)
    found = kinds(inspect(dataset))["observations[1]", "missing value?"]
    assert found.rows == (3,) and found.count > 20 and "-9999 occurs often" in found.hint
    assert any("-9999 occurs often" in text for text in warnings_of(inspect(dataset)))


def test_a_column_without_news_is_named_in_inspect_and_before_a_training():
    arrays = smooth([40] * 6)
    arrays["observations"][65:75, 1] = arrays["observations"][65, 1]
    dataset = from_arrays(**arrays)
    found = kinds(inspect(dataset))["observations[1]", "stands still"]
    assert found.count == 9 and "a sensor without news" in found.hint
    assert any("observations[1]: stands still: 9 row(s), first 66" in x for x in odd_facts(dataset))


def test_successors_of_other_rows_are_named_before_a_training():
    """However many there are: an array that is one row late is wrong throughout."""
    arrays = smooth([40] * 6)
    arrays["next_observations"] = arrays["observations"]
    with pytest.warns(UserWarning, match="234 of 234 rows .* one of the two arrays may be wrong"):
        dataset = from_arrays(**arrays)
    assert any("234 row(s)" in text and "may be wrong" in text for text in odd_facts(dataset))


def test_successors_that_disagree_are_reported_and_cut():
    arrays = smooth([40] * 6, jump=9.0)
    following = np.roll(arrays["observations"], -1, 0)
    ends = np.flatnonzero(arrays["timeouts"])
    following[ends] = arrays["observations"][ends] + 0.1
    arrays["next_observations"] = following
    arrays["timeouts"][ends[::2]] = False
    with pytest.warns(UserWarning, match=r"3 of 237 rows .*row 39, 119, 199\).*cut_mismatches"):
        found = kinds(inspect(from_arrays(**arrays)))[
            "next_observations", "not the row that follows"
        ]
    assert found.rows == (39, 119, 199) and "--cut-mismatches" in found.hint
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = from_arrays(**arrays, cut_mismatches=True)
    assert episodes(whole.transitions).lengths.tolist() == [40] * 6
    assert whole.attributes["cut_mismatches"] == 3 and not kinds(inspect(whole))
    del arrays["timeouts"]
    with pytest.raises(DataError, match="cut_mismatches=True .* cuts where next_obs"):
        from_arrays(**arrays)
    again = from_arrays(**arrays, cut_mismatches=True)
    assert episodes(again.transitions).lengths.tolist() == [40] * 6


def test_one_number_stands_for_every_column():
    low, high = read_bounds(-2, [1.0, 2.0, 3.0], 3) or (None, None)
    np.testing.assert_array_equal(low, [-2, -2, -2])
    np.testing.assert_array_equal(high, [1, 2, 3])
    assert read_bounds(None, None, 3) is None
    assert is_unit(*(read_bounds(-1, 1, 2) or ())) and not is_unit(low, high)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-1, None, "action_high: found None"),
        ([-1, -1], 1, "action_low: found .*one finite number, or 3"),
        (-np.inf, 1, "action_low"),
        ("low", 1, "action_low: found 'low'"),
        (1, [2, 1, 2], "below action_high"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(low, high, says):
    with pytest.raises(ConfigError, match=says):
        read_bounds(low, high, 3)


def test_rescaling_and_back():
    low, high = np.float32([-2, 0]), np.float32([2, 0.3])
    own = np.float32([[-2, 0.3], [1, 0.15]])
    unit = to_unit("mine", "actions", own, low, high)
    np.testing.assert_allclose(unit, [[-1, 1], [0.5, 0]], atol=1e-6)
    np.testing.assert_allclose(from_unit(unit, low, high), own, rtol=1e-6)
    np.testing.assert_array_equal(from_unit(np.float32([3, -0.5]), None, None), [1, -0.5])


def test_actions_outside_their_declared_bounds_are_refused():
    with pytest.raises(DataError, match=r"mine: actions: found 3 in row 1, column 0 \(1 such"):
        to_unit(
            "mine",
            "actions",
            np.float32([[0, 0], [3, 0]]),
            np.float32([-2, -2]),
            np.float32([2, 2]),
        )

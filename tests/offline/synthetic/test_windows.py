"""Windows keep episodes and terminations, and come back as the transitions they were cut from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import logged
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import episodes
from jaxrl_rollouts.offline.synthetic.windows import (
    cut_windows,
    fit_window_layout,
    window_starts,
)

S, A, KEY = 2, 1, jax.random.key(0)


def test_starts_are_strided_and_those_of_episodes() -> None:
    data = logged(20, 3, 12, ended=(2,))
    # Windows of 6 states are 5 rows. Episode 0 was cut off and has starts 0..15, 1 is too short,
    # 2 (rows 23..34) terminates and every row may start a window.
    possible = [*range(0, 16), *range(23, 35)]
    np.testing.assert_array_equal(window_starts(episodes(data), 6, 1), possible)
    np.testing.assert_array_equal(
        window_starts(episodes(data), 6, 8), sorted({*possible[::8], 0, 23})
    )


def test_windows_stay_in_their_episode_and_end_in_a_state() -> None:
    data = logged(20, 3, 12, ended=(2,))
    windows = cut_windows(data, 6, 1)
    assert (windows.actions[:, -1] == 0).all() and (windows.rewards[:, -1] == 0).all()
    times = windows.observations[..., 0]
    # The fall leads to time 212, and there a window stays.
    last = np.where(times[:, :1] < 100, 1000, 212)
    np.testing.assert_array_equal(times, np.minimum(times[:, :1] + np.arange(6), last))
    over = np.minimum(times + 1, last) == times
    assert (windows.actions[over] == 0).all() and (windows.rewards[over] == 0).all()
    assert (windows.actions[:, :-1][~over[:, :-1]] != 0).all()
    np.testing.assert_array_equal(
        windows.terminations[:, :-1], (times == 211)[:, :-1] | over[:, :-1]
    )
    # The last step has no transition of its own: it goes on as the one before it.
    np.testing.assert_array_equal(windows.terminations[:, -1], windows.terminations[:, -2])


def test_rows_come_back_as_transitions_with_their_terminations() -> None:
    data = logged(20, 12, ended=(1,))
    windows = cut_windows(data, 6, 4)
    layout = fit_window_layout(windows)
    rows = layout.pack(windows)
    assert rows.shape[1:] == (6, S + A + 2) and layout.guided == (2, 3)
    back, valid = layout.unpack(rows)
    assert len(valid) == 5 * len(rows)
    index = (window_starts(episodes(data), 6, 4)[:, None] + np.arange(5)).reshape(-1)
    inside = index < 32  # a window of the last episode goes on after its end
    np.testing.assert_array_equal(valid, inside)
    for name in ("observations", "actions", "rewards", "next_observations"):
        want = getattr(data, name)[index[inside]]
        np.testing.assert_allclose(getattr(back, name)[valid], want, rtol=1e-3, atol=2e-3)
    np.testing.assert_array_equal(back.terminations[valid], data.terminations[index[inside]])
    assert np.asarray(back.terminations)[valid].any()


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    length=st.integers(2, 8),
    ended=st.sets(st.integers(0, 5)),
)
@settings(max_examples=40, deadline=None)
def test_with_every_start_a_termination_is_as_frequent_as_its_row(
    lengths: list[int], length: int, ended: set[int]
) -> None:
    """Away from its start, an episode that terminates has every row in `L - 1` windows."""
    data = logged(*lengths, ended=tuple(ended))
    if not len(window_starts(episodes(data), length, 1)):
        return
    windows = cut_windows(data, length, 1)
    ends = windows.terminations[:, :-1]
    first = ends & (np.cumsum(ends, 1) == 1)
    want = sum(min(length - 1, n) for k, n in enumerate(lengths) if k in ended)
    assert first.sum() == want
    # Where it stands is where the episode's last row is: no window loses or moves it.
    times = windows.observations[:, 1:, 0][first]
    reached = {100 * k + n for k, n in enumerate(lengths) if k in ended}
    assert set(times.tolist()) == reached


def test_short_episodes_that_terminate_fill_windows() -> None:
    data = logged(2, ended=(0,))
    windows = cut_windows(data, 6, 1)
    np.testing.assert_array_equal(
        windows.observations[..., 0], [[0, 1, 2, 2, 2, 2], [1, 2, 2, 2, 2, 2]]
    )
    layout = fit_window_layout(windows)
    _, valid = layout.unpack(layout.pack(windows))
    np.testing.assert_array_equal(valid.reshape(2, 5).sum(1), [2, 1])


def test_what_follows_a_generated_termination_is_not_valid() -> None:
    layout = fit_window_layout(cut_windows(logged(20, ended=(0,)), 5, 1))
    rows = jnp.zeros((2, 5, layout.channels)).at[0, 1, -1].set(0.9)
    made, valid = layout.unpack(rows)
    np.testing.assert_array_equal(valid, [True, True, False, False, True, True, True, True])
    np.testing.assert_array_equal(np.flatnonzero(made.terminations), [1])


def test_data_without_terminations_generate_none() -> None:
    """Where rewards are negative, an end made up of noise would be the best thing to reach."""
    layout = fit_window_layout(cut_windows(logged(20), 5, 1))
    rows = jnp.zeros((2, 5, layout.channels)).at[0, 1, -1].set(0.9)
    made, valid = layout.unpack(rows)
    assert valid.all() and not np.asarray(made.terminations).any()


def test_large_actions_stay_finite() -> None:
    data = logged(20)
    data = data._replace(actions=np.sign(data.actions))
    layout = fit_window_layout(windows := cut_windows(data, 5))
    back, _ = layout.unpack(layout.pack(windows))
    np.testing.assert_allclose(np.abs(back.actions), 0.999, atol=1e-4)


def test_bad_data_is_named() -> None:
    with pytest.raises(DataError, match="toy: episodes: found at most 13 states, expected 20"):
        cut_windows(logged(12, 3), 20, source="toy")
    wide = logged(12)
    with pytest.raises(DataError, match="toy: actions: found values up to 2"):
        cut_windows(wide._replace(actions=wide.actions * 0 + 2.0), 5, source="toy")
    with pytest.raises(ConfigError, match="length, stride"):
        cut_windows(logged(12), 1)

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_data import PLAN, TERMINATED, TRUNCATED, UNFINISHED, make
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import (
    episode_returns,
    episodes,
    sample_batch,
    take_rows,
    to_device,
    validate,
)
from jaxrl_rollouts.offline.data.transitions import file_sha256

ENDINGS = st.sampled_from([TERMINATED, TRUNCATED])
PLANS = st.lists(st.tuples(st.integers(1, 6), ENDINGS), min_size=1, max_size=6)


@given(PLANS, st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_episodes_recover_any_plan(plan, tail):
    whole = [*plan, (tail, UNFINISHED)] if tail else plan
    rows = make(whole)
    parts = episodes(rows)
    assert parts.lengths.tolist() == [length for length, _ in whole]
    assert parts.terminated.tolist() == [ending == TERMINATED for _, ending in whole]
    assert parts.unfinished.tolist() == [ending == UNFINISHED for _, ending in whole]
    assert not parts.unfinished[:-1].any()
    for start, end in zip(parts.starts, parts.ends, strict=True):
        assert len(np.unique(rows.observations[start:end, 0])) == 1


def test_both_flags_count_as_terminated():
    rows = make([(2, TERMINATED), (2, TRUNCATED)])
    both = rows._replace(truncations=rows.truncations | rows.terminations)
    assert episodes(both).terminated.tolist() == [True, False]
    assert episodes(both).truncated.tolist() == [False, True]
    none = take_rows(make(PLAN), np.zeros(0, np.int64))
    assert len(episodes(none).starts) == len(episodes(none).ends) == 0
    assert episode_returns(none).shape == (0,)


def test_discounted_returns_begin_anew_with_every_episode():
    rows = make(PLAN)
    parts = episodes(rows)
    sums = [
        sum(0.9**t * float(reward) for t, reward in enumerate(rows.rewards[a:b]))
        for a, b in zip(*parts[:2], strict=True)
    ]
    np.testing.assert_allclose(episode_returns(rows, 0.9), sums, rtol=1e-12)
    none = take_rows(rows, np.zeros(0, np.int64))
    assert episode_returns(none, 0.9).shape == (0,)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda r: {"observations": r.observations.astype(np.float64)}, "observations"),
        (lambda r: {"actions": r.actions[:, 0]}, "actions"),
        (lambda r: {"rewards": r.rewards[:-1]}, "rewards"),
        (lambda r: {"rewards": np.where(np.arange(19) == 3, np.nan, r.rewards)}, "rewards"),
        (lambda r: {"terminations": r.terminations.astype(np.float32)}, "terminations"),
        (lambda r: {"truncations": r.truncations[:, None]}, "truncations"),
        (lambda r: {"next_observations": r.next_observations[:, :-1]}, "next_observations"),
        (lambda r: {"actions": r.actions * 0 + np.float32(1.01)}, "actions"),
        (lambda r: {"actions": r.actions[:, :0]}, "actions"),
        (lambda r: {"observations": r.observations[:0]}, "observations"),
        (lambda r: {"observations": np.float32(0)}, "observations"),
    ],
)
def test_validate_names_the_array(change, key):
    rows = make(PLAN)
    with pytest.raises(DataError) as caught:
        validate(rows._replace(**change(rows)), "somewhere")
    assert caught.value.key == key and str(caught.value).startswith(f"somewhere: {key}: ")
    assert "\n" not in str(caught.value)


def test_action_limit_and_tolerance():
    rows = make(PLAN)
    rounded = rows._replace(actions=np.full_like(rows.actions, 1 + 1e-6))
    validate(rounded)
    with pytest.raises(DataError, match="actions"):
        validate(rounded, action_tolerance=0.0)
    wide = rows._replace(actions=np.full_like(rows.actions, -2))
    validate(wide, action_limit=2.0)
    validate(wide, action_limit=None)
    with pytest.raises(ConfigError, match="action_limit"):
        validate(wide, action_limit=-1.0)


def test_device_rows_keep_their_bits():
    rows = make(PLAN)
    device = to_device(rows)
    for host, moved in zip(rows, device, strict=True):
        assert isinstance(moved, jax.Array) and moved.dtype == host.dtype
        np.testing.assert_array_equal(host, moved)


def test_batches_are_whole_rows_drawn_uniformly():
    rows = to_device(make([(10, TRUNCATED)]))
    draw = jax.jit(sample_batch, static_argnums=2)
    batch = draw(rows, jax.random.key(0), 4000)
    steps = np.asarray(batch.observations[:, 1]).astype(int)
    for drawn, source in zip(batch, rows, strict=True):
        np.testing.assert_array_equal(drawn, np.asarray(source)[steps])
    counts = np.bincount(steps, minlength=10)
    assert counts.min() > 300 and counts.max() < 500  # 400 expected, sd 19
    again = draw(rows, jax.random.key(0), 4000)
    np.testing.assert_array_equal(batch.rewards, again.rewards)
    other = draw(rows, jax.random.key(1), 4000)
    assert (batch.rewards != other.rewards).any()


def test_sampling_refuses_empty():
    rows = to_device(make(PLAN))
    with pytest.raises(ValueError, match="batch"):
        sample_batch(rows, jax.random.key(0), 0)
    with pytest.raises(ValueError, match="rows"):
        sample_batch(jax.tree.map(lambda x: jnp.zeros((0, *x.shape[1:])), rows), keys(), 1)


def keys() -> jax.Array:
    return jax.random.key(0)


def test_digests(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    assert file_sha256(file) == hashlib.sha256(b"abc").hexdigest()
    before = file_sha256(tmp_path)
    file.rename(tmp_path / "b")
    assert file_sha256(tmp_path) != before

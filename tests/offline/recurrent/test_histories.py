"""Histories: timesteps of a dataset, moments in it, and rollouts that go on from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.recurrent.histories import (
    burn_in,
    draw,
    log_histories,
    remember,
    resume,
)
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig, make_memory
from jaxrl_rollouts.offline.recurrent.timesteps import from_trajectory, join
from jaxrl_rollouts.rollouts import Model, rollout, step_result

S, A = 2, 1
LENGTHS = (4, 2, 5)  # the first ends by itself, the second is cut, the third stops in the middle


def dataset() -> Transitions:
    """State `[episode, time]`, action `10 * episode + time`, reward a tenth of it."""
    rows = [(e, t, t == n - 1) for e, n in enumerate(LENGTHS) for t in range(n)]
    e, t, last = map(np.array, zip(*rows, strict=True))
    s = np.stack([e, t], 1).astype(np.float32)
    a = (10.0 * e + t).astype(np.float32)
    following = s + np.array([0, 1], np.float32)
    return Transitions(s, a[:, None], a / 10, following, last & (e == 0), last & (e == 1))


def test_tokens_show_the_last_action_and_reward() -> None:
    logged = log_histories(dataset())
    seen, timesteps = np.asarray(logged.timesteps.observations), logged.timesteps
    assert seen.shape == (sum(LENGTHS) + 3, S + A + 1) and logged.longest == 5
    np.testing.assert_array_equal(logged.times, [*range(5), *range(3), *range(6)])
    np.testing.assert_array_equal(np.flatnonzero(logged.last), [4, 7, 13])
    np.testing.assert_allclose(seen[5:8], [[1, 0, 0, 0], [1, 1, 10, 1], [1, 2, 11, 1.1]])
    np.testing.assert_allclose(timesteps.actions[:5, 0], [0, 1, 2, 3, 0])
    np.testing.assert_allclose(timesteps.rewards[8:], [2, 2.1, 2.2, 2.3, 2.4, 0], rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(timesteps.terminations), [3])
    # What stops in the middle is cut: a value would follow.
    np.testing.assert_array_equal(np.flatnonzero(timesteps.truncations), [6, 12])
    assert timesteps.real.all()


def test_long_episodes_are_cut_at_the_limit() -> None:
    logged = log_histories(dataset(), limit=3)
    np.testing.assert_array_equal(logged.times, [*range(4), *range(3), *range(4)])
    np.testing.assert_allclose(logged.timesteps.observations[3], [0, 3, 2, 0.2])
    np.testing.assert_array_equal(np.flatnonzero(logged.timesteps.truncations), [2, 5, 9])
    assert not logged.timesteps.terminations.any()


def test_moments_are_uniform_over_all_timesteps() -> None:
    logged = log_histories(dataset())
    drawn = jax.jit(draw, static_argnums=(2, 3))(logged, jax.random.key(0), 7000, 5)
    which = np.asarray(drawn.now[:, 0] * 10 + drawn.now[:, 1], int)
    values, counts = np.unique(which, return_counts=True)
    assert len(values) == 14
    np.testing.assert_allclose(counts / 7000, 1 / 14, atol=0.015)
    np.testing.assert_allclose(drawn.finished.mean(), 3 / 14, atol=0.02)
    np.testing.assert_array_equal(drawn.lengths, drawn.now[:, 1])
    head = np.asarray(drawn.head.observations)
    for k in range(50):
        n = int(drawn.lengths[k])
        np.testing.assert_array_equal(head[k, :n, 0], drawn.now[k, 0])
        np.testing.assert_array_equal(head[k, :n, 1], np.arange(n))
        assert not head[k, n:].any() and not np.asarray(drawn.head.real)[k, n:].any()


def test_what_does_not_fit_is_left_out_at_the_beginning() -> None:
    drawn = draw(log_histories(dataset()), jax.random.key(1), 200, 2)
    late = np.flatnonzero(np.asarray(drawn.now[:, 1]) == 4)
    np.testing.assert_array_equal(drawn.lengths[late], 2)
    np.testing.assert_array_equal(drawn.head.observations[late][:, :, 1], [[2, 3]] * len(late))


@pytest.mark.parametrize("kind", ["lru", "lstm", "none"])
def test_a_warm_memory_has_seen_its_head(kind: str) -> None:
    memory = make_memory(MemoryConfig(kind, width=8, state=4, layers=1), S + A + 1)  # type: ignore[arg-type]
    params = jax.jit(memory.init)(jax.random.key(0))
    drawn = draw(log_histories(dataset()), jax.random.key(2), 12, 5)
    found = jax.jit(lambda p, h, n: burn_in(memory, p, h, n))(params, drawn.head, drawn.lengths)
    step = jax.jit(memory.step)
    assert 0 in drawn.lengths and drawn.lengths.max() > 2
    for k in range(12):
        carry = memory.start(1)
        for t in range(int(drawn.lengths[k])):
            _, carry = step(params, carry, drawn.head.observations[k, t : t + 1])
        jax.tree.map(
            lambda a, b, k=k: np.testing.assert_allclose(a[k], b[0], atol=1e-5), found, carry
        )


def drift(params: None, key: jax.Array, state: jax.Array, action: jax.Array, member: None):
    following = state + jnp.array([0.0, 1.0])
    return following, step_result(len(state), reward=action[:, 0] / 10)


def test_a_rollout_goes_on_where_the_dataset_stopped() -> None:
    """With the data's own dynamics and actions the continuation is what the data say."""
    logged = log_histories(dataset())
    drawn = draw(logged, jax.random.key(3), 40, 5)
    model = remember(Model(drift))
    policy = lambda p, key, seen, m: (10.0 * seen[:, :1] + seen[:, 1:2], m)  # noqa: E731
    start = resume(drawn, A)
    np.testing.assert_array_equal(model.observe(start), drawn.now)
    rolled = rollout(model, None, start, jax.random.key(0), horizon=3, policy=policy)
    tail, lengths = from_trajectory(rolled, model.observe(rolled.state))
    timesteps, lengths = join(drawn.head, drawn.lengths, tail, lengths)
    np.testing.assert_array_equal(lengths, drawn.lengths + 4)
    for k in range(40):
        n, e = int(lengths[k]), float(drawn.now[k, 0])
        seen = np.asarray(timesteps.observations[k, :n])
        time = np.arange(n)
        acted = np.where(time > 0, 10 * e + time - 1, 0.0)
        want = np.stack([np.full(n, e), time, acted, acted / 10], 1)
        np.testing.assert_allclose(seen, want, rtol=1e-5)
        real = np.asarray(timesteps.real[k, :n])
        np.testing.assert_array_equal(real, time < int(drawn.lengths[k]))


def test_an_empty_dataset_has_no_histories() -> None:
    empty = Transitions(*(np.asarray(x)[:0] for x in dataset()))
    with pytest.raises(DataError, match="nothing.hdf5: rows: found 0"):
        log_histories(empty, source="nothing.hdf5")

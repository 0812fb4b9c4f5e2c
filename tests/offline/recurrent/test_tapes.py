"""The timestep buffer against a plain queue of episodes, and tapes cut from it."""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.offline.recurrent.tapes import Tape, TapeBuffer, weighted_mean
from jaxrl_rollouts.offline.recurrent.timesteps import (
    Timestep,
    from_trajectory,
    join,
    timestep_shapes,
    with_last,
)
from jaxrl_rollouts.rollouts import Model, rollout, step_result

CAPACITY, EPISODES, N, T = 23, 5, 3, 6
TOKEN = {
    "episode": jax.ShapeDtypeStruct((), jnp.int32),
    "x": jax.ShapeDtypeStruct((2,), jnp.float32),
}
add = jax.jit(tapes.add)
sample = jax.jit(tapes.sample, static_argnames=("length", "weighting"))


def block(first: int, lengths: list[int]) -> dict:
    """Episodes numbered from `first`; entry `t` of each is `(number, t)`."""
    number = np.arange(first, first + N, dtype=np.int32)[:, None].repeat(T, 1)
    x = np.stack([number, np.arange(T)[None].repeat(N, 0)], -1).astype(np.float32)
    return {"episode": number, "x": x}


def filled(blocks: list[list[int]]) -> tuple[TapeBuffer, deque]:
    """The buffer, and the episodes (number, length) it should hold, oldest first."""
    buffer, queue = tapes.create(TOKEN, CAPACITY, EPISODES, tape_length=8), deque()
    for i, lengths in enumerate(blocks):
        buffer = add(buffer, block(N * i, lengths), jnp.asarray(lengths))
        fresh = [(N * i + j, n) for j, n in enumerate(lengths) if n]
        while queue and (
            sum(n for _, n in [*queue, *fresh]) > CAPACITY or len(queue) + len(fresh) > EPISODES
        ):
            queue.popleft()
        queue.extend(fresh)
    return buffer, queue


def held(buffer: TapeBuffer) -> list[np.ndarray]:
    """Every episode in the buffer as `[length, 2]` rows of (number, time), oldest first."""
    rows, found = np.asarray(buffer.timesteps["x"]), []
    for i in range(int(buffer.count)):
        entry = (int(buffer.first) + i) % EPISODES
        place = int(buffer.begins[entry]) + np.arange(int(buffer.lengths[entry]))
        found.append(rows[place % CAPACITY])
    return found


blocks = st.lists(st.lists(st.integers(0, T), min_size=N, max_size=N), max_size=8)


@given(blocks=blocks)
def test_the_ring_is_a_queue_of_whole_episodes(blocks: list[list[int]]) -> None:
    buffer, queue = filled(blocks)
    found = held(buffer)
    assert len(found) == len(queue) and int(buffer.used) == sum(n for _, n in queue)
    for rows, (number, length) in zip(found, queue, strict=True):
        want = np.stack([np.full(length, number), np.arange(length)], 1)
        np.testing.assert_array_equal(rows, want)


@given(blocks=blocks, seed=st.integers(0, 1000), weighting=st.sampled_from(("episode", "timestep")))
def test_tapes_are_whole_episodes_but_for_the_last(
    blocks: list[list[int]], seed: int, weighting: str
) -> None:
    buffer, queue = filled(blocks)
    tape: Tape = sample(buffer, jax.random.key(seed), length=20, weighting=weighting)
    rows = np.asarray(tape.timesteps["x"])
    if not queue:
        assert np.isnan(rows).all() and tape.mask.all()
        return
    starts = np.flatnonzero(tape.starts)
    assert starts[0] == 0
    parts = np.split(rows, starts[1:])
    for i, part in enumerate(parts):
        length = dict(queue)[int(part[0, 0])]
        assert (part[:, 0] == part[0, 0]).all()
        np.testing.assert_array_equal(part[:, 1], np.arange(len(part)))
        assert len(part) == length or (i == len(parts) - 1 and len(part) < length)
    np.testing.assert_array_equal(tape.timesteps["episode"], rows[:, 0])
    same = np.append(rows[1:, 1] == rows[:-1, 1] + 1, False) & ~np.append(tape.starts[1:], False)
    np.testing.assert_array_equal(tape.mask, same)


def test_both_weightings_have_their_frequencies() -> None:
    buffer, _ = filled([[1, 6, 3]])
    keys = jax.random.split(jax.random.key(0), 3000)
    for weighting, want in (("episode", [1, 1, 1]), ("timestep", [1, 6, 3])):
        first = jax.vmap(lambda k, w=weighting: sample(buffer, k, length=8, weighting=w))(keys)
        share = np.bincount(np.asarray(first.timesteps["episode"][:, 0]), minlength=3) / 3000
        np.testing.assert_allclose(share, np.array(want) / sum(want), atol=0.03)


@given(blocks=blocks, seed=st.integers(0, 1000))
def test_transitions_are_pairs_within_episodes(blocks: list[list[int]], seed: int) -> None:
    buffer, queue = filled(blocks)
    tape: Tape = sample(buffer, jax.random.key(seed), length=20, weighting="transition")
    pairs = np.asarray(tape.timesteps["x"]).reshape(10, 2, -1)
    if all(length == 1 for _, length in queue):
        assert np.isnan(pairs).all() and tape.mask.all()
        return
    np.testing.assert_array_equal(tape.starts, [True, False] * 10)
    np.testing.assert_array_equal(tape.mask, tape.starts)
    for now, following in pairs:
        number, place = (int(x) for x in now)
        assert dict(queue)[number] > place + 1
        np.testing.assert_array_equal(following, [number, place + 1])


def test_every_transition_is_as_likely_as_another() -> None:
    buffer, _ = filled([[2, 6, 1], [0, 4, 0]])
    keys = jax.random.split(jax.random.key(0), 900)
    drawn = jax.vmap(lambda k: sample(buffer, k, length=20, weighting="transition"))(keys)
    firsts = np.asarray(drawn.timesteps["x"])[:, ::2].reshape(-1, 2)
    rows, counts = np.unique(firsts, axis=0, return_counts=True)
    assert len(rows) == 1 + 5 + 3, "the episode of one timestep has none"
    np.testing.assert_allclose(counts / len(firsts), 1 / 9, atol=0.015)


def test_rings_side_by_side_are_rings() -> None:
    lengths = jnp.array([[2, 3, 0], [6, 6, 6]])
    one = tapes.create(TOKEN, CAPACITY, EPISODES, tape_length=8)
    both = jax.vmap(lambda n: tapes.add(tapes.add(one, block(0, []), n), block(3, []), n))(lengths)
    for i in range(2):
        alone = add(add(one, block(0, []), lengths[i]), block(3, []), lengths[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), both, alone)


def test_bytes_are_predicted_to_the_byte() -> None:
    timestep = timestep_shapes(4, jax.ShapeDtypeStruct((), jnp.int32))
    buffer = tapes.create(timestep, 1000, 30, tape_length=100)
    assert tapes.bytes_of(timestep, 1000, 30) == sum(x.nbytes for x in jax.tree.leaves(buffer))
    assert tapes.bytes_of(timestep, 1000, 30) == 1000 * (16 + 4 + 4 + 3) + 64 * 4


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ConfigError, match="capacity: found 50, expected at least one tape of 100"):
        tapes.create(TOKEN, 50, 5, tape_length=100)
    for change in ({"tape_length": 1}, {"episodes": 0}, {"capacity": 2**31}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            tapes.create(TOKEN, **{"capacity": 50, "episodes": 5, "tape_length": 10, **change})
    small = tapes.create(TOKEN, 17, EPISODES, tape_length=8)
    with pytest.raises(ConfigError, match="at least 3 episodes of 6 timesteps"):
        tapes.add(small, block(0, []), jnp.ones(3, int))
    with pytest.raises(ConfigError, match="episodes: found 2"):
        tapes.add(tapes.create(TOKEN, 18, 2, tape_length=8), block(0, []), jnp.ones(3, int))


def test_weighted_means() -> None:
    values = jnp.array([1.0, 2.0, 6.0, jnp.nan, 5.0])
    mask = jnp.array([True, True, True, False, True])
    real = jnp.array([True, False, False, True, False])
    np.testing.assert_allclose(weighted_mean(values, mask, real, 0.1), 0.1 * 1 + 0.9 * 13 / 3)
    np.testing.assert_allclose(weighted_mean(values, mask & ~real, real, 0.1), 0.9 * 13 / 3)
    slope = jax.grad(lambda v: weighted_mean(v, mask, real, 0.1))(values)
    np.testing.assert_allclose(slope, [0.1, 0.3, 0.3, 0, 0.3], rtol=1e-6)


def count_down(params: None, key: jax.Array, state: jax.Array, action: jax.Array, member: None):
    following = state - 1.0
    out = step_result(len(state), reward=action, terminated=following[:, 0] == 0)
    return following, out


def test_trajectories_become_tokens_with_a_last_look() -> None:
    start = jnp.array([[2.0], [9.0]])
    policy = lambda p, key, s, m: (10.0 * s[:, 0], m)  # noqa: E731
    rolled = rollout(Model(count_down), None, start, jax.random.key(0), horizon=4, policy=policy)
    timesteps, lengths = from_trajectory(rolled, rolled.state, real=True)
    np.testing.assert_array_equal(lengths, [3, 5])
    np.testing.assert_array_equal(
        timesteps.observations[..., 0], [[2, 1, 0, 0, 0], [9, 8, 7, 6, 5]]
    )
    np.testing.assert_array_equal(timesteps.actions, [[20, 10, 0, 0, 0], [90, 80, 70, 60, 0]])
    np.testing.assert_array_equal(timesteps.actions, timesteps.rewards)
    np.testing.assert_array_equal(timesteps.terminations, [[0, 1, 0, 0, 0], [0] * 5])
    np.testing.assert_array_equal(timesteps.truncations, [[0] * 5, [0, 0, 0, 1, 0]])
    np.testing.assert_array_equal(timesteps.real, [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])


def some_timesteps(value: float, longest: int, flag: bool) -> Timestep:
    shape = jnp.full((2, longest), value) + jnp.arange(longest)
    no = jnp.zeros((2, longest), bool)
    return Timestep(shape[..., None], shape, shape, no, no, no | flag)


def test_prefixes_and_tails_are_joined_without_a_gap() -> None:
    head, tail = some_timesteps(10.0, 4, True), some_timesteps(50.0, 3, False)
    joined, lengths = jax.jit(join)(head, jnp.array([3, 0]), tail, jnp.array([2, 3]))
    np.testing.assert_array_equal(lengths, [5, 3])
    want = [[10, 11, 12, 50, 51, 0, 0], [50, 51, 52, 0, 0, 0, 0]]
    np.testing.assert_array_equal(joined.rewards, want)
    np.testing.assert_array_equal(joined.observations[..., 0], want)
    np.testing.assert_array_equal(joined.real[0], [1, 1, 1, 0, 0, 0, 0])
    ended, lengths = jax.jit(with_last)(joined, lengths, jnp.array([[7.0], [8.0]]))
    np.testing.assert_array_equal(lengths, [6, 4])
    assert float(ended.observations[0, 5, 0]) == 7.0 and float(ended.observations[1, 3, 0]) == 8.0

"""The endless T-maze, step by step, and which memories overwrite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_memory_rewriting import (
    RewritingConfig,
    expert_walks,
    make_rewriting,
    success,
)
from helpers_t_maze import MazeConfig, MazeState, make_t_maze

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig

SMALL = MazeConfig(corridors=2, length=3, delay=0.01)


def states(position: list[int], cue: list[int], corridor: list[int], time: int = 0) -> MazeState:
    count = len(position)
    rows = (position, [3] * count, cue, corridor, [time] * count)
    return MazeState(*(jnp.array(x, jnp.int32) for x in rows))


def one_step(state: MazeState, action: list[int], config: MazeConfig = SMALL) -> tuple:
    model = make_t_maze(config).model
    return model.step(None, jax.random.key(1), state, jnp.array(action, jnp.int32), None)


def test_in_a_corridor_only_forward_leads_on() -> None:
    following, out = one_step(states([0, 1, 2, 2], [1, 2, 1, 2], [0, 0, 1, 1]), [0, 1, 2, 0])
    np.testing.assert_array_equal(following.position, [1, 1, 2, 3])
    np.testing.assert_array_equal(following.corridor, [0, 0, 1, 1])
    np.testing.assert_array_equal(following.cue, [1, 2, 1, 2])
    np.testing.assert_allclose(out.reward, -0.01)
    assert not out.terminated.any() and not out.truncated.any()


def test_at_a_junction_the_turn_has_to_match_the_last_cue() -> None:
    before = states([3, 3, 3, 3, 3], [1, 1, 2, 2, 2], [0, 0, 0, 1, 1])
    following, out = one_step(before, [1, 2, 0, 2, 1])
    np.testing.assert_allclose(out.reward, [1.0, -1.0, -0.01, 1.0, -1.0])
    np.testing.assert_array_equal(out.terminated, [False, True, False, True, True])
    np.testing.assert_array_equal(following.corridor, [1, 0, 0, 2, 1])
    np.testing.assert_array_equal(following.position, [0, 3, 3, 0, 3])


def test_the_cue_is_seen_at_the_mouth_only() -> None:
    seen = make_t_maze(SMALL).model.observe(states([0, 0, 1, 3], [1, 2, 2, 1], [0, 1, 0, 0]))
    np.testing.assert_array_equal(seen, [[-1, 0, 1], [1, 0, 1], [0, 0, 1], [0, 1, 1]])


def test_time_is_limited() -> None:
    assert SMALL.horizon == 2 * 4 + 10
    _, out = one_step(states([1, 3], [1, 2], [0, 1], time=17), [1, 2])
    np.testing.assert_array_equal(out.truncated, [True, False])
    np.testing.assert_array_equal(out.terminated, [False, True])  # the last turn was in time


def test_cues_and_lengths_are_drawn_anew_for_every_corridor() -> None:
    config = MazeConfig(corridors=3, length=4, lengths="uniform")
    maze = make_t_maze(config)
    start = maze.start(jax.random.key(0), 4000)
    state = start._replace(position=start.length)
    following, _ = jax.jit(maze.model.step)(None, jax.random.key(1), state, state.cue, None)
    for one in (start, following):
        share = np.bincount(np.asarray(one.length), minlength=5) / 4000
        np.testing.assert_allclose(share, [0, 0.25, 0.25, 0.25, 0.25], atol=0.03)
        np.testing.assert_allclose((np.asarray(one.cue) == 1).mean(), 0.5, atol=0.03)
    assert abs(np.corrcoef(start.cue, following.cue)[0, 1]) < 0.05
    assert (np.asarray(make_t_maze(SMALL).start(jax.random.key(0), 9).length) == 3).all()


def test_the_expert_walks_every_chain_the_shortest_way() -> None:
    config = MazeConfig(corridors=3, length=4, lengths="uniform")
    walked = jax.jit(lambda k: expert_walks(make_t_maze(config), config, k, 64))(jax.random.key(0))
    assert (walked.state.corridor == 3).all()
    observations, actions = map(np.asarray, walked.steps)
    valid, lengths = np.asarray(walked.valid), np.asarray(walked.lengths)
    np.testing.assert_array_equal((actions > 0).sum(0), 3)
    np.testing.assert_array_equal(lengths, valid.sum(0))
    for row in range(64):  # each turn is the last cue seen
        cue = 0.0
        for t in range(lengths[row]):
            cue = observations[t, row, 0] or cue
            assert actions[t, row] == (0 if observations[t, row, 1] == 0 else (cue + 3) / 2)


def trained(kind: str, corridors: int, seeds: int = 2):
    maze = MazeConfig(corridors=corridors, length=3, lengths="uniform")
    memory = MemoryConfig(kind, width=16, state=16, layers=1)  # type: ignore[arg-type]
    config = RewritingConfig(memory, (16,), maze, learning_rate=1e-2, per_iteration=60)
    run = make_rewriting(config)
    keys = jax.random.split(jax.random.key(0), seeds)
    return run, train(run.update, run.init, keys, iterations=5, chunk=5, stage="a")


def walked(run, params, corridors: int) -> np.ndarray:
    config = MazeConfig(corridors=corridors, length=3, lengths="uniform")
    key = jax.random.key(7)
    return np.asarray(jax.vmap(lambda p: success(run.network, p, config, key, 200))(params))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in ("lru", "gru")]
)
def test_recurrent_memories_overwrite_the_cue_also_in_longer_chains(kind: str) -> None:
    run, found = trained(kind, 3)
    assert (walked(run, found.state.params, 3) > 0.95).all()
    assert (walked(run, found.state.params, 6) > 0.9).all()


def test_without_memory_every_junction_is_a_coin() -> None:
    run, found = trained("none", 1)
    share = walked(run, found.state.params, 1)
    assert (np.abs(share - 0.5) < 0.15).all() and (walked(run, found.state.params, 4) < 0.2).all()


def test_sizes_of_mazes_and_walks_are_checked() -> None:
    for config in (MazeConfig(corridors=0), MazeConfig(length=0)):
        with pytest.raises(ConfigError, match="at least 1"):
            make_t_maze(config)
    with pytest.raises(ConfigError, match="walks"):
        make_rewriting(RewritingConfig(walks=0))

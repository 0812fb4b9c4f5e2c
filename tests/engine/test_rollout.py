"""The rollout against stepping by hand, how rows end, and what a state may be."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.rollouts import (
    Members,
    Model,
    Step,
    Trajectory,
    draw_members,
    rollout,
    step_result,
)

BATCH, HORIZON = 7, 11
NO_LIMITS = {"noise": 0.5, "fall": np.inf, "leave": np.inf}


def wander(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
    """A noisy linear system: falls above `fall`, leaves below `-leave`, is lost where |x_1|."""
    x = 0.9 * state + params["noise"] * jax.random.normal(key, state.shape)
    x = x if action is None else x + action
    x = x if member is None else x + 0.1 * member[:, None]
    return x, step_result(
        len(x),
        reward=x.sum(-1),
        terminated=x[:, 0] > params["fall"],
        truncated=x[:, 0] < -params["leave"],
        uncertainty=jnp.abs(x[:, 1]),
    )


def remember(params: Any, key: Any, observation: Any, memory: Any) -> tuple:
    """A recurrent stochastic policy: memory sums what it has seen."""
    memory = memory + observation
    return jnp.tanh(params * memory) + 0.1 * jax.random.normal(key, memory.shape), memory


MODEL = Model(wander)
ELITES = jnp.array([4, 0, 2], jnp.int32)


@functools.partial(jax.jit, static_argnames=("horizon", "early_exit", "per", "stop"))
def roll(
    params: Any,
    start: Any,
    key: Any,
    threshold: Any,
    *,
    horizon: int = HORIZON,
    early_exit: int | None = None,
    per: Any = "step",
    stop: bool = True,
) -> Trajectory:
    return rollout(
        MODEL,
        params,
        start,
        key,
        horizon=horizon,
        policy=remember,
        policy_params=0.3,
        memory=jnp.zeros_like(start),
        members=Members(ELITES, per),
        threshold=threshold,
        early_exit=early_exit,
        stop_at_termination=stop,
    )


def by_hand(
    params: Any,
    start: Any,
    key: Any,
    threshold: float,
    *,
    horizon: int = HORIZON,
    per: str = "step",
    stop: bool = True,
) -> tuple:
    """The same rollout one step at a time, the bookkeeping row by row in Python."""
    member_key, key = jax.random.split(key)
    fixed = draw_members(Members(ELITES), member_key, len(start))
    state, memory, alive = np.array(start), np.zeros_like(start), [True] * len(start)
    steps = []
    for t in range(horizon):
        policy_key, step_key, draw_key = jax.random.split(jax.random.fold_in(key, t), 3)
        action, thought = map(np.asarray, remember(0.3, policy_key, state, memory))
        member = (
            fixed if per == "trajectory" else draw_members(Members(ELITES), draw_key, len(start))
        )
        following, out = wander(params, step_key, state, action, member)
        following, out = np.asarray(following), jax.tree.map(np.asarray, out)
        rows = []
        for i in range(len(start)):
            fell = bool(out.terminated[i])
            cut = bool(out.truncated[i]) or out.uncertainty[i] > threshold or t == horizon - 1
            row = Step(
                state[i].copy(),
                action[i],
                out.reward[i],
                following[i].copy(),
                np.bool_(fell),
                np.bool_(cut and not fell),
                out.uncertainty[i],
                np.asarray(member[i]),
                np.True_,
            )
            rows.append(row if alive[i] else jax.tree.map(np.zeros_like, row))
            if alive[i]:
                state[i], memory[i] = following[i], thought[i]
                alive[i] = not (cut or (fell and stop))
        steps.append(jax.tree.map(lambda *leaves: np.stack(leaves), *rows))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *steps), state, memory


def assert_close(left: Any, right: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), left, right)


def assert_equal(left: Any, right: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, left, right)


def start_of(seed: int) -> Any:
    return jax.random.normal(jax.random.key(seed + 1000), (BATCH, 2))


SEEDS = st.integers(0, 2**31 - 1)
LIMITS = st.sampled_from([0.5, 1.5, 3.0, np.inf])


@given(
    seed=SEEDS,
    fall=LIMITS,
    leave=LIMITS,
    threshold=LIMITS,
    stop=st.booleans(),
    per=st.sampled_from(["step", "trajectory"]),
)
def test_a_rollout_is_single_steps_in_a_row(
    seed: int, fall: float, leave: float, threshold: float, per: str, stop: bool
) -> None:
    params = {"noise": 0.5, "fall": fall, "leave": leave}
    args = (params, start_of(seed), jax.random.key(seed), threshold)
    got = roll(*args, per=per, stop=stop)
    steps, state, memory = by_hand(*args, per=per, stop=stop)
    assert_close(got.steps, steps)
    assert_close((got.state, got.memory), (state, memory))
    np.testing.assert_array_equal(got.valid, steps.valid)
    np.testing.assert_array_equal(got.lengths, steps.valid.sum(0))


@given(seed=SEEDS, fall=LIMITS, threshold=LIMITS, chunk=st.sampled_from([1, 4, 50]))
def test_early_exit_changes_no_bit(seed: int, fall: float, threshold: float, chunk: int) -> None:
    params = {"noise": 0.5, "fall": fall, "leave": np.inf}
    args = (params, start_of(seed), jax.random.key(seed), threshold)
    assert_equal(roll(*args, early_exit=chunk), roll(*args))


@given(
    batch=st.sampled_from([1, 5, 12, 40]),
    count=st.sampled_from([1, 3, 7]),
    seed=SEEDS,
    shuffle=st.booleans(),
)
def test_draws_are_balanced(batch: int, count: int, seed: int, shuffle: bool) -> None:
    choices = jnp.arange(count, dtype=jnp.int32) * 3
    drawn = draw_members(Members(choices, shuffle=shuffle), jax.random.key(seed), batch)
    assert drawn.shape == (batch,) and set(drawn.tolist()) <= set(choices.tolist())
    assert np.bincount(drawn).max() <= -(-batch // count)
    if not shuffle:
        np.testing.assert_array_equal(drawn, 3 * (np.arange(batch) % count))


def test_tied_members() -> None:
    members = Members(ELITES, per="trajectory", shuffle=False)
    got = rollout(MODEL, NO_LIMITS, start_of(0), jax.random.key(0), horizon=2, members=members)
    np.testing.assert_array_equal(got.steps.members[1], [4, 0, 2, 4, 0, 2, 4])


def test_vmap_over_seeds_is_a_loop_over_seeds() -> None:
    params = {"noise": 0.5, "fall": 1.0, "leave": np.inf}
    keys = jax.random.split(jax.random.key(1), 3)
    starts = jnp.stack([start_of(i) for i in range(3)])
    mapped = jax.vmap(lambda s, k: roll(params, s, k, 1.5, early_exit=4))(starts, keys)
    for i in range(3):
        one = roll(params, starts[i], keys[i], 1.5, early_exit=4)
        assert_close(jax.tree.map(lambda x, i=i: x[i], mapped), one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon: found 0"),
        ({"horizon": 3, "early_exit": 0}, "early_exit: found 0"),
        ({"horizon": 3, "members": Members(ELITES, "step", shuffle=False)}, "shuffle=False"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(MODEL, NO_LIMITS, start_of(0), jax.random.key(0), **options)


def test_early_exit_stops_computing() -> None:
    calls = []

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
        jax.debug.callback(lambda: calls.append(1))
        return state + 1, step_result(2, terminated=state + 1 >= jnp.array([2.0, 3.0]))

    result = rollout(Model(step), None, jnp.zeros(2), jax.random.key(0), horizon=50, early_exit=2)
    jax.block_until_ready(result)
    jax.effects_barrier()
    assert len(calls) == 4  # three steps until the last row ends, in chunks of two
    np.testing.assert_array_equal(result.lengths, [2, 3])
    assert result.steps.rewards.shape == (50, 2)


def scripted(
    terminated: list[int], truncated: list[int], uncertain: list[int], **options: Any
) -> Trajectory:
    """One row, five steps at most; each list names the steps at which something happens."""

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
        at = lambda times: jnp.isin(state, jnp.array(times or [-1]))  # noqa: E731
        u = at(uncertain).astype(jnp.float32)
        return state + 1, step_result(
            1, terminated=at(terminated), truncated=at(truncated), uncertainty=u
        )

    start = jnp.zeros((1,), jnp.int32)
    return rollout(Model(step), None, start, jax.random.key(0), horizon=5, **options)


@pytest.mark.parametrize(
    ("terminated", "truncated", "uncertain", "options", "length", "ending"),
    [
        ([], [], [], {}, 5, "truncated"),
        ([1], [], [], {}, 2, "terminated"),
        ([], [1], [], {}, 2, "truncated"),
        ([1], [1], [], {}, 2, "terminated"),
        ([4], [], [], {}, 5, "terminated"),
        ([], [], [2], {}, 5, "truncated"),
        ([], [], [2], {"threshold": 0.5}, 3, "truncated"),
        ([], [], [2], {"threshold": 1.0}, 5, "truncated"),  # exceeds, not reaches
        ([2], [], [2], {"threshold": 0.5}, 3, "terminated"),
        ([1], [], [], {"stop_at_termination": False}, 5, "truncated"),
        ([1, 4], [], [], {"stop_at_termination": False}, 5, "terminated"),
        ([1], [2], [], {"stop_at_termination": False}, 3, "truncated"),
    ],
)
def test_how_a_row_ends(
    terminated: list, truncated: list, uncertain: list, options: dict, length: int, ending: str
) -> None:
    got = scripted(terminated, truncated, uncertain, **options)
    assert int(got.lengths[0]) == length
    assert int(got.state[0]) == length  # the last step was taken
    final = got.steps.terminations[length - 1, 0], got.steps.truncations[length - 1, 0]
    assert tuple(map(bool, final)) == (ending == "terminated", ending == "truncated")
    assert not got.steps.truncations[: length - 1].any()
    early = np.flatnonzero(np.asarray(got.steps.terminations[: length - 1, 0]))
    assert early.tolist() == [t for t in terminated if t < length - 1]


def test_a_field_without_action() -> None:
    field = jnp.linspace(0, 1, 12).reshape(2, 6)
    model = Model(lambda p, k, u, a, m: (jnp.roll(u, p, -1), step_result(2)))
    got = rollout(
        model,
        1,
        {"u": field}["u"],
        jax.random.key(0),
        horizon=3,
        record=lambda step: step.next_observations,
    )
    np.testing.assert_array_equal(got.steps, [np.roll(field, t, -1) for t in (1, 2, 3)])
    np.testing.assert_array_equal(got.state, got.steps[-1])
    assert got.memory == () and got.lengths.tolist() == [3, 3]


def test_states_are_pytrees_and_observations_their_view() -> None:
    model = Model(
        lambda p, k, s, a, m: ({"x": s["x"] + 1.0, "n": s["n"] + 2}, step_result(3)),
        observe=lambda s: s["x"],
    )
    start = {"x": jnp.zeros((3, 1)), "n": jnp.zeros((3,), jnp.int32)}
    got = rollout(model, None, start, jax.random.key(0), horizon=4, early_exit=3)
    assert got.steps.actions is None and got.steps.members is None
    np.testing.assert_array_equal(got.steps.next_observations[:, 0, 0], [1, 2, 3, 4])
    assert got.state["n"].tolist() == [8, 8, 8]


def test_start_leaves_must_agree_on_the_batch() -> None:
    model = Model(lambda p, k, s, a, m: (s, step_result(2)))
    with pytest.raises(ValueError):
        rollout(model, None, (jnp.zeros(2), jnp.zeros(3)), jax.random.key(0), horizon=1)

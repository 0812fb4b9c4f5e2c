"""Rollouts of small scripted models: how rows end, what a state may be, when work is saved."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.rollouts import Model, Trajectory, outcome, rollout


def test_early_exit_stops_computing() -> None:
    calls = []

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
        jax.debug.callback(lambda: calls.append(1))
        return state + 1, outcome(2, terminated=state + 1 >= jnp.array([2.0, 3.0]))

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
        return state + 1, outcome(
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
    model = Model(lambda p, k, u, a, m: (jnp.roll(u, p, -1), outcome(2)))
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
        lambda p, k, s, a, m: ({"x": s["x"] + 1.0, "n": s["n"] + 2}, outcome(3)),
        observe=lambda s: s["x"],
    )
    start = {"x": jnp.zeros((3, 1)), "n": jnp.zeros((3,), jnp.int32)}
    got = rollout(model, None, start, jax.random.key(0), horizon=4, early_exit=3)
    assert got.steps.actions is None and got.steps.members is None
    np.testing.assert_array_equal(got.steps.next_observations[:, 0, 0], [1, 2, 3, 4])
    assert got.state["n"].tolist() == [8, 8, 8]


def test_a_second_call_compiles_nothing() -> None:
    traces = []

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
        traces.append(1)
        return state * params, outcome(len(state))

    once = jax.jit(lambda p, s, k: rollout(Model(step), p, s, k, horizon=6, early_exit=2))
    once(2.0, jnp.ones((3, 1)), jax.random.key(0))
    count = len(traces)
    assert once(3.0, jnp.ones((3, 1)), jax.random.key(1)).state[0, 0] == 3.0**6
    assert len(traces) == count


def test_start_leaves_must_agree_on_the_batch() -> None:
    model = Model(lambda p, k, s, a, m: (s, outcome(2)))
    with pytest.raises(ValueError):
        rollout(model, None, (jnp.zeros(2), jnp.zeros(3)), jax.random.key(0), horizon=1)

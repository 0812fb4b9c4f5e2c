"""Open-loop rollouts of models whose errors are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, WorldModelParams
from jaxrl_rollouts.offline.worlds.open_loop import (
    OpenLoop,
    open_loop,
    unchanged,
    windows,
)
from jaxrl_rollouts.rollouts import Model, step_result
from jaxrl_rollouts.scaler import Scaler, identity_scaler

S, A = 2, 1
SCALE = Scaler(jnp.zeros(S + A), jnp.array([2.0, 0.5, 1.0]))
WORLD = WorldModelParams((), SCALE, identity_scaler(S + 1))


def logged(lengths: list[int]) -> Transitions:
    """Episodes of `s' = s + a`; the first observation entry says which step of which episode."""
    rng = np.random.default_rng(0)
    parts = []
    for episode, length in enumerate(lengths):
        a = rng.uniform(-1, 1, (length, A)).astype(np.float32)
        path = 100.0 * episode + np.concatenate([np.zeros((1, A)), a.cumsum(0)])
        path = np.concatenate([path, path], -1).astype(np.float32)
        end = np.arange(length) == length - 1
        parts.append(
            (
                path[:-1],
                a,
                3.0 * a[:, 0],
                path[1:],
                end & (episode % 2 == 0),
                end & (episode % 2 == 1),
            )
        )
    return Transitions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def test_windows_stay_inside_an_episode() -> None:
    transitions = logged([4, 9, 2, 5])
    drawn = windows(transitions, 4, 200)
    assert drawn.observations.shape == (5, 200, S) and drawn.actions.shape == (4, 200, A)
    episode = np.round(np.asarray(drawn.observations[..., 0]) / 100.0)
    np.testing.assert_array_equal(episode, np.broadcast_to(episode[0], episode.shape))
    assert set(episode[0]) == {0.0, 1.0, 3.0}
    step = np.diff(np.asarray(drawn.observations), axis=0)
    np.testing.assert_allclose(step, np.broadcast_to(drawn.actions, step.shape), atol=1e-4)
    np.testing.assert_allclose(drawn.rewards, 3.0 * drawn.actions[..., 0], rtol=1e-5)
    assert len(np.unique(drawn.observations[0, :, 0])) == 1 + 6 + 2  # every start there is
    with pytest.raises(ConfigError, match="at most the longest episode, 9 steps"):
        windows(transitions, 10, 5)


def drifting(world: WorldModelParams, key: Any, s: Any, a: Any, member: Any) -> tuple:
    """Member 0 is right; member 1 drifts by 0.3 a step in both entries. Everything terminates."""
    following = s + a + 0.3 * member[:, None]
    over = jnp.ones((len(s),), bool)
    reward = 3.0 * a[:, 0] + 0.5 * member
    return following, step_result(len(s), terminated=over, reward=reward, uncertainty=s[:, 0])


def run(step: Any, length: int = 6, count: int = 8) -> tuple[OpenLoop, Any]:
    drawn = windows(logged([20, 30]), length, count)
    dynamics = Dynamics(Model(step), lambda *_: None, 2)
    return open_loop(dynamics, WORLD, drawn, jax.random.key(0)), drawn


def test_a_known_drift() -> None:
    found, drawn = run(drifting)
    assert {x.shape for x in found} == {(6, 8)}
    error = np.asarray(found.error)
    right = error[-1] < 1e-3
    assert right.sum() == 4  # one member per trajectory, each as often
    np.testing.assert_allclose(error[:, right], 0.0, atol=1e-4)
    gap = 0.3 * np.arange(1, 7)
    want = np.sqrt(((gap / 2.0) ** 2 + (gap / 0.5) ** 2) / 2)
    np.testing.assert_allclose(error[:, ~right], np.stack([want] * 4, 1), rtol=1e-3)
    bias = np.where(right, 0.0, 0.5) * np.ones((6, 1))
    np.testing.assert_allclose(found.reward_bias, bias, atol=1e-5)
    truth = np.asarray(drawn.observations)
    # The uncertainty is of the state before the step: at first the true one.
    np.testing.assert_allclose(found.uncertainty[0], truth[0, :, 0], rtol=1e-5)


def test_one_that_says_that_nothing_changes_is_off_by_how_far_rows_have_come() -> None:
    drawn = windows(logged([20, 30]), 6, 8)
    come = np.asarray(drawn.actions)[..., 0].cumsum(0)  # in both entries alike
    want = np.abs(come) * np.sqrt((1 / 2.0**2 + 1 / 0.5**2) / 2)
    found = unchanged(drawn, SCALE.std[:S])
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)

    def still(world: WorldModelParams, key: Any, s: Any, a: Any, member: Any) -> tuple:
        return s, step_result(len(s), reward=3.0 * a[:, 0], uncertainty=s[:, 0])

    np.testing.assert_allclose(run(still)[0].error, found, rtol=1e-5)


def test_what_is_lost_stays_lost() -> None:
    def breaks(world: WorldModelParams, key: Any, s: Any, a: Any, member: Any) -> tuple:
        """Member 1 becomes NaN above a bound that its own NaN no longer exceeds."""
        following = s + a + 1.0
        bad = (member == 1) & (following[:, 0] > following[:, 0].min() - 1e9)
        return jnp.where(bad[:, None], jnp.nan, following), step_result(len(s))

    found, _ = run(breaks)
    lost = np.isinf(np.asarray(found.error))
    assert lost[0].sum() == 4 and (lost == lost[0]).all()
    for field in found:
        np.testing.assert_array_equal(np.isinf(np.asarray(field)), lost)
        assert not np.isnan(np.asarray(field)).any()

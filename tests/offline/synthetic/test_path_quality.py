"""Metrics of imagined trajectories: the truth has no error, a policy's own rollouts no gap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.acrobot import EXPERT, pump, pump_gaussian, pump_policy
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import as_model, make
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.synthetic.paths import (
    DIVERGED,
    open_loop_error,
    paths_of_rollout,
    paths_of_windows,
    policy_gap,
    step_error,
)
from jaxrl_rollouts.offline.synthetic.windows import cut_windows, fit_window_layout
from jaxrl_rollouts.rollouts import rollout

KEY, B, T = jax.random.key(0), 6, 12


@pytest.fixture(scope="module")
def true_paths() -> Transitions:
    """The expert in the simulator, from all over the place."""
    high = jnp.array([3.0, 3.0, 4.0, 4.0])
    inner = jax.random.uniform(jax.random.key(1), (B, 4), minval=-high, maxval=high)
    angles = jnp.stack([f(inner[:, i]) for i in (0, 1) for f in (jnp.cos, jnp.sin)], 1)
    start = ACROBOT.set_observation(jnp.concatenate([angles, inner[:, 2:]], 1))
    played = rollout(
        as_model(ACROBOT), None, start, KEY, horizon=T, policy=pump_policy, policy_params=EXPERT
    )
    return jax.tree.map(np.asarray, paths_of_rollout(played))


def flat(paths: Transitions) -> Transitions:
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), paths)


def test_true_paths_have_no_error_and_their_own_policy_no_gap(true_paths: Transitions) -> None:
    scale = flat(true_paths)
    assert true_paths.observations.shape == (B, T, 6)
    error = step_error(ACROBOT, true_paths, scale, KEY)
    assert error.shape == (B, T) and error.max() < 1e-9
    assert open_loop_error(ACROBOT, true_paths, scale, KEY).max() < 1e-4  # float32, unstable
    gap = policy_gap(pump_gaussian, EXPERT, true_paths)
    assert gap.shape == (B, T) and float(gap.max()) < 1e-9
    other = policy_gap(pump_gaussian, EXPERT._replace(gain=-5.0), true_paths)
    wanted = np.square(2.0 * np.asarray(pump(EXPERT, true_paths.observations)))[..., 0]
    np.testing.assert_allclose(other, wanted, atol=1e-5)


def test_errors_are_squares_in_the_datas_deviations(true_paths: Transitions) -> None:
    scale = flat(true_paths)
    unit = scale.next_observations.std(0, dtype=np.float64)
    moved = true_paths.next_observations.copy()
    moved[2, 5] += 0.5 * unit  # one step, half a deviation in every entry
    moved[4, 3, 1] += 0.6 * unit[1]  # one entry of six
    error = step_error(ACROBOT, true_paths._replace(next_observations=moved), scale, KEY)
    assert error[2, 5] == pytest.approx(0.25, rel=1e-3)
    assert error[4, 3] == pytest.approx(0.36 / 6, rel=1e-3)
    error[2, 5] = error[4, 3] = 0.0
    assert error.max() < 1e-9


def test_open_loop_goes_on_from_the_first_state(true_paths: Transitions) -> None:
    """A path that jumps once is wrong once step by step, and ever after along the way."""
    rows = jax.tree.map(np.copy, true_paths)
    jump = np.float32(0.4)
    rows.observations[:, 6:, 4] += jump
    rows.next_observations[:, 5:, 4] += jump
    scale = flat(true_paths)
    along = open_loop_error(ACROBOT, rows, scale, KEY)
    wanted = (jump / scale.next_observations[:, 4].std()) ** 2 / 6
    assert along[:, :5].max() < 1e-5
    np.testing.assert_allclose(along[:, 5:], wanted, rtol=0.05)
    own = step_error(ACROBOT, rows, scale, KEY)
    np.testing.assert_allclose(own[:, 0], along[:, 0], atol=1e-7)
    np.testing.assert_allclose(own[:, 5], wanted, rtol=1e-3)
    assert own[:, :5].max() < 1e-9


def test_lost_rows_count_as_lost_and_spoil_no_others(true_paths: Transitions) -> None:
    rows = jax.tree.map(np.copy, true_paths)
    rows.observations[0, 0] = np.nan
    rows.observations[1, 4] = 1e8
    rows.next_observations[2, 3] = np.inf
    rows.next_observations[3, 3] = 1e30
    scale = flat(true_paths)
    error = step_error(ACROBOT, rows, scale, KEY)
    for where in ((0, 0), (1, 4), (2, 3), (3, 3)):
        assert error[where] == DIVERGED**2
        error[where] = 0.0
    assert error.max() < 1e-9
    along = open_loop_error(ACROBOT, rows, scale, KEY)
    assert (along[0] == DIVERGED**2).all() and along[4:].max() < 1e-4


def test_windows_become_paths(true_paths: Transitions) -> None:
    data = flat(true_paths)._replace(truncations=np.tile(np.arange(T) == T - 1, B))
    windows = cut_windows(data, 5, 1)
    layout = fit_window_layout(windows)
    paths = paths_of_windows(layout, layout.pack(windows))
    assert paths.observations.shape == (B * (T - 3), 4, 6)
    np.testing.assert_allclose(paths.next_observations[:, :-1], paths.observations[:, 1:])
    assert step_error(ACROBOT, paths, data, KEY).max() < 1e-6
    assert float(policy_gap(pump_gaussian, EXPERT, paths).max()) < 1e-4


def test_mujoco_rows_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    env = make("halfcheetah")
    monkeypatch.setattr("jaxrl_rollouts.offline.synthetic.paths.HOST_ROWS", 4)

    def policy(params: None, key: jax.Array, observation: jax.Array, memory: Any) -> tuple:
        return jnp.tanh(observation[:, :6]), memory

    played = rollout(as_model(env), None, env.reset(KEY, 3), KEY, horizon=5, policy=policy)
    paths = jax.tree.map(np.asarray, paths_of_rollout(played))
    scale = flat(paths)
    assert step_error(env, paths, scale, KEY).max() < 1e-6
    assert open_loop_error(env, paths, scale, KEY).max() < 1e-3
    wrong = paths._replace(actions=-paths.actions)
    assert step_error(env, wrong, scale, KEY).min() > 1e-4


def test_environments_whose_state_is_hidden_are_refused(true_paths: Transitions) -> None:
    hidden = ACROBOT._replace(set_observation=None)
    for measure in (step_error, open_loop_error):
        with pytest.raises(ConfigError, match="set_observation"):
            measure(hidden, true_paths, flat(true_paths), KEY)

"""Strategies of world models: where they are one and the same, and what they learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.worlds.open_loop import LoggedWindows, replay
from jaxrl_rollouts.offline.worlds.strategies import fit_strategy
from jaxrl_rollouts.rollouts import Model, rollout, step_result
from jaxrl_rollouts.strategies import Strategy, block_of, forecast

KEY = jax.random.key(1)
S, A, H, B = 2, 1, 4, 300
CONFIG = EnsembleConfig(
    members=1, elites=1, hidden_dims=(16,), weight_decay=(0.0,), batch_size=64, max_epochs=2
)


def windows(horizon: int = H) -> LoggedWindows:
    """`s' = (0.9 s_0 + a, s_1 + 0.2 s_0)`."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (horizon, B, A)).astype(np.float32)
    path: list[np.ndarray] = [rng.normal(size=(B, S)).astype(np.float32)]
    for a in actions:
        s = path[-1]
        path.append(np.stack([0.9 * s[:, 0] + a[:, 0], s[:, 1] + 0.2 * s[:, 0]], 1))
    return LoggedWindows(*map(jnp.asarray, (np.stack(path), actions, np.zeros((horizon, B)))))


def made(kind: Any, block: int, horizon: int = H) -> tuple[np.ndarray, tuple, Strategy]:
    logged, strategy = windows(horizon), Strategy(kind, block, horizon)
    check(strategy)
    heads = fit_strategy(strategy, CONFIG, logged, KEY)
    found = forecast(strategy, heads, logged.observations[0], logged.actions)
    return np.asarray(found), heads, strategy


def test_a_recursion_of_one_step_is_the_rollout() -> None:
    found, (head,), _ = made("rec", 1)
    logged = windows()

    def step(params: Any, key: Any, state: jax.Array, action: jax.Array, member: Any) -> tuple:
        return state + head(state, action), step_result(len(state))

    rolled = rollout(
        Model(step),
        (),
        logged.observations[0],
        KEY,
        horizon=H,
        policy=replay,
        policy_params=logged.actions,
        memory=jnp.zeros((B,), jnp.int32),
        stop_at_termination=False,
    )
    # Compiled in a scan there and not here, sums are rounded in another order.
    np.testing.assert_allclose(found, rolled.steps.next_observations, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("horizon", [1, H])
def test_of_one_block_all_are_the_same(horizon: int) -> None:
    """At a horizon of one step that is the one-step model."""
    rec, dir, dirrec = (made(kind, horizon, horizon)[0] for kind in ("rec", "dir", "dirrec"))
    assert rec.shape == (horizon, B, S) and np.abs(rec).max() > 0.1
    np.testing.assert_array_equal(rec, dir)
    np.testing.assert_array_equal(rec, dirrec)


def test_a_rectifier_mends_a_base_that_drifts() -> None:
    logged, strategy = windows(), Strategy("rectifier", 2, H)
    drift = 0.5 * jnp.arange(1, H + 1, dtype=jnp.float32)[:, None, None]
    base = logged.observations[1:] + drift
    heads = fit_strategy(strategy, CONFIG, logged, KEY, base)
    found = forecast(strategy, heads, logged.observations[0], logged.actions, base)
    gap = jnp.abs(found - logged.observations[1:]).mean((1, 2))
    assert (np.asarray(gap) < 0.2 * np.asarray(drift)[:, 0, 0]).all()


def test_a_dirrec_learns_from_its_own_predictions() -> None:
    _, heads, strategy = made("dirrec", 2)
    logged, none = windows(), jnp.zeros((0, B, S))
    first = block_of(strategy, 0, heads[0], logged.observations[0], logged.actions, none)
    read = heads[1].world.inputs.mean[S : 3 * S].reshape(2, S)
    np.testing.assert_allclose(read, first.mean(1), atol=1e-5)
    assert float(jnp.abs(read - logged.observations[1:3].mean(1)).max()) > 1e-3


def test_a_direct_network_learns_every_block() -> None:
    longer, logged = replace(CONFIG, max_epochs=60, lr=1e-2), windows()
    heads = fit_strategy(Strategy("dir", 2, H), longer, logged, KEY)
    found = forecast(Strategy("dir", 2, H), heads, logged.observations[0], logged.actions)
    truth = np.asarray(logged.observations)
    still = np.square(truth[1:] - truth[0]).mean((1, 2))
    assert len(heads) == 2 and (np.square(found - truth[1:]).mean((1, 2)) < 0.2 * still).all()


def test_refused() -> None:
    with pytest.raises(ConfigError, match="block: found 3, expected a divisor of the horizon, 4"):
        check(Strategy("dir", 3, H))
    with pytest.raises(ConfigError, match="windows: found 4, expected 2 steps"):
        fit_strategy(Strategy("dir", 1, 2), CONFIG, windows(), KEY)
    with pytest.raises(ConfigError, match="base: found 'none'"):
        fit_strategy(Strategy("rectifier", 2, H), CONFIG, windows(), KEY)

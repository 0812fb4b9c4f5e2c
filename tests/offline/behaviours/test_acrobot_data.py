from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.acrobot import (
    BEHAVIOUR,
    EXPERT,
    MEDIUM,
    Pump,
    Sway,
    acrobot_broad,
    acrobot_narrow,
    pump,
    pump_policy,
    sway_policy,
)
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.data import episode_returns, load
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT, energy
from jaxrl_rollouts.offline.evaluation import evaluate


def earned(params: Pump) -> float:
    played = evaluate(ACROBOT, pump_policy, params, jax.random.key(3), 128)
    return float(played.returns.mean())


def test_qualities_are_those_that_are_written_down() -> None:
    assert earned(EXPERT) == pytest.approx(-33, abs=6)
    assert earned(MEDIUM) == pytest.approx(-63, abs=6)
    assert earned(BEHAVIOUR) == pytest.approx(-79, abs=6)
    played = evaluate(ACROBOT, random_policy(1), None, jax.random.key(3), 128)
    assert float(played.returns.mean()) == pytest.approx(-193, abs=3)


def test_the_mean_action_pumps_towards_its_level() -> None:
    observation = ACROBOT.reset(jax.random.key(0), 2).observation
    observation = observation.at[:, 5].set(jnp.array([1.0, -1.0]))
    low = pump(EXPERT, observation)
    assert low[0, 0] > 0.5 and low[1, 0] < -0.5  # the sign of the speed: energy goes in
    fast = observation.at[:, 4].set(12.0)
    assert (energy(fast) > 1.2 * 19.6).all()
    np.testing.assert_array_equal(jnp.sign(pump(EXPERT, fast)), -jnp.sign(low))
    without_noise, _ = pump_policy(EXPERT, jax.random.key(0), observation, ())
    np.testing.assert_array_equal(without_noise, low)


def test_sway_is_weak_slow_and_stationary() -> None:
    memory = jax.random.normal(jax.random.key(0), (20_000,))
    action, after = sway_policy(Sway(), jax.random.key(1), jnp.zeros((20_000, 6)), memory)
    assert action.shape == (20_000, 1) and float(jnp.abs(action).max()) < 0.3
    assert float(after.std()) == pytest.approx(1.0, abs=0.02)
    assert float(jnp.corrcoef(memory, after)[0, 1]) == pytest.approx(0.9, abs=0.01)


def test_broad_gets_everywhere_and_narrow_stays_below() -> None:
    broad, narrow = acrobot_broad(jax.random.key(0)), acrobot_narrow(jax.random.key(0))
    assert broad.observations.shape == (80_000, 6) and narrow.observations.shape == (20_000, 6)
    returns = episode_returns(broad), episode_returns(narrow)
    assert len(returns[0]) == 400 and returns[0].mean() == pytest.approx(-79, abs=4)
    assert len(returns[1]) == 100 and returns[1].mean() == pytest.approx(-197, abs=1)
    assert broad.observations[:, 0].min() < -0.99  # the first link upside down
    assert narrow.observations[:, 0].min() > 0.8
    for rows, least in ((broad, 0.5), (narrow, 0.7)):  # how far the expert is from what was done
        gap = np.square(rows.actions - np.asarray(pump(EXPERT, jnp.asarray(rows.observations))))
        assert gap.mean() > least


def test_more_steps_than_one_batch_and_bad_counts() -> None:
    rows = acrobot_narrow(jax.random.key(0), 52_000)
    assert len(rows.rewards) == 52_000 and rows.truncations[199::200].all()
    with pytest.raises(ConfigError, match="whole number"):
        acrobot_narrow(jax.random.key(0), 0)


@pytest.mark.parametrize(
    ("policy", "low", "high"), [("broad", -90, -70), ("narrow", -200, -194), ("scripted", -45, -20)]
)
def test_the_command_line_collects_them(
    tmp_path: Path, policy: str, low: float, high: float
) -> None:
    path = tmp_path / "acrobot.hdf5"
    cli.main(
        [
            "data",
            "collect",
            "--out",
            str(path),
            "--env",
            "acrobot",
            "--policy",
            policy,
            "--steps",
            "20000",
        ]
    )
    dataset = load(path)
    assert dataset.environment == "acrobot"
    assert low < episode_returns(dataset.transitions).mean() < high

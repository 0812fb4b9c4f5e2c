from __future__ import annotations

from pathlib import Path

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.environments.terminations import (
    ant,
    family,
    hopper,
    inverted_double_pendulum,
    inverted_pendulum,
    never,
    termination_function,
    walker2d,
)


def apply(rule, rows: list[list[float]]) -> list[bool]:
    following = jnp.array(rows)
    return rule(jnp.zeros_like(following), jnp.zeros((len(rows), 1)), following).tolist()


def test_hopper_rule() -> None:
    good = [1.2, 0.1, 3.0, -4.0]
    rows = [
        good,
        [0.7, *good[1:]],  # height
        [1.2, 0.2, 3.0, -4.0],
        [1.2, -0.2, 3.0, -4.0],
        [1.2, 0.1, 100.0, -4.0],
        [1.2, 0.1, 3.0, -1000.0],  # all(abs(x < 100)) lets this one pass
        [1.2, 0.1, float("nan"), -4.0],
        [float("inf"), *good[1:]],
        [150.0, *good[1:]],  # the bound of 100 does not hold for the height
    ]
    assert apply(hopper, rows) == [False, *[True] * 7, False]


def test_walker_rule() -> None:
    rows = [[1.2, 0.5], [0.8, 0.5], [2.0, 0.5], [1.2, 1.0], [1.2, -1.0], [float("nan"), 0.0]]
    assert apply(walker2d, rows) == [False, True, True, True, True, True]


def test_ant_and_inverted_pendulum_rules() -> None:
    rows = [[0.5, 3.0], [0.19, 3.0], [1.01, 3.0], [0.5, float("inf")], [1.0, 0.0]]
    assert apply(ant, rows) == [False, True, True, True, False]
    rows = [[3.0, 0.1], [3.0, -0.21], [float("nan"), 0.0]]
    assert apply(inverted_pendulum, rows) == [False, True, True]
    nan = float("nan")
    rows = [[9, 0, 0, 1, 1], [9, 0, 1, 1, 0], [9, 1, -1, 0, 0], [9, 0, 0, 1, -1], [9, nan, 0, 1, 1]]
    assert apply(inverted_double_pendulum, rows) == [False, True, True, True, True]


def test_never() -> None:
    assert apply(never, [[float("nan")], [1e9]]) == [False, False]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("HalfCheetah-v4", never),
        ("halfcheetah-medium-expert-v2", never),
        ("mujoco/Hopper-v5", hopper),
        ("hopper-mixed", hopper),
        ("mujoco/walker2d/medium-v0", walker2d),
        ("Ant-v4", ant),
        ("InvertedPendulum-v4", inverted_pendulum),
        ("inverted-double-pendulum-mixed", inverted_double_pendulum),
        ("swimmer-mixed", never),
        ("Reacher-v4", never),
        ("Pusher-v4", never),
        ("gymnax/Pendulum-v1", never),
        ("plane", never),
    ],
)
def test_rules_by_environment_or_dataset_name(name: str, rule: object) -> None:
    assert termination_function(name) is rule


@pytest.mark.parametrize(
    ("name", "columns", "first"), [("Hopper-v3", 12, 1), ("walker2d-x", 18, 1), ("Ant-v5", 29, 2)]
)
def test_the_number_of_columns_selects_the_rule(name: str, columns: int, first: int) -> None:
    upright = np.zeros((2, columns), np.float32)
    upright[:, :first], upright[:, first] = 50.0, 1.0
    upright[1, first] = 0.1  # fallen
    found = termination_function(name, columns)(upright, None, upright)
    assert np.asarray(found).tolist() == [False, True]
    with pytest.raises(ConfigError, match=f"columns: found {columns + 7}, expected"):
        termination_function(name, columns + 7)


@pytest.mark.parametrize("name", ["antmaze-umaze-v2", "humanoid", "brax/hopper", "", "/"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="termination: found"):
        termination_function(name)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean hopper"):
        termination_function("hoper-medium-v2")
    assert family("Walker2d-v4") == "walker2d"


def test_hopper_rule_agrees_with_the_simulators_flags(made_hopper: Path) -> None:
    with h5py.File(made_hopper / "hopper-random.hdf5") as file:
        following, flags = file["next_observations"][()], file["terminals"][()].astype(bool)
    found = np.asarray(hopper(None, None, jnp.asarray(following)))
    np.testing.assert_array_equal(found, flags)
    assert flags.sum() > 20


@pytest.mark.parametrize(
    "name",
    [
        "Hopper-v4",
        "Walker2d-v4",
        "Ant-v4",
        "InvertedPendulum-v4",
        "InvertedDoublePendulum-v4",
        "InvertedDoublePendulum-v5",
    ],
)
def test_rules_agree_with_gymnasium(name: str) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    env = gymnasium.make(name, disable_env_checker=True).unwrapped
    env.action_space.seed(0)
    following, flags = [], []
    for episode in range(6):
        env.reset(seed=episode)
        for _ in range(150):
            observation, _, terminated, _, _ = env.step(env.action_space.sample())
            following.append(observation)
            flags.append(terminated)
            if terminated:
                break
    found = termination_function(name)(None, None, jnp.asarray(np.array(following), jnp.float32))
    np.testing.assert_array_equal(found, flags)
    assert any(flags)

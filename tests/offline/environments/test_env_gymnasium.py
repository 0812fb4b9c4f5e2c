"""Own environments: Gymnasium's on the host, registered, announced or imported by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from helpers_environments import Cart, Shapes, cart_factory  # noqa: E402

from jaxrl_rollouts import plugins  # noqa: E402
from jaxrl_rollouts.errors import ConfigError  # noqa: E402
from jaxrl_rollouts.offline.collect import collect, random_policy  # noqa: E402
from jaxrl_rollouts.offline.environments import (  # noqa: E402
    Environment,
    from_gymnasium,
    make,
    register_environment,
    registry,
)
from jaxrl_rollouts.offline.environments.base import row_keys  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402


@pytest.fixture(scope="module")
def cart() -> Iterator[Environment]:
    gymnasium.register("test/Cart-v0", Cart, max_episode_steps=20)
    yield from_gymnasium("test/Cart-v0")
    del gymnasium.registry["test/Cart-v0"]


def test_facts(cart: Environment) -> None:
    assert (cart.observation_size, cart.action_size, cart.max_episode_steps) == (2, 1, 20)
    assert cart.name == "gymnasium/test/Cart-v0" and cart.host and "gymnasium" in cart.version
    np.testing.assert_allclose([cart.action_low, cart.action_high], [[-0.4], [0.4]])
    assert make("test/Cart-v0").name == make("gymnasium/test/Cart-v0").name == cart.name
    assert make("test/Cart-v0?max_episode_steps=7").max_episode_steps == 7


def test_steps_equal_gymnasiums(cart: Environment) -> None:
    key, theirs = jax.random.key(3), gymnasium.make("test/Cart-v0")
    rows = collect(cart, random_policy(1), None, key, episodes=3)
    reset_key, _ = jax.random.split(key)
    seeds = [int(jax.random.bits(k, (), np.uint32)) for k in row_keys(reset_key, 3)]
    row = 0
    for seed in seeds:
        observation, _ = theirs.reset(seed=seed)
        over = False
        while not over:
            np.testing.assert_array_equal(rows.observations[row], np.float32(observation))
            own = np.float32(0.4) * rows.actions[row]
            observation, reward, terminated, truncated, _ = theirs.step(own)
            np.testing.assert_allclose(rows.next_observations[row], observation, rtol=1e-6)
            np.testing.assert_allclose(rows.rewards[row], reward, rtol=1e-5)
            flags = (rows.terminations[row], rows.truncations[row])
            assert flags == (terminated, truncated and not terminated)
            over, row = terminated or truncated, row + 1
    assert row == len(rows.rewards) and np.abs(rows.actions).max() > 0.5


def test_an_environment_that_cuts_episodes_itself() -> None:
    env = from_gymnasium(cart_factory, max_episode_steps=40)
    rows = collect(env, lambda p, k, o, m: (0 * o[:, :1], m), None, jax.random.key(0), episodes=2)
    lengths = np.diff(np.flatnonzero(rows.truncations | rows.terminations), prepend=-1)
    assert env.name == "Cart" and lengths.max() == 15


def test_an_instance_is_copied() -> None:
    env = from_gymnasium(Cart(), max_episode_steps=5)
    rows = collect(env, random_policy(1), None, jax.random.key(0), episodes=3)
    assert len(np.unique(rows.observations[:, 0])) > 10


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (lambda: Shapes(actions=gymnasium.spaces.Discrete(3)), "Discrete actions.*only vectors"),
        (
            lambda: Shapes(observations=gymnasium.spaces.Dict({"a": Cart.observation_space})),
            "Dict observations.*FlattenObservation",
        ),
        (
            lambda: Shapes(observations=gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)),
            r"observations of shape \(8, 8, 3\)",
        ),
        (
            lambda: Shapes(actions=gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)),
            "unbounded actions",
        ),
        (Cart, r"no time limit.*Cart\?max_episode_steps"),
        ("CartPole-v1", "Discrete actions"),
        ("Cartpole-v2", "did you mean CartPole-v1"),
    ],
)
def test_what_is_not_supported_is_said(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        from_gymnasium(env)
    assert "\n" not in str(caught.value)


def test_registered_and_imported_ones_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTERED", {})
    monkeypatch.setattr(plugins, "_TRUSTED", set())
    register_environment("cart", cart_factory)
    register_environment("mine", lambda: PENDULUM._replace(max_episode_steps=9))
    with pytest.raises(ConfigError, match="no code to import but what you name.*--trust helpers_"):
        make("helpers_environments:cart_factory")
    plugins.trust("helpers_environments:cart_factory")
    for name in ("cart", "helpers_environments:cart_factory"):
        env = make(name)
        assert env.name == name and env.max_episode_steps == 15 and env.observation_size == 2
    assert make("mine").name == "mine" and make("mine").max_episode_steps == 9
    with pytest.raises(ConfigError, match="did you mean cart"):
        make("cort")
    with pytest.raises(ConfigError, match="a name besides"):
        register_environment("hopper", cart_factory)
    plugins.trust("helpers_environments:nothing", "no_such_module:make")
    for wrong in ("helpers_environments:nothing", "no_such_module:make", "../evil:make", "a:b:c"):
        with pytest.raises(ConfigError, match="package.module:factory"):
            make(wrong)


QUESTION = """
from jaxrl_rollouts.offline.environments import make
env = make("guest-pendulum")
assert env.name == "guest-pendulum" and env.observation_size == 3, env
"""


def test_another_package_brings_an_environment(tmp_path: Path) -> None:
    info = tmp_path / "guest-1.0.dist-info"
    info.mkdir()
    (tmp_path / "guest.py").write_text("def factory():\n    return 'Pendulum-v1'\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    entries = "[jaxrl_rollouts.environments]\nguest-pendulum = guest:factory\n"
    (info / "entry_points.txt").write_text(entries)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", QUESTION]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_mujoco_says_nothing_of_what_a_user_cannot_change(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    code = "from jaxrl_rollouts.offline.environments import make; make('HalfCheetah-v2')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "" and done.stderr == "" and not list(tmp_path.iterdir())

from __future__ import annotations

import builtins
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.offline.environments import make, true_model
from jaxrl_rollouts.offline.environments.base import rescale, row_keys
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.environments.plane import PLANE


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pendulum", PENDULUM),
        ("Pendulum-v1", PENDULUM),
        ("pendulum-mixed", PENDULUM),
        ("plane", PLANE),
    ],
)
def test_embedded_environments_by_name(name: str, expected: Any) -> None:
    assert make(name) is expected


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("pendulm", "pendulum"),
        ("halfcheeta", "halfcheetah"),
        ("gymnax/Pendulum-v2", "gymnax/Pendulum-v1"),
        ("brax/half_cheetah", "brax/halfcheetah"),
        ("mujoco/HalfCheeta-v4", "mujoco/HalfCheetah-v4"),
        ("mujoco/hoper", "mujoco/Hopper-v4"),
        ("MountainCarContinous-v0", "MountainCarContinuous-v0"),
        ("Hoper-v4", "Hopper-v4"),
        ("Hopper-v9", "Hopper-v"),  # never another version without a word
        ("Pendulum-v2", "Pendulum-v1"),
    ],
)
def test_unknown_names_give_close_ones(name: str, close: str) -> None:
    for package in ("gymnax", "brax", "mujoco"):
        if name.startswith(package):
            pytest.importorskip(package)
    with pytest.raises(ConfigError, match=f"did you mean .*{close}") as caught:
        make(name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="expected no options"):
        make("pendulum", backend="spring")
    with pytest.raises(ConfigError, match="the option backend"):
        make("brax/halfcheetah?engine=mjx")
    with pytest.raises(ConfigError, match="one of spring"):
        make("brax/halfcheetah?backend=bullet")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("gymnax/Pendulum-v1", "gymnax", "gymnax"),
        ("brax/halfcheetah", "brax", "brax"),
        ("hopper-medium-v2", "gymnasium", "mujoco"),
        ("Hopper-v4", "gymnasium", "mujoco"),
    ],
)
def test_missing_packages_say_what_to_install(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(module: str, *arguments: Any, **keywords: Any) -> Any:
        if module.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(module, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=rf"package {package}.*\[{extra}\]"):
        make(name)


def test_groups_of_rows_start_as_their_own_keys_do() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    together = PENDULUM.reset(keys, 12).observation
    alone = jnp.concatenate([PENDULUM.reset(key, 4).observation for key in keys])
    np.testing.assert_array_equal(together, alone)
    with pytest.raises(ValueError, match="multiple of 3"):
        row_keys(keys, 10)


def test_actions_map_to_the_bounds() -> None:
    low, high = jnp.array([-2.0, 0.0]), jnp.array([2.0, 10.0])
    actions = jnp.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [-9.0, 9.0]])
    expected = [[-2, 0], [0, 5], [2, 10], [-2, 10]]
    np.testing.assert_allclose(rescale(actions, low, high), expected)
    tiny = jnp.array([[1e-8, -1e-8]])  # unit bounds change no bit
    np.testing.assert_array_equal(rescale(tiny, -jnp.ones(2), jnp.ones(2)), tiny)


def test_true_model_needs_a_state_from_the_observation() -> None:
    with pytest.raises(ConfigError, match="determines the state"):
        true_model(PENDULUM._replace(set_observation=None))

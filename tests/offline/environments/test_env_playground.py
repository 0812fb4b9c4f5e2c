"""MuJoCo Playground's environments beside its own program; skipped where it is not installed."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.playground_ import policy_sees

HERE = importlib.util.find_spec("mujoco_playground") is not None
installed = pytest.mark.skipif(not HERE, reason="needs the extra playground")


@pytest.mark.skipif(HERE, reason="the extra is installed")
def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"jaxrl-rollouts\[playground\]"):
        make("playground/CartpoleBalance")


def test_a_policy_sees_the_state_and_not_what_is_the_critics() -> None:
    seen = {"state": jnp.ones((2, 3)), "privileged_state": jnp.zeros((2, 9))}
    assert policy_sees(seen).shape == (2, 3) and policy_sees(jnp.ones((4, 5))).shape == (4, 5)


@installed
def test_steps_are_playgrounds_own() -> None:
    from mujoco_playground import registry

    env = make("playground/CartpoleBalance")
    assert (env.observation_size, env.action_size, env.max_episode_steps) == (5, 1, 1000)
    assert "playground" in env.version and "mjx jax" in env.version and not env.host
    state = env.reset(jax.random.key(0), 3)
    action = jnp.array([[0.5], [-1.0], [7.0]])
    following, out = jax.jit(env.step)(jax.random.key(1), state, action)
    own = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    want = jax.jit(jax.vmap(own.step))(state.inner, jnp.clip(action, -1.0, 1.0))
    np.testing.assert_allclose(env.observe(following), want.obs, atol=1e-5)
    np.testing.assert_allclose(out.reward, want.reward, atol=1e-5)
    assert not out.terminated.any() and not out.truncated.any()
    late = state._replace(time=jnp.full(3, 999, jnp.int32))
    assert jax.jit(env.step)(jax.random.key(1), late, action)[1].truncated.all()


@installed
def test_unknown_names_and_engines_are_refused() -> None:
    with pytest.raises(ConfigError, match="CheetahRun"):
        make("playground/CheetahRum")
    with pytest.raises(ConfigError, match="impl: found 'c', expected one of jax, warp"):
        make("playground/CheetahRun?impl=c")

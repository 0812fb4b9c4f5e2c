"""Embedded environments played by programs that know Gymnasium only."""

from __future__ import annotations

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from jaxrl_rollouts.errors import ConfigError  # noqa: E402
from jaxrl_rollouts.offline.environments import as_gymnasium  # noqa: E402
from jaxrl_rollouts.offline.environments.drawings import painter  # noqa: E402
from jaxrl_rollouts.offline.environments.ks_control import KS_CONTROL  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.offline.environments.registry import EMBEDDED  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    as_gymnasium.register()


def test_every_embedded_environment_is_registered() -> None:
    for name, env in EMBEDDED.items():
        spec = gymnasium.spec(f"jaxrl_rollouts/{name}-v0")
        assert spec.max_episode_steps == env.max_episode_steps
    as_gymnasium.register()  # again, which changes nothing
    with pytest.raises(ConfigError, match="ks_control"):
        as_gymnasium.to_gymnasium("ks_contrl")


@pytest.mark.filterwarnings("ignore:.*Box:UserWarning")
def test_gymnasiums_own_checks_pass() -> None:
    from gymnasium.utils.env_checker import check_env

    made = gymnasium.make("jaxrl_rollouts/ks_control-v0", render_mode="rgb_array")
    check_env(made.unwrapped)


def test_it_draws_the_episode_so_far() -> None:
    env = gymnasium.make("jaxrl_rollouts/ks_control-v0", render_mode="rgb_array")
    paint, action = painter("ks_control"), np.ones(4, np.float32)
    for seed in (3, 4):  # the second episode is drawn without the first
        seen = [env.reset(seed=seed)[0], env.step(action)[0], env.step(action)[0]]
        np.testing.assert_array_equal(env.render(), paint(seen))
    assert as_gymnasium.to_gymnasium("plane").render() is None
    with pytest.raises(ConfigError, match="render_mode: found 'human'"):
        as_gymnasium.to_gymnasium("plane", "human")


def test_it_plays_the_environment_itself() -> None:
    env = gymnasium.make("jaxrl_rollouts/ks_control-v0")
    first, _ = env.reset(seed=3)
    assert first.shape == (64,) and first.dtype == np.float32
    action = np.array([0.5, -1.0, 0.2, 1.0], np.float32)
    seen, reward, terminated, truncated, _ = env.step(action)
    state = KS_CONTROL.set_observation(first[None])
    following, out = KS_CONTROL.step(jax.random.key(0), state, action[None])
    np.testing.assert_allclose(seen, following.observation[0], atol=1e-5)
    assert reward == pytest.approx(float(out.reward[0]), rel=1e-4)
    assert not terminated and not truncated
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(again, first)
    later, _ = env.reset()
    assert np.abs(later - first).mean() > 0.1


def test_actions_are_in_own_units_and_episodes_end() -> None:
    env = gymnasium.make("jaxrl_rollouts/pendulum-v0")
    assert env.action_space.low.tolist() == [-2.0] and env.action_space.high.tolist() == [2.0]
    first, _ = env.reset(seed=0)
    seen, *_ = env.step(np.array([1.0], np.float32))
    state = PENDULUM.set_observation(first[None])
    following, _ = PENDULUM.step(jax.random.key(0), state, np.array([[0.5]], np.float32))
    np.testing.assert_allclose(seen, following.observation[0], atol=1e-5)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(199)]
    assert ends[-1] == (False, True) and not any(any(end) for end in ends[:-1])

"""Gymnasium environments whose state can be kept: seed and actions lead to it again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from jaxrl_rollouts import offline  # noqa: E402
from jaxrl_rollouts.errors import ConfigError, SimulatorError  # noqa: E402
from jaxrl_rollouts.offline.environments import from_gymnasium  # noqa: E402
from jaxrl_rollouts.offline.environments.base import with_columns  # noqa: E402
from jaxrl_rollouts.offline.environments.offset import shifted  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.offline.environments.replayed import keeping  # noqa: E402
from jaxrl_rollouts.offline.online.learner import OnlineConfig  # noqa: E402

LIMIT = 6
ONLINE = OnlineConfig(
    environments=2, rows=20, warmup=20, update_ratio=0.1, batch_size=8, looks=1, episodes=2
)


class Tank(gymnasium.Env):
    """The level rises with what is pumped; the start and the noise are drawn."""

    observation_space = gymnasium.spaces.Dict(
        {name: gymnasium.spaces.Box(-9.0, 9.0, (1,)) for name in ("level", "pump")}
    )
    action_space = gymnasium.spaces.Box(0.0, 2.0, (1,))

    def __init__(self, lucky: bool = False) -> None:
        self.lucky = np.random.default_rng() if lucky else None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.level, self.pump = float(self.np_random.uniform(-1, 1)), 0.0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.pump = float(action[0])
        noise = self.lucky or self.np_random
        self.level += 0.1 * self.pump + 0.01 * float(noise.normal())
        return self.seen(), -abs(self.level), self.level > 1.1, False, {}

    def seen(self) -> dict[str, np.ndarray]:
        return {name: np.array([getattr(self, name)], np.float32) for name in ("level", "pump")}


def host(**options: Any) -> Any:
    return from_gymnasium(lambda: Tank(**options), name="tank", max_episode_steps=LIMIT)


ACTIONS = np.random.default_rng(0).uniform(-1, 1, (LIMIT, 3, 1)).astype(np.float32)


@pytest.mark.parametrize(
    "shown",
    [
        lambda env: env,
        lambda env: with_columns(env, env.columns[::-1]),
        lambda env: shifted(env, np.array([0.5, -2.0])),
        lambda env: shifted(with_columns(env, env.columns[::-1]), np.array([0.5, -2.0])),
    ],
    ids=["plain", "columns", "offset", "both"],
)
def test_it_steps_as_the_environment_on_the_host(shown: Any) -> None:
    there = shown(host())
    env = keeping(there)
    assert not env.host and env.columns == there.columns and env.offset == there.offset
    key = jax.random.key(0)
    state, other = env.reset(key, 3), there.reset(key, 3)
    for action in ACTIONS[:4]:
        np.testing.assert_array_equal(env.observe(state), there.observe(other))
        state, out = env.step(key, state, jnp.asarray(action))
        other, expected = there.step(key, other, jnp.asarray(action))
        jax.tree.map(np.testing.assert_array_equal, out, expected)
    np.testing.assert_array_equal(env.observe(state), there.observe(other))


def test_any_state_may_be_stepped_again() -> None:
    env, key = keeping(host()), jax.random.key(1)
    states = [env.reset(key, 3)]
    for action in ACTIONS[:3]:
        states.append(env.step(key, states[-1], jnp.asarray(action))[0])
    for at in (1, 0, 2):
        again = env.step(key, states[at], jnp.asarray(ACTIONS[at]))[0]
        jax.tree.map(np.testing.assert_array_equal, again, states[at + 1])


def test_seeds_are_an_axis_and_ended_rows_begin_again() -> None:
    env, keys = keeping(host()), jax.random.split(jax.random.key(2), 2)
    state = jax.vmap(lambda key: env.reset(key, 3))(keys)
    alone = env.reset(keys[1], 3)
    np.testing.assert_array_equal(state.observation[1], alone.observation)
    stepped, _ = jax.vmap(lambda s: env.step(keys[0], s, jnp.asarray(ACTIONS[0])))(state)
    expected, _ = env.step(keys[0], alone, jnp.asarray(ACTIONS[0]))
    np.testing.assert_array_equal(stepped.observation[1], expected.observation)
    assert env.restart is not None
    begun = env.restart(keys[0], expected, jnp.array([True, False, False]))
    fresh = env.reset(keys[0], 3)
    np.testing.assert_array_equal(begun.observation[0], fresh.observation[0])
    np.testing.assert_array_equal(begun.observation[1:], expected.observation[1:])
    assert begun.time.tolist() == [0, 1, 1]


def test_the_time_limit_cuts_and_an_end_ends() -> None:
    env, key = keeping(host()), jax.random.key(3)
    state = env.reset(key, 3)
    low, high = -jnp.ones((3, 1)), jnp.ones((3, 1))
    for _ in range(LIMIT):
        state, out = env.step(key, state, low)
    assert out.truncated.all() and not out.terminated.any()
    state = env.reset(key, 3)
    ended = np.zeros(3, bool)
    for _ in range(LIMIT):
        state, out = env.step(key, state, high)
        ended |= np.asarray(out.terminated)
    level = np.asarray(env.reset(key, 3).observation[:, 0])
    clear = np.abs(level + 0.1) > 0.15  # 6 steps of 0.2 lead from -0.1 to the end, but for noise
    assert clear.any() and (ended == (level > -0.1))[clear].all()


def test_steps_that_do_not_follow_from_seed_and_actions_are_told() -> None:
    env, key = keeping(host(lucky=True)), jax.random.key(4)
    first = env.reset(key, 3)
    second, _ = env.step(key, first, jnp.asarray(ACTIONS[0]))
    env.step(key, second, jnp.asarray(ACTIONS[1]))
    with pytest.raises(Exception, match="another observation"):
        jax.block_until_ready(env.step(key, second, jnp.asarray(ACTIONS[1])))
    assert env.failure is not None and isinstance(env.failure(), SimulatorError)


def test_what_runs_in_jax_stays_and_what_cannot_be_copied_is_refused() -> None:
    assert keeping(PENDULUM) is PENDULUM
    with pytest.raises(ConfigError, match="kept in no checkpoint"):
        keeping(host()._replace(another=None))


def test_training_in_one_of_ones_own() -> None:
    outcome = offline.train_online(
        host(), offline.Sac(hidden_dims=(8,)), 40, online=ONLINE, seeds=2
    )
    again = offline.train_online(host(), offline.Sac(hidden_dims=(8,)), 40, online=ONLINE, seeds=2)
    np.testing.assert_array_equal(outcome.returns, again.returns)
    seen = np.asarray(outcome.trained.state.replay.rows[0].observations)
    assert seen.shape[:2] == (2, 40) and len(np.unique(seen[..., 0])) > 40
    assert outcome.env.name == "tank" and outcome.policy(0)(np.zeros(2)).shape == (1,)

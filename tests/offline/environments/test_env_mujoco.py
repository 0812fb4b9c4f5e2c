from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

from jaxrl_rollouts.errors import ConfigError  # noqa: E402
from jaxrl_rollouts.offline.collect import collect, random_policy  # noqa: E402
from jaxrl_rollouts.offline.environments import Environment, as_model, make, true_model  # noqa: E402
from jaxrl_rollouts.offline.environments.mujoco import VELOCITY_LIMIT  # noqa: E402
from jaxrl_rollouts.offline.environments.terminations import termination_function  # noqa: E402
from jaxrl_rollouts.rollouts import Trajectory, rollout  # noqa: E402


@pytest.fixture(scope="module")
def cheetah() -> Environment:
    return make("mujoco/HalfCheetah-v4")


@pytest.fixture(scope="module")
def hopper() -> Environment:
    return make("hopper-medium-v2")


def play(
    env: Environment, batch: int, horizon: int, policy: Any = None, **keywords: Any
) -> Trajectory:
    policy = policy or random_policy(env.action_size)

    @jax.jit
    def run(key: jax.Array) -> Trajectory:
        start = env.reset(key, batch)
        return rollout(as_model(env), None, start, key, horizon=horizon, policy=policy, **keywords)

    return run(jax.random.key(0))


def reference(name: str) -> Any:
    return gymnasium.make(name, disable_env_checker=True).unwrapped


@pytest.mark.parametrize("name", ["HalfCheetah-v4", "Humanoid-v4"])  # Humanoid: bounds of 0.4
def test_steps_equal_gymnasiums(name: str) -> None:
    env, theirs = make(f"mujoco/{name}"), reference(name)
    steps = play(env, 3, 40, early_exit=10).steps
    seeds = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(
        jax.random.split(jax.random.key(0), 3)
    )
    for row, seed in enumerate(seeds.tolist()):
        observation, _ = theirs.reset(seed=seed)
        for t in range(40):
            if not (valid := bool(np.any(steps.observations[t, row]))):
                break
            np.testing.assert_array_equal(steps.observations[t, row], np.float32(observation))
            action = np.asarray(steps.actions[t, row]) * theirs.action_space.high
            observation, reward, terminated, _, _ = theirs.step(action)
            np.testing.assert_array_equal(steps.next_observations[t, row], np.float32(observation))
            np.testing.assert_allclose(steps.rewards[t, row], reward, rtol=1e-5)
            assert terminated == bool(steps.terminations[t, row])
        assert t > 5 and (valid or steps.terminations[:, row].any())


def test_facts(cheetah: Environment, hopper: Environment) -> None:
    assert (cheetah.observation_size, cheetah.action_size) == (17, 6)
    assert cheetah.max_episode_steps == hopper.max_episode_steps == 1000
    assert hopper.name == "mujoco/Hopper-v4" and hopper.host
    assert "gymnasium" in hopper.version and "mujoco" in hopper.version
    assert hopper.set_observation is None  # its observation clips velocities


def test_rows_that_fell_stay_and_are_not_stepped(hopper: Environment) -> None:
    def fall(params: None, key: jax.Array, observation: jax.Array, memory: tuple) -> tuple:
        return jnp.ones((observation.shape[0], 3)), memory

    played = play(hopper, 12, 1000, fall, early_exit=50)
    steps, last, rows = played.steps, played.lengths - 1, jnp.arange(12)
    assert (played.lengths < 200).all() and len(set(played.lengths.tolist())) > 1
    assert steps.terminations[last, rows].all() and not steps.truncations.any()
    np.testing.assert_array_equal(played.state.observation, steps.next_observations[last, rows])
    np.testing.assert_array_equal(played.state.time, played.lengths)
    valid = np.asarray(played.valid)
    known = hopper.termination(steps.observations, steps.actions, steps.next_observations)
    np.testing.assert_array_equal(np.asarray(known)[valid], np.asarray(steps.terminations)[valid])


def test_time_limit_truncates(cheetah: Environment) -> None:
    played = play(cheetah, 2, 1010, early_exit=100, record=lambda s: (s.truncations, s.rewards))
    truncations, rewards = played.steps
    assert played.lengths.tolist() == [1000, 1000]
    assert truncations[999].all() and truncations.sum() == 2
    assert -600 < rewards.sum(0).mean() < 0  # random: about -280


def test_same_key_same_data_and_another_key_other_data(hopper: Environment) -> None:
    policy = random_policy(3)
    one, again, other = (
        collect(hopper, policy, None, jax.random.key(k), steps=300) for k in (5, 5, 6)
    )
    for left, right in zip(one, again, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.observations, other.observations)


def test_batches_may_grow_and_shrink(cheetah: Environment) -> None:
    for batch in (2, 7, 1, 5):
        played = play(cheetah, batch, 3)
        assert played.steps.next_observations.shape == (3, batch, 17)
        assert len(np.unique(played.steps.next_observations[..., 0])) == 3 * batch


def test_reset_to_restores_a_simulator_state(hopper: Environment) -> None:
    theirs = reference("Hopper-v4")
    theirs.reset(seed=0)
    for _ in range(5):
        theirs.step(np.full(3, 0.3, np.float32))
    qpos, qvel = (jnp.asarray(x, jnp.float32)[None] for x in (theirs.data.qpos, theirs.data.qvel))
    state = hopper.reset_to(jnp.tile(qpos, (2, 1)), jnp.tile(qvel, (2, 1)))
    np.testing.assert_allclose(state.observation[1], theirs._get_obs(), atol=1e-6)
    action = jnp.full((2, 3), -0.2)
    state, out = hopper.step(jax.random.key(0), state, action)
    observation, reward, *_ = theirs.step(np.full(3, -0.2, np.float32))
    np.testing.assert_allclose(state.observation[0], observation, atol=1e-3)
    np.testing.assert_allclose(out.reward, reward, atol=1e-2)


@pytest.mark.parametrize("name", ["HalfCheetah-v4", "InvertedPendulum-v4", "Swimmer-v4", "Ant-v4"])
def test_true_model_follows_the_environment(name: str) -> None:
    env = make(f"mujoco/{name}")
    steps = play(env, 4, 10).steps
    rolled = rollout(
        true_model(env),
        None,
        steps.observations[0],
        jax.random.key(0),
        horizon=10,
        policy=lambda p, k, o, t: (steps.actions[t[0]], t + 1),
        memory=jnp.zeros(4, jnp.int32),
    )
    np.testing.assert_allclose(
        rolled.steps.next_observations, steps.next_observations, atol=0.05, rtol=0.02
    )
    np.testing.assert_allclose(
        rolled.steps.next_observations[0], steps.next_observations[0], atol=1e-3
    )


def test_an_old_state_is_refused(cheetah: Environment) -> None:
    action = jnp.zeros((2, 6))
    first = cheetah.reset(jax.random.key(0), 2)
    cheetah.step(jax.random.key(0), first, action)
    with pytest.raises(Exception, match="already stepped"):
        jax.block_until_ready(cheetah.step(jax.random.key(0), first, action))
    old = cheetah.reset(jax.random.key(0), 2)
    cheetah.reset(jax.random.key(0), 2)
    with pytest.raises(Exception, match="already stepped, or reset since"):
        jax.block_until_ready(cheetah.step(jax.random.key(0), old, action))


def test_a_fall_may_end_nothing() -> None:
    env = make("Hopper-v4?terminate_when_unhealthy=false")
    assert make(env.name).name == env.name == "mujoco/Hopper-v4?terminate_when_unhealthy=false"
    assert "a fall ends nothing" in env.version
    played = play(env, 3, 200, record=lambda s: (s.terminations, s.rewards, s.next_observations))
    terminations, rewards, following = played.steps
    assert not terminations.any() and played.lengths.tolist() == [200] * 3
    lying = np.asarray(termination_function("hopper")(None, None, following))
    assert lying[-1].all() and np.abs(rewards[-50:].mean()) < 0.5 < rewards[:5].mean()
    assert not env.termination(following, rewards, following).any()
    assert make("Hopper-v4?terminate_when_unhealthy=True").name == "mujoco/Hopper-v4"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Hopper-v4?terminate_when_unhealthy=no", "found 'no', expected true or false"),
        ("HalfCheetah-v4?terminate_when_unhealthy=false", "terminate_when_unhealthy.*no options"),
        ("Hopper-v4?healthy=false", "expected the option terminate_when_unhealthy"),
    ],
)
def test_other_options_are_refused(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        make(name)


@pytest.mark.parametrize("name", ["Hopper-v3", "Walker2d-v3"])
def test_neorls_columns_are_played_with_the_position_first(name: str) -> None:
    plain, placed = make(name), make(f"{name}?exclude_current_positions_from_observation=false")
    assert make(placed.name).name == placed.name
    assert placed.observation_size == plain.observation_size + 1
    assert "positions along the floor" in placed.version
    seen = [
        play(env, 3, 60, record=lambda s: (s.terminations, s.next_observations, s.rewards))
        for env in (plain, placed)
    ]
    (ends, following, rewards), (ends_too, with_x, rewards_too) = (one.steps for one in seen)
    assert ends.any() and np.array_equal(ends, ends_too)
    np.testing.assert_allclose(rewards, rewards_too, rtol=1e-5)
    np.testing.assert_allclose(following, with_x[..., 1:], rtol=1e-5, atol=1e-6)
    valid = np.asarray(seen[1].valid)
    found = np.asarray(placed.termination(with_x, rewards, with_x))
    np.testing.assert_array_equal(found[valid], np.asarray(ends_too)[valid])


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_d4rls_versions_are_played_in_the_one_there_is_and_that_is_said(version: str) -> None:
    env = make(f"Hopper-{version}")
    assert env.name == "mujoco/Hopper-v4"
    assert f"Hopper-v4 in place of Hopper-{version}" in env.version


@pytest.mark.parametrize("name", ["Ant-v2", "mujoco/Ant-v3", "ant-medium-replay-v2"])
def test_d4rls_ant_has_its_contact_forces(name: str) -> None:
    env = make(name)
    assert env.observation_size == 111 and make(env.name).observation_size == 111
    assert "Ant-v4 with contact forces in place of Ant-v" in env.version
    assert make("ant").observation_size == make("Ant-v4").observation_size == 27
    assert env.set_observation is None  # forces cannot be set
    theirs = gymnasium.make("Ant-v4", use_contact_forces=True).unwrapped
    state = env.reset(jax.random.key(3), 1)
    seed = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint32))(
        jax.random.split(jax.random.key(3), 1)
    )[0]
    observation, _ = theirs.reset(seed=int(seed))
    np.testing.assert_array_equal(state.observation[0], np.float32(observation))


def test_a_transition_is_a_pure_function_that_may_be_vmapped() -> None:
    """It is what a reset to the observation and one step give, and disturbs no episode."""
    env, rng = make("mujoco/HalfCheetah-v4"), np.random.default_rng(0)
    s = jnp.asarray(0.3 * rng.normal(size=(2, 3, 17)), jnp.float32)
    a = jnp.asarray(rng.uniform(-1.5, 1.5, (2, 3, 6)), jnp.float32)
    assert env.transition is not None and env.set_observation is not None
    following, reward, terminated = jax.jit(jax.vmap(env.transition))(s, a)
    assert following.shape == (2, 3, 17) and reward.shape == (2, 3) and not terminated.any()
    for seed in range(2):
        begun = env.set_observation(s[seed])
        env.transition(s[1 - seed], a[seed])  # in between, and of no consequence
        state, out = env.step(jax.random.key(0), begun, a[seed])
        np.testing.assert_allclose(env.observe(state), following[seed], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(out.reward, reward[seed], rtol=1e-4, atol=1e-4)
    again = jax.jit(jax.vmap(env.transition))(s[::-1], a[::-1])[0][::-1]
    np.testing.assert_array_equal(again, following)
    assert make("mujoco/Hopper-v4").transition is None  # its observation clips velocities


@pytest.mark.parametrize("name", ["Hopper-v4", "Walker2d-v4"])
def test_velocities_that_are_not_shown_begin_at_the_limit(name: str) -> None:
    """All other states are known, so their steps are the simulator's own; only who asks for it
    gets such a model."""
    env, rng = make(f"mujoco/{name}"), np.random.default_rng(0)
    assert env.set_observation is None and env.reset_to is not None
    with pytest.raises(ConfigError, match="set_observation"):
        true_model(env)
    model, speeds = true_model(env, clipped=True), (env.observation_size + 1) // 2
    qpos = 0.1 * rng.normal(size=(6, speeds))
    qpos[:, 1] += 1.25  # it stands
    qvel = rng.normal(size=(6, speeds))
    qvel[3:, 3] = 14.0
    action = jnp.asarray(rng.uniform(-1, 1, (6, env.action_size)), jnp.float32)

    def stepped(qvel: np.ndarray) -> tuple[jax.Array, Any, jax.Array]:
        begun = env.reset_to(jnp.asarray(qpos), jnp.asarray(qvel))
        state, out = env.step(jax.random.key(0), begun, action)
        return env.observe(begun), out, env.observe(state)

    seen, out, following = stepped(qvel)
    told, _ = model.step(None, jax.random.key(0), seen, action, None)
    np.testing.assert_allclose(told[:3], following[:3], rtol=1e-4, atol=1e-4)
    assert np.abs(told[3:] - following[3:]).max() > 0.01  # 14 is not shown
    _, out, following = stepped(qvel.clip(-VELOCITY_LIMIT, VELOCITY_LIMIT))
    told, told_out = model.step(None, jax.random.key(0), seen, action, None)
    np.testing.assert_allclose(told, following, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(told_out.reward, out.reward, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(told_out.terminated, out.terminated)


def test_seeds_side_by_side_in_the_simulator_as_their_model() -> None:
    env = make("mujoco/HalfCheetah-v4")
    model = true_model(env)
    s = jnp.asarray(0.1 * np.random.default_rng(1).normal(size=(2, 4, 17)), jnp.float32)

    def policy(params: Any, key: Any, observation: jax.Array, memory: Any) -> tuple:
        return jnp.tanh(observation[:, :6] * params), memory

    def roll(start: jax.Array, gain: jax.Array, key: jax.Array) -> Any:
        return rollout(
            model, None, start, key, horizon=3, policy=policy, policy_params=gain
        ).steps.next_observations

    gains, keys = jnp.array([0.5, 3.0]), jax.random.split(jax.random.key(0), 2)
    both = jax.jit(jax.vmap(roll))(s, gains, keys)
    for seed in range(2):
        alone = jax.jit(roll)(s[seed], gains[seed], keys[seed])
        np.testing.assert_allclose(both[seed], alone, rtol=1e-4, atol=1e-5)

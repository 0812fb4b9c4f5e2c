from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.environments import acrobot as module
from jaxrl_rollouts.offline.environments import make, true_model
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT, TOP, advance, energy


def poses(count: int = 64, speed: float = 2.0) -> jax.Array:
    """`[count, 4]` random angles and speeds."""
    high = jnp.array([jnp.pi, jnp.pi, speed, speed])
    return jax.random.uniform(jax.random.key(0), (count, 4), minval=-high, maxval=high)


def observed(inner: jax.Array) -> jax.Array:
    return module.observation_of(inner)


def test_equals_gymnasium_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    simulator = gymnasium.make("Acrobot-v1").unwrapped
    simulator.reset(seed=0)
    monkeypatch.setattr(simulator, "dt", 0.1)
    # Gymnasium only knows three torques; the tenths between them are ours.
    monkeypatch.setattr(simulator, "AVAIL_TORQUE", [0.1 * i for i in range(-20, 21)])
    states = poses(40)
    torques = np.random.default_rng(0).integers(0, 41, 40)
    actions = jnp.asarray(0.1 * (torques - 20) / module.MAX_TORQUE, jnp.float32)[:, None]
    state = ACROBOT.set_observation(observed(states))
    ours, _ = ACROBOT.step(jax.random.key(0), state, actions)
    for row, torque in enumerate(torques):
        simulator.state = np.asarray(states[row], np.float64)
        expected = simulator.step(int(torque))[0]
        np.testing.assert_allclose(ours.observation[row], expected, atol=2e-5)


def drift(substeps: int) -> jax.Array:
    """Change of energy over a second without torque, `[64]`, by steps of `DT / substeps`."""
    inner, none = jnp.asarray(np.asarray(poses()), jnp.float64), jnp.zeros(64)
    moved = jax.lax.fori_loop(0, 10 * substeps, lambda _, inner: advance(inner, none), inner)
    return jnp.abs(energy(observed(moved)) - energy(observed(inner)))


def test_energy_is_conserved_to_fourth_order(monkeypatch: pytest.MonkeyPatch) -> None:
    full = module.DT
    errors = []
    with jax.enable_x64(True):
        for substeps in (1, 2, 4):
            monkeypatch.setattr(module, "DT", full / substeps)
            errors.append(drift(substeps))
    assert float(errors[0].max()) < 0.05 * TOP
    # A method of order four loses a factor of 16 per halving.
    middle = [float(jnp.median(error)) for error in errors]
    assert middle[0] / middle[1] > 12 and middle[1] / middle[2] > 12


def test_torque_does_work_at_the_elbow() -> None:
    with jax.enable_x64(True):
        inner = jnp.asarray(np.asarray(poses()), jnp.float64)
        torque = jnp.linspace(-2.0, 2.0, 64)
        slope = module.derivative(inner, torque)
        _, power = jax.jvp(lambda x: energy(observed(x)), (inner,), (slope,))
        np.testing.assert_allclose(power, torque * inner[:, 3], atol=1e-9)


def test_observations_determine_the_state() -> None:
    inner = poses(256, speed=10.0)
    restored = ACROBOT.set_observation(observed(inner))
    np.testing.assert_allclose(restored.inner, inner, atol=1e-5)
    np.testing.assert_allclose(ACROBOT.observe(restored), observed(inner))
    stretched = observed(inner).at[:, :4].multiply(1.7)  # a model's cosines are not on the circle
    np.testing.assert_allclose(ACROBOT.set_observation(stretched).inner, inner, atol=1e-5)
    key, action = jax.random.key(1), jnp.full((256, 1), 0.7)
    state, out = ACROBOT.step(key, restored, action)
    following, again = true_model(ACROBOT).step(None, key, observed(inner), action, None)
    np.testing.assert_array_equal(following, state.observation)
    np.testing.assert_array_equal(again.reward, out.reward)


@pytest.mark.parametrize(
    ("angles", "action", "expected"),
    [
        ((0.0, 0.0), 0.0, -1.0),
        ((np.pi, 0.0), 0.0, 1.0),
        ((np.pi, 0.0), -0.5, 1.0 - 0.001),
        ((0.0, np.pi), 0.0, 0.0),
        ((np.pi / 2, np.pi / 2), 3.0, 0.5 - 0.004),
        ((np.pi / 2, -np.pi / 2), 1.0, -0.5 - 0.004),
    ],
)
def test_reward_of_poses(angles: tuple, action: float, expected: float) -> None:
    state = ACROBOT.set_observation(observed(jnp.array([[*angles, 1.0, -2.0]])))
    _, out = ACROBOT.step(jax.random.key(0), state, jnp.array([[action]]))
    assert float(out.reward[0]) == pytest.approx(expected, abs=1e-6)
    known = ACROBOT.reward(state.observation, jnp.array([[action]]), None)
    assert float(known[0]) == pytest.approx(expected, abs=1e-6)


def test_energy_at_rest() -> None:
    rest = observed(jnp.array([[0.0, 0.0, 0, 0], [jnp.pi, 0.0, 0, 0], [0.0, jnp.pi, 0, 0]]))
    np.testing.assert_allclose(energy(rest), [-TOP, TOP, -9.8], atol=1e-4)


def test_speeds_are_limited_and_episodes_truncated() -> None:
    fast = observed(jnp.array([[0.3, 0.2, 12.0, 28.0]]))
    state, _ = ACROBOT.step(jax.random.key(0), ACROBOT.set_observation(fast), jnp.ones((1, 1)))
    assert (jnp.abs(state.inner[:, 2:]) <= jnp.asarray(module.MAX_SPEEDS) + 1e-5).all()
    state = ACROBOT.reset(jax.random.key(0), 3)
    assert float(jnp.abs(state.inner).max()) <= 0.1 and len(np.unique(state.inner)) == 12
    _, out = ACROBOT.step(
        jax.random.key(0), state._replace(time=state.time + 199), jnp.ones((3, 1))
    )
    assert out.truncated.all() and not out.terminated.any()


@pytest.mark.parametrize("name", ["acrobot", "acrobot-broad"])
def test_it_is_known_by_name(name: str) -> None:
    assert make(name) is ACROBOT

"""A field without actions in the one rollout, against closed forms and exponax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.pde.field import field_model, roll_field
from jaxrl_rollouts.rollouts import rollout

POINTS, LENGTH = 64, 2 * np.pi


def advect(speed: jax.Array, key: jax.Array, u: jax.Array) -> jax.Array:
    """Exact advection by `speed` over a unit of time: a phase per wavenumber."""
    k = jnp.fft.rfftfreq(POINTS, LENGTH / POINTS) * 2 * jnp.pi
    return jnp.fft.irfft(jnp.fft.rfft(u) * jnp.exp(-1j * k * speed), POINTS)


def waves(phases: np.ndarray) -> jax.Array:
    x = np.arange(POINTS) * LENGTH / POINTS
    return jnp.asarray(np.sin(x + phases[:, None])[:, None])


def test_advection_is_a_shift() -> None:
    phases = np.array([0.0, 0.7, 2.0])
    rolled = roll_field(advect, 0.3, waves(phases), jax.random.key(0), 20)
    assert rolled.shape == (20, 3, 1, POINTS)
    for step in (0, 9, 19):
        np.testing.assert_allclose(rolled[step], waves(phases - 0.3 * (step + 1)), atol=2e-5)


def test_every_field_of_a_batch_gets_its_own_noise_and_key_decides() -> None:
    def noisy(_: None, key: jax.Array, u: jax.Array) -> jax.Array:
        return u + jax.random.normal(key, u.shape)

    start = jnp.zeros((2, 1, 8))
    a = roll_field(noisy, None, start, jax.random.key(0), 3)
    assert not np.allclose(a[:, 0], a[:, 1])
    np.testing.assert_array_equal(a, roll_field(noisy, None, start, jax.random.key(0), 3))
    assert not np.allclose(a, roll_field(noisy, None, start, jax.random.key(1), 3))


def test_no_row_ever_ends_before_the_horizon() -> None:
    rolled = rollout(field_model(advect), 0.1, waves(np.zeros(2)), jax.random.key(0), horizon=5)
    assert rolled.valid.all()
    assert rolled.steps.actions is None
    np.testing.assert_array_equal(rolled.steps.truncations[-1], [True, True])
    assert not rolled.steps.truncations[:-1].any()

"""A field in the one rollout, and emulators that see more than one frame."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape, latest, opening, pushed, residual
from jaxrl_rollouts.pde.field import field_model, roll_emulator, roll_field
from jaxrl_rollouts.pde.objectives import Mse, Refiner
from jaxrl_rollouts.pde.operators import Fno, Resnet, Unet
from jaxrl_rollouts.pde.registries import OBJECTIVES
from jaxrl_rollouts.rollouts import rollout

C, N, H = 2, 8, 3
NONE, KEY = jnp.zeros((0,)), jax.random.key(0)


def extrapolating() -> FieldNetwork:
    """Says the last change again, in units of 0.5: exact for what moves at constant speed."""

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        assert field.shape == (H * C, N) and noised.shape == (C, N)
        return params * (field[-C:] - field[-2 * C : -C]) / 0.5

    return FieldNetwork(lambda key: jnp.float32(1.0), apply, H)


def line(frames: int) -> np.ndarray:
    """`[frames, C, N]`, changing by the same amount in every frame."""
    rng = np.random.default_rng(0)
    begin, speed = rng.normal(size=(2, 1, C, N))
    return (begin + speed * np.arange(frames)[:, None, None]).astype(np.float32)


def test_the_parts() -> None:
    w = line(5)
    field, following = opening(jnp.asarray(w), H)
    np.testing.assert_array_equal(field, w[:3].reshape(H * C, N))
    np.testing.assert_array_equal(following, w[3:])
    np.testing.assert_array_equal(latest(field, H), w[2])
    np.testing.assert_array_equal(pushed(field, jnp.ones((C, N)))[: 2 * C], field[C:])
    np.testing.assert_allclose(pushed(field, jnp.ones((C, N)))[2 * C :], w[2] + 1.0)
    np.testing.assert_allclose(residual(field, following[0], 0.5), (w[3] - w[2]) / 0.5)


@pytest.mark.parametrize("objective", ["mse", "pushforward", "unrolled", "sobolev"])
def test_every_objective_sees_its_history(objective: Any) -> None:
    emulator = OBJECTIVES[objective]().make(extrapolating(), 0.5)
    ahead = 1 if objective in ("mse", "sobolev") else 2
    assert (emulator.history, emulator.frames) == (H, H + ahead)
    w = jnp.asarray(line(emulator.frames))
    right, _ = emulator.loss(jnp.float32(1.0), KEY, w, NONE)
    wrong, _ = emulator.loss(jnp.float32(0.5), KEY, w, NONE)
    assert float(right) < 1e-9 and float(wrong) > 1e-2


def test_a_rollout_forgets_the_oldest_frame_and_returns_the_newest() -> None:
    emulator = Mse().make(extrapolating(), 0.5)
    w = line(9)
    starts = jnp.asarray(w[:H].reshape(1, H * C, N))
    rolled = roll_emulator(emulator, jnp.float32(1.0), starts, jnp.zeros((1, 0)), KEY, 6)
    assert rolled.shape == (6, 1, C, N)
    np.testing.assert_allclose(rolled[:, 0], w[H:], rtol=1e-4, atol=1e-4)


def test_a_refiner_with_history_refines_the_newest_frame() -> None:
    """An oracle of the released form: what it is told of the past does not reach the noise."""
    w = line(H + 1)
    truth = (w[H] - w[H - 1]) / 0.3
    config = Refiner(refinements=2, min_noise_variance=1e-4)

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        assert field.shape == (H * C, N) and noised.shape == (C, N)
        return jnp.where(index > 999.0, -truth, 0.0)  # right at first, silent afterwards

    net = FieldNetwork(lambda key: {}, apply, H)
    emulator = config.make(net, 0.3)
    assert (emulator.frames, emulator.history, emulator.calls) == (H + 1, H, 3)
    field = jnp.asarray(w[:H].reshape(H * C, N))
    after = emulator.step({}, KEY, field, NONE)
    np.testing.assert_array_equal(after[: 2 * C], field[C:])
    left = (after[2 * C :] - w[H]) / 0.3
    assert 0.01 < float(left.std()) < 0.3  # the coarse noise of 0.1 that nobody took away


@pytest.mark.parametrize(
    "config",
    [
        Resnet(width=8, blocks=1, dilations=(1,), embedding=8),
        pytest.param(Unet(hidden=8, multipliers=(1, 2), blocks=1), marks=pytest.mark.slow),
        Fno(width=8, layers=1, modes=3, embedding=8),
    ],
)
def test_networks_take_a_history(config: Any) -> None:
    net = config.make(FieldShape(C, N, 1, H))
    params = net.init(KEY)
    said = net.apply(params, jnp.ones((H * C, N)), jnp.zeros((C, N)), 0.0, jnp.ones((1,)))
    assert net.history == H and said.shape == (C, N)
    with pytest.raises(ConfigError, match="history"):
        config.make(FieldShape(C, N, 1, 0))


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

"""The actuated Kuramoto-Sivashinsky equation against numpy in double precision."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.environments import make, true_model
from jaxrl_rollouts.offline.environments.base import restart
from jaxrl_rollouts.offline.environments.ks_control import (
    EIGHT,
    FOUR,
    KS_CONTROL,
    KS_EIGHT,
    KS_WIDE,
    WIDE,
    KsControl,
    advance,
    balance,
    jets,
)
from jaxrl_rollouts.offline.environments.terminations import never, termination_function

N, L = 64, 22.0
K = 2 * np.pi * np.fft.rfftfreq(N, L / N)
STEP = jax.jit(KS_CONTROL.step)


@functools.cache
def fields(rows: int = 4) -> np.ndarray:
    """Fields on the attractor, `[rows, 64]` float32."""
    return np.asarray(KS_CONTROL.reset(jax.random.key(0), rows).observation)


def actions(rows: int, count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).uniform(-1, 1, (rows, count))
    return drawn.astype(np.float32)


def force(settings: KsControl, action: np.ndarray) -> np.ndarray:
    """`p sum_i a_i g(x - x_i)` in double precision, by sums over images of each jet."""
    x, found = np.arange(N) * L / N, 0.0
    for i in range(settings.jets):
        apart = x - (i + 0.5) * L / settings.jets
        g = sum(np.exp(-((apart + m * L) ** 2) / (2 * settings.width**2)) for m in (-1, 0, 1))
        g = g - g.mean() if settings.centred else g
        found = found + settings.peak * action[:, i : i + 1].astype(np.float64) * g
    return found


def reference(u: np.ndarray, f: np.ndarray, time: float, steps: int = 400) -> np.ndarray:
    """The equation by Runge-Kutta of order four with an integrating factor, 2/3 rule."""
    h, linear, kept = time / steps, K**2 - K**4, np.arange(len(K)) < N / 3
    v, push = np.fft.rfft(u.astype(np.float64)), np.fft.rfft(f)
    half, whole = np.exp(h / 2 * linear), np.exp(h * linear)

    def slope(v: np.ndarray) -> np.ndarray:
        return -0.5j * kept * K * np.fft.rfft(np.fft.irfft(kept * v, N) ** 2) + push

    for _ in range(steps):
        a = slope(v)
        b = slope(half * (v + h / 2 * a))
        c = slope(half * v + h / 2 * b)
        d = slope(whole * v + h * half * c)
        v = whole * v + h / 6 * (whole * a + 2 * half * (b + c) + d)
    return np.fft.irfft(v, N)


@pytest.mark.parametrize("settings", [FOUR, EIGHT, WIDE], ids=lambda s: s.name)
def test_a_step_is_that_of_a_fine_integration(settings: KsControl) -> None:
    action = actions(4, settings.jets)
    expected = reference(fields(), force(settings, action), 0.25)
    np.testing.assert_allclose(advance(settings, fields(), action), expected, atol=2e-4)
    with jax.enable_x64(True):
        fine = settings._replace(dt=settings.dt / 8, substeps=8 * settings.substeps)
        start = jnp.asarray(fields(), jnp.float64)
        found = advance(fine, start, jnp.asarray(action, jnp.float64))
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_without_jets_it_is_the_solver_of_the_fields() -> None:
    pytest.importorskip("exponax")
    from jaxrl_rollouts.pde.equations import EQUATIONS

    solver = EQUATIONS["ks"].solver(N, L, 0.05, 1.0)
    u = jnp.asarray(fields())
    ours = advance(FOUR, u, jnp.zeros((4, 4)))
    theirs = u[:, None]
    for _ in range(5):
        theirs = jax.vmap(solver)(theirs)
    np.testing.assert_allclose(ours, theirs[:, 0], atol=2e-5)


@pytest.mark.parametrize("settings", [FOUR, WIDE], ids=lambda s: s.name)
def test_the_energy_is_balanced(settings: KsControl) -> None:
    with jax.enable_x64(True):
        short = settings._replace(dt=1e-3, substeps=1)
        u = jnp.asarray(fields(), jnp.float64)
        u = advance(settings, u, jnp.zeros((4, 4)))  # smooth in double precision, too
        action = jnp.asarray(actions(4, 4), jnp.float64)
        after = advance(short, u, action)
        rate = (jnp.square(after) - jnp.square(u)).mean(-1) / 2 / short.dt
        terms = [balance(short, field, action) for field in (u, after)]
        expected = sum(t.production - t.dissipation + t.power for t in terms) / 2
        np.testing.assert_allclose(rate, expected, atol=1e-4)
        # Jets with a mean, and nothing else, move the mean of the field.
        drift = (after - u).mean(-1) / short.dt
        mean = force(settings, np.asarray(action)).mean(-1)
        np.testing.assert_allclose(drift, mean, atol=1e-9)
        assert settings.centred == bool(np.abs(mean).max() < 1e-12)


def test_balance_and_rewards_are_numpys() -> None:
    for env, settings in ((KS_CONTROL, FOUR), (KS_EIGHT, EIGHT), (KS_WIDE, WIDE)):
        action = 1.5 * actions(4, settings.jets)  # some beyond the bounds
        state, out = jax.jit(env.step)(
            jax.random.key(0), env.set_observation(jnp.asarray(fields())), action
        )
        u, held = np.asarray(state.observation, np.float64), np.clip(action, -1, 1)
        v = np.fft.rfft(u)
        slope, curvature = np.fft.irfft(1j * K * v, N), np.fft.irfft(-(K**2) * v, N)
        work = (u * force(settings, held)).mean(-1)
        terms = balance(settings, state.observation, action)
        np.testing.assert_allclose(terms.production, (slope**2).mean(-1), rtol=1e-4)
        np.testing.assert_allclose(terms.dissipation, (curvature**2).mean(-1), rtol=2e-4)
        np.testing.assert_allclose(terms.power, work, atol=1e-5)
        if settings.reward == "energy":
            expected = -(u**2).mean(-1) - 0.1 * (held**2).mean(-1)
        else:
            expected = -((slope**2).mean(-1) + (curvature**2).mean(-1) + work)
        np.testing.assert_allclose(out.reward, expected, rtol=2e-4)
        known = env.reward(jnp.asarray(fields()), action, state.observation)
        np.testing.assert_allclose(known, out.reward, rtol=1e-6)


def test_noise_that_no_solution_has_does_not_change_the_reward() -> None:
    high = np.cos(K[25] * np.arange(N) * L / N).astype(np.float32)
    action = actions(4, 4)
    before = balance(FOUR, fields(), action)
    after = balance(FOUR, fields() + 0.01 * high, action)
    np.testing.assert_allclose(after.dissipation, before.dissipation, rtol=1e-4)


def test_jets_stand_evenly_and_have_their_size() -> None:
    for settings in (FOUR, EIGHT, WIDE):
        found = jets(settings)
        one = np.ones((settings.jets, 1)) * np.eye(settings.jets)
        np.testing.assert_allclose(found, force(settings, one), atol=1e-9)
        np.testing.assert_array_equal(
            found.argmax(1), (2 * np.arange(settings.jets) + 1) * N // (2 * settings.jets)
        )
    # A Gaussian of deviation 0.4 and peak 0.5 over the whole line.
    np.testing.assert_allclose(jets(FOUR).sum(1) * L / N, 0.5 * 0.4 * np.sqrt(2 * np.pi), rtol=1e-6)
    np.testing.assert_allclose(jets(WIDE).mean(1), 0.0, atol=1e-12)


def test_actuation_is_symmetric() -> None:
    u, action = fields(), actions(4, 4)
    found = np.asarray(advance(FOUR, u, action))
    # By a quarter of the circle, actions handed on to the next jet.
    moved = advance(FOUR, np.roll(u, N // 4, 1), np.roll(action, 1, 1))
    np.testing.assert_allclose(moved, np.roll(found, N // 4, 1), atol=1e-4)
    # u(x) -> -u(-x), a_i -> -a_(A-1-i).
    mirror = -np.roll(u[:, ::-1], 1, 1)
    mirrored = advance(FOUR, mirror, -action[:, ::-1])
    np.testing.assert_allclose(mirrored, -np.roll(found[:, ::-1], 1, 1), atol=1e-4)


def test_the_attractor_has_its_known_means() -> None:
    u = jnp.asarray(fields(64))
    still = jnp.zeros((64, 4))

    def step(u: jax.Array, _: None) -> tuple[jax.Array, tuple]:
        u = advance(FOUR, u, still)
        terms = balance(FOUR, u, still)
        return u, (terms.production, terms.dissipation, jnp.square(u).mean(-1))

    _, found = jax.jit(lambda u: jax.lax.scan(step, u, None, 400))(u)
    production, dissipation, energy = (float(x.mean()) for x in found)
    assert production == pytest.approx(0.919, rel=0.04)
    assert dissipation == pytest.approx(production, rel=0.01)  # steady on average
    assert energy == pytest.approx(1.413, rel=0.04)


def test_rows_are_independent_and_seeds_reproducible() -> None:
    state = KS_CONTROL.reset(jax.random.key(3), 3)
    again = KS_CONTROL.reset(jax.random.key(3), 3)
    np.testing.assert_array_equal(state.observation, again.observation)
    other = KS_CONTROL.reset(jax.random.key(4), 3).observation
    assert np.abs(state.observation - other).mean(1).min() > 0.3
    assert np.abs(np.corrcoef(np.asarray(state.observation))[0, 1]) < 0.999
    action = jnp.asarray(actions(3, 4))
    together, out = STEP(jax.random.key(0), state, action)
    for row in range(3):
        alone = jax.tree.map(lambda x, row=row: x[row : row + 1], state)
        single, result = STEP(jax.random.key(1), alone, action[row : row + 1])
        np.testing.assert_allclose(
            single.observation, together.observation[row : row + 1], atol=1e-5
        )
        np.testing.assert_allclose(result.reward, out.reward[row : row + 1], rtol=1e-5)
    mapped, _ = jax.vmap(KS_CONTROL.step, in_axes=(None, 0, 0))(
        jax.random.key(0), jax.tree.map(lambda x: x[:, None], state), action[:, None]
    )
    np.testing.assert_allclose(mapped.observation[:, 0], together.observation, atol=1e-5)
    keys = jax.random.split(jax.random.key(5), 2)
    grouped = KS_CONTROL.reset(keys, 4).observation
    np.testing.assert_allclose(grouped[2:], KS_CONTROL.reset(keys[1], 2).observation, atol=1e-2)


def test_only_episodes_that_ended_begin_anew() -> None:
    key = jax.random.key(7)
    state = KS_CONTROL.reset(jax.random.key(3), 3)
    state = state._replace(time=jnp.array([5, 400, 6]))
    begun = restart(KS_CONTROL, key, state, jnp.array([False, True, False]))
    fresh = KS_CONTROL.reset(key, 3)
    assert begun.time.tolist() == [5, 0, 6]
    np.testing.assert_array_equal(begun.observation[::2], state.observation[::2])
    np.testing.assert_array_equal(begun.inner[1], begun.observation[1])
    # The same numbers of the same key, but for how the two programs round.
    assert float(jnp.corrcoef(begun.inner[1], fresh.inner[1])[0, 1]) > 0.9
    kept = restart(KS_CONTROL, key, state, jnp.zeros(3, bool))
    np.testing.assert_array_equal(kept.observation, state.observation)
    both = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    ended = jnp.array([[False, True, False], [False, False, False]])
    mapped = jax.vmap(functools.partial(restart, KS_CONTROL), in_axes=(None, 0, 0))(
        key, both, ended
    )
    np.testing.assert_array_equal(mapped.observation[1], state.observation)
    np.testing.assert_array_equal(mapped.time, [[5, 0, 6], [5, 400, 6]])


def test_episodes_end_at_the_time_limit_only() -> None:
    state = KS_CONTROL.set_observation(jnp.asarray(fields()))
    last = state._replace(time=jnp.array([0, 398, 399, 399]))
    following, out = STEP(jax.random.key(0), last, jnp.zeros((4, 4)))
    assert out.truncated.tolist() == [False, False, True, True] and not out.terminated.any()
    moved, again = true_model(KS_CONTROL).step(
        None, jax.random.key(0), jnp.asarray(fields()), jnp.zeros((4, 4)), None
    )
    np.testing.assert_allclose(moved, following.observation, atol=1e-5)
    np.testing.assert_allclose(again.reward, out.reward, rtol=1e-5)


@pytest.mark.parametrize("name", ["ks_control", "ks_control-mixed", "ks_control-eight"])
def test_it_is_known_by_name(name: str) -> None:
    assert make(name) is (KS_EIGHT if name.endswith("eight") else KS_CONTROL)
    assert termination_function(name) is never

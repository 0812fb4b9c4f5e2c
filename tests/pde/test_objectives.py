"""One-step objectives on a network whose output is known, against plain numpy."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.objectives import Correction, Mse, Sobolev, Unrolled
from jaxrl_rollouts.pde.objectives.one_step import frequency_error, relative_error
from jaxrl_rollouts.pde.objectives.sobolev import sobolev_error
from jaxrl_rollouts.pde.registries import OBJECTIVES

SCALE, N = 0.5, 16
NONE = jnp.zeros((0,))
KEY = jax.random.key(0)


def linear() -> FieldNetwork:
    """First call: `w u`; a correcting call: `v` times what the first one said."""

    def apply(params: Any, u: Any, second: Any, index: Any, conditions: Any) -> jax.Array:
        return jnp.where(index > 500, params["w"] * u, params["v"] * second)

    return FieldNetwork(lambda key: {"w": jnp.float32(0.4), "v": jnp.float32(0.2)}, apply)


PARAMS = linear().init(KEY)


def window(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).normal(size=(frames, 1, N)).astype(np.float32)


def built(objective: str, **options: Any) -> Any:
    return OBJECTIVES[objective](**options).make(linear(), SCALE)


def mse(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.square(a - b).mean())


def test_mse_of_the_scaled_residual() -> None:
    w, emulator = window(2), built("mse")
    value, _ = emulator.loss(PARAMS, KEY, w, NONE)
    assert float(value) == pytest.approx(mse(0.4 * w[0], (w[1] - w[0]) / SCALE), rel=1e-5)
    np.testing.assert_allclose(emulator.step(PARAMS, KEY, w[0], NONE), 1.2 * w[0], rtol=1e-6)
    assert (emulator.frames, emulator.calls) == (2, 1)


@pytest.mark.parametrize("objective", ["mse", "pushforward", "unrolled"])
def test_noise_on_the_input_is_to_be_taken_away(objective: str) -> None:
    """With a network that predicts no change the noise is all of the additional error."""
    frames = 2 + (objective != "mse")
    still, w = {"w": jnp.float32(0.0), "v": jnp.float32(0.0)}, window(frames)
    noisy, plain = built(objective, input_noise=0.3), built(objective)
    keys = jax.random.split(KEY, 2000)
    value = jax.vmap(lambda key: noisy.loss(still, key, w, NONE)[0])(keys).mean()
    times = 2 if objective == "pushforward" else 1  # it adds the errors of two steps
    base = float(plain.loss(still, KEY, w, NONE)[0])
    assert float(value) == pytest.approx(base + times * 0.3**2, rel=5e-3)
    none = built(objective, input_noise=0.0).loss(PARAMS, KEY, w, NONE)[0]
    assert none == plain.loss(PARAMS, KEY, w, NONE)[0]


def test_relative_l1_of_the_field_itself() -> None:
    """Absolute differences of fields, in whatever units changes are scaled."""
    w = window(2)
    value, _ = built("mse", loss="relative_l1").loss(PARAMS, KEY, w, NONE)
    expected = np.abs(1.2 * w[0] - w[1]).mean() / np.abs(w[1]).mean()
    assert float(value) == pytest.approx(expected, rel=1e-5)
    both, small = np.stack([w[0, 0], 1e-3 * w[1, 0]]), np.stack([w[1, 0], 1e-3 * w[0, 0]])
    alone = [
        float(relative_error(*(jnp.asarray(x[c : c + 1]) for x in (both, small, small))))
        for c in (0, 1)
    ]
    assert float(relative_error(both, small, small)) == pytest.approx(np.mean(alone), rel=1e-5)


def test_the_frequency_term_is_of_the_size_of_a_mean_square_error() -> None:
    """A wave of the highest length counts as its mean square, shared by the bins; one of a third
    of it by 3^-1.5 of that."""
    x = 2 * np.pi * np.arange(12) / 12
    zero = jnp.zeros((1, 12, 12))
    for k, weight in ((6, 1.0), (2, 3**-1.5)):
        wave = jnp.asarray(np.cos(k * (x[:, None] + x)))[None]
        square, bins = float(jnp.square(wave).mean()), 12 * 7
        share = 1.0 if k == 6 else 0.5  # of the power, the half with k_1 above 0
        expected = weight * share * square * 144 / bins
        assert float(frequency_error(wave, zero)) == pytest.approx(expected, rel=1e-4)
    w = window(2)
    plain, more = (
        float(built("mse", frequency_weight=by).loss(PARAMS, KEY, w, NONE)[0]) for by in (0.0, 0.3)
    )
    added = frequency_error(0.4 * w[0], (w[1] - w[0]) / SCALE)
    assert more - plain == pytest.approx(0.3 * float(added), rel=1e-4)


@pytest.mark.parametrize("length", [2, 4])
def test_pushforward_learns_from_its_own_steps_but_not_through_them(length: int) -> None:
    w, emulator = window(length + 1), built("pushforward", length=length)
    inputs, u = [], w[0]
    for after in w[1:]:
        inputs.append((u, (after - u) / SCALE))
        u = 1.2 * u
    losses = [mse(0.4 * x, y) for x, y in inputs]
    (value, parts), gradient = jax.value_and_grad(emulator.loss, has_aux=True)(PARAMS, KEY, w, NONE)
    assert float(value) == pytest.approx(sum(losses), rel=1e-5)
    assert float(parts["loss_pushed"]) == pytest.approx(losses[-1], rel=1e-5)
    expected = sum((2 * x * (0.4 * x - y)).mean() for x, y in inputs)
    assert float(gradient["w"]) == pytest.approx(expected, rel=1e-4)
    assert emulator.frames == length + 1


def test_unrolled_learns_through_its_steps() -> None:
    w, emulator = window(4), built("unrolled", length=3)

    def by_hand(weight: float) -> float:
        u, total = w[0].astype(np.float64), 0.0
        for after in w[1:]:
            total += np.square(weight * u - (after - u) / SCALE).mean()
            u = u * (1 + SCALE * weight)
        return total / 3

    (value, _), gradient = jax.value_and_grad(emulator.loss, has_aux=True)(PARAMS, KEY, w, NONE)
    assert float(value) == pytest.approx(by_hand(0.4), rel=1e-5)
    slope = (by_hand(0.4 + 1e-5) - by_hand(0.4 - 1e-5)) / 2e-5
    assert float(gradient["w"]) == pytest.approx(slope, rel=1e-3)
    assert emulator.frames == 4


@pytest.mark.parametrize("second", ["change", "error"])
def test_a_second_call_sees_the_first_and_no_noise(second: str) -> None:
    w, emulator = window(2), built("correction", second=second)
    target, guess = (w[1] - w[0]) / SCALE, 0.4 * w[0]
    final = 0.2 * guess + (guess if second == "error" else 0.0)
    (value, parts), gradient = jax.value_and_grad(emulator.loss, has_aux=True)(PARAMS, KEY, w, NONE)
    assert float(value) == pytest.approx(mse(guess, target) + mse(final, target), rel=1e-5)
    assert float(parts["loss_second"]) == pytest.approx(mse(final, target), rel=1e-5)
    # The first prediction is trained by its own loss only.
    assert float(gradient["w"]) == pytest.approx((2 * w[0] * (guess - target)).mean(), rel=1e-4)
    after = emulator.step(PARAMS, KEY, w[0], NONE)
    np.testing.assert_allclose(after, w[0] + SCALE * final, rtol=1e-5)
    assert emulator.calls == 2


@pytest.mark.parametrize(("k", "order"), [(0, 2), (1, 1), (3, 1), (3, 2), (5, 3)])
def test_sobolev_weighs_a_wave_by_its_derivatives(k: int, order: int) -> None:
    x = np.arange(N) / N * 2 * np.pi
    wave = jnp.asarray(np.cos(k * x)[None], jnp.float32)
    found = sobolev_error(order)(wave, jnp.zeros_like(wave))
    expected = float(jnp.square(wave).mean()) * sum(k ** (2 * i) for i in range(order + 1))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_sobolev_in_two_dimensions_and_as_an_objective() -> None:
    x, y = np.meshgrid(*[np.arange(N) / N * 2 * np.pi] * 2, indexing="ij")
    wave = jnp.asarray(np.cos(2 * x + 3 * y)[None], jnp.float32)
    assert float(sobolev_error(1)(wave, 0 * wave)) == pytest.approx(0.5 * 14, rel=1e-5)
    w = window(2)
    value, _ = built("sobolev", order=2).loss(PARAMS, KEY, w, NONE)
    expected = sobolev_error(2)(0.4 * w[0], (w[1] - w[0]) / SCALE)
    assert float(value) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (Unrolled(length=1), "length"),
        (Sobolev(order=0), "order"),
        (Mse(loss="l3"), "loss"),  # type: ignore[arg-type]
        (Mse(frequency_weight=-1.0), "frequency_weight"),
        (Correction(second="third"), "second"),  # type: ignore[arg-type]
    ],
)
def test_settings_are_checked(wrong: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        wrong.make(linear(), SCALE)
    with pytest.raises(ConfigError, match="scale"):
        Mse().make(linear(), (1.0, 0.0))


def test_an_objective_has_only_the_settings_that_it_reads() -> None:
    for name, kind in OBJECTIVES.items():
        for setting in ("unroll", "length", "order", "refinements", "second", "residual_scale"):
            if setting not in {field.name for field in dataclasses.fields(kind)}:
                with pytest.raises(TypeError, match=setting):
                    kind(**{setting: 2})
        assert name == OBJECTIVES.name_of(kind())


@pytest.mark.parametrize("config", [Sobolev(), Mse(frequency_weight=0.1)])
def test_spectral_losses_are_refused_between_walls(config: Any) -> None:
    for kinds, refused in ((("periodic", "wall"), True), (("periodic", ""), False)):
        net = linear()._replace(shape=FieldShape(1, (8, 8), boundaries=kinds))
        if not refused:
            config.make(net, SCALE)
            continue
        with pytest.raises(ConfigError, match="periodic boundaries with it, not periodic, wall"):
            config.make(net, SCALE)


def test_spectral_losses_go_by_physical_wavenumber() -> None:
    """The same wave counts the same along either axis of a domain of 4 to 1."""
    x, y = np.arange(32) / 32, np.arange(8) / 8  # lengths 4 and 1: a grid of equal cells
    along_x = np.broadcast_to(np.cos(2 * np.pi * 8 * x)[:, None], (32, 8))  # 8 / 4 = 2 a unit
    along_y = np.broadcast_to(np.cos(2 * np.pi * 2 * y)[None], (32, 8))  # 2 / 1 a unit
    for extent in ((4.0, 1.0), ()):
        losses = [sobolev_error(1, extent), functools.partial(frequency_error, extent=extent)]
        for loss in losses:
            both = [
                float(loss(jnp.asarray(w)[None], jnp.zeros((1, 32, 8)))) for w in (along_x, along_y)
            ]
            # Of a wave along x the rfft keeps both bins, of one along y one of the two.
            share = 1.0 if loss is losses[0] else 2.0
            assert both[0] == pytest.approx(share * both[1], rel=1e-4)
    found = float(sobolev_error(1, (4.0, 1.0))(jnp.asarray(along_x)[None], jnp.zeros((1, 32, 8))))
    assert found == pytest.approx(0.5 * (1 + 8**2), rel=1e-5)

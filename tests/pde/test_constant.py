"""Constant channels are seen and never predicted: objectives, networks, windows, the linear map."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.baselines import fit_linear, make_linear
from jaxrl_rollouts.pde.constant import (
    changing,
    check_constant,
    constant_fields,
    never_changing,
    with_constant,
)
from jaxrl_rollouts.pde.emulator import Conditioning, FieldNetwork, FieldShape
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields, sample_windows
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.objectives import Mse, Refiner
from jaxrl_rollouts.pde.operators import Drift, Fno, Unet
from jaxrl_rollouts.pde.registries import OBJECTIVES

C, S, N = 2, 1, 8
SCALE = (0.5, 2.0)
KEY = jax.random.key(0)
SMALL: dict[str, Any] = {
    "resnet": tiny(),
    "unet": Unet(hidden=8, multipliers=(1, 2), blocks=1),
    "fno": Fno(width=4, layers=1, modes=2, embedding=4),
    "drift": Drift(dims=(8,), depths=(1,), patch=2, embedding=4),
}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def whole(history: int = 1) -> FieldNetwork:
    """On all `C + S` channels: says `w u + k` of those that change, and a million of the others."""

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        assert field.shape == (history * (C + S), N) and conditions.shape == (1,)
        frame, constant = field[-C - S : -S], field[-S:]
        said = params * frame + constant + conditions[0] + noised[:C] + noised[C:].sum()
        return jnp.concatenate([said, jnp.full((S, N), 1e6)])

    return FieldNetwork(lambda key: jnp.float32(0.4), apply, history)


def given_of(seed: int = 5) -> Conditioning:
    return Conditioning(jnp.array([0.25]), jnp.asarray(normal(S, N, seed=seed)))


@pytest.mark.parametrize("objective", ["mse", "unrolled", "sobolev"])
def test_a_loss_is_that_of_the_channels_that_are_predicted(objective: Any) -> None:
    window, given = normal(3, C, N), given_of()
    emulator = OBJECTIVES[objective]().make(with_constant(whole()), SCALE)
    value, _ = emulator.loss(jnp.float32(0.4), KEY, window[: emulator.frames], given)
    scale, constant, losses = np.reshape(SCALE, (C, 1)), np.asarray(given.constant), []
    u = window[0]
    for after in window[1 : emulator.frames]:
        said = 0.4 * u + constant + 0.25
        apart = said - (after - u) / scale
        losses.append(np.square(apart).mean(1).sum())
        if objective == "sobolev":
            k = np.fft.fftfreq(N, 1 / N)
            losses[-1] += (np.square(np.abs(k * np.fft.fft(apart))).sum(1) / N**2).sum()
        u = u + scale * said
    assert float(value) == pytest.approx(np.mean(losses), rel=1e-4)
    step = emulator.step(jnp.float32(0.4), KEY, window[0], given)
    assert step.shape == (C, N)
    np.testing.assert_allclose(step, window[0] + scale * (0.4 * window[0] + constant + 0.25), 1e-5)


@pytest.mark.parametrize("form", ["v", "noise"])
def test_a_refiner_draws_no_noise_for_them(form: Any) -> None:
    """Loss and step are those of a network that has the constant within itself, key for key."""
    given, window = given_of(), normal(2, C, N)
    settings: dict[str, Any] = {} if form == "v" else {"first": "zeros", "sampler": "renoise"}
    config = Refiner(refinements=2, form=form, **settings)

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        return params * field + given.constant + conditions[0] + noised

    inside = config.make(FieldNetwork(whole().init, apply), SCALE)
    beside = config.make(with_constant(whole()), SCALE)
    params = jnp.float32(0.4)
    for i in range(4):
        key = jax.random.fold_in(KEY, i)
        for name, fields in (("loss", window), ("step", window[0])):
            one = getattr(inside, name)(params, key, fields, given.conditions)
            other = getattr(beside, name)(params, key, fields, given)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), one, other)


def test_they_stand_behind_every_frame_of_a_history() -> None:
    seen = []

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        seen.append((np.asarray(field), np.asarray(noised)))
        return field[: C + S]

    field, given = normal(3 * C, N), given_of()
    net = with_constant(FieldNetwork(whole().init, apply, 3))
    noised = normal(C, N, seed=1)
    np.testing.assert_array_equal(net.apply((), field, noised, 0.0, given), field[:C])
    frames = seen[0][0].reshape(3, C + S, N)
    np.testing.assert_array_equal(frames[:, :C], field.reshape(3, C, N))
    np.testing.assert_array_equal(frames[:, C:], np.broadcast_to(given.constant, (3, S, N)))
    np.testing.assert_array_equal(seen[0][1], np.concatenate([noised, np.zeros((S, N))]))


LONG_TO_COMPILE = [("unet", "mse"), ("unet", "refiner"), ("drift", "refiner")]


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        pytest.param(*pair, marks=pytest.mark.slow) if pair in LONG_TO_COMPILE else pair
        for pair in itertools.product(SMALL, ("mse", "refiner"))
    ],
)
def test_every_operator_sees_them(name: str, objective: str) -> None:
    grid = (8, 8) if name == "drift" else (N,)
    net = with_constant(SMALL[name].make(FieldShape(C + S, grid, 1)))
    leaves, tree = jax.tree.flatten(net.init(KEY))
    params = tree.unflatten(x + 0.1 * normal(*x.shape, seed=i) for i, x in enumerate(leaves))
    emulator = (
        Mse().make(net, SCALE) if objective == "mse" else Refiner(refinements=1).make(net, SCALE)
    )
    window, constant = normal(2, C, *grid), normal(S, *grid, seed=1)

    def loss(constant: jax.Array) -> jax.Array:
        return emulator.loss(params, KEY, window, Conditioning(jnp.zeros(1), constant))[0]

    value, slope = jax.jit(jax.value_and_grad(loss))(constant)
    assert np.isfinite(value) and np.abs(slope).min() > 0


def test_windows_and_their_constants_are_moved_together() -> None:
    """Every window is its constant channel and one more in every frame."""
    constant = normal(3, S, N, 6)
    fields = constant[:, None] + np.arange(4)[:, None, None, None]
    data = Fields(
        jnp.asarray(fields), Conditioning(jnp.arange(3.0)[:, None], jnp.asarray(constant))
    )
    windows, given = sample_windows(data, KEY, 16, 2)
    begins = np.asarray(windows)[:, 0] - np.asarray(given.constant)
    np.testing.assert_allclose(np.ptp(begins, (1, 2, 3)), 0.0, atol=1e-5)
    rows = np.asarray(given.conditions[:, 0], int)
    assert {*rows} == {0, 1, 2} and any(
        not np.array_equal(one, constant[row])
        for one, row in zip(np.asarray(given.constant), rows, strict=True)
    )
    same, alone = sample_windows(data._replace(conditions=data.conditions.conditions), KEY, 16, 2)
    np.testing.assert_array_equal(same, windows)
    np.testing.assert_array_equal(alone, given.conditions)


@pytest.mark.parametrize("history", [1, 2])
def test_the_linear_map_of_a_forced_flow_is_found(history: int) -> None:
    """`u' = 0.8 u(x - 1) + f(x) - f(x - 1)`, which no map without f is."""
    force = normal(40, S, N)
    u = [normal(40, 1, N, seed=1)]
    for _ in range(8):
        u.append(0.8 * np.roll(u[-1], 1, -1) + force - np.roll(force, 1, -1))
    fields = np.stack(u, 1)
    parts, beside = ([x[:20], x[20:30]] for x in (fields, force))
    start = jnp.asarray(fields[30:, :history].reshape(10, -1, N))
    truth = np.swapaxes(fields[30:, history : history + 4], 0, 1)
    given = Conditioning(jnp.zeros((10, 0)), jnp.asarray(force[30:]))
    params = jnp.asarray(fit_linear(parts, history, constant=beside))
    assert params.shape == (2, N // 2 + 1, 1, history + S)
    rolled = roll_emulator(make_linear(1, history), params, start, given, KEY, 4)
    np.testing.assert_allclose(rolled, truth, atol=2e-3)
    without = jnp.asarray(fit_linear(parts))
    one = roll_emulator(make_linear(1), without, start[:, -1:], given.conditions, KEY, 4)
    assert np.abs(one - truth).mean() > 0.1


def test_what_never_changes_is_found_and_left_out() -> None:
    u = normal(3, 4, 3, N)
    u[:, :, 1] = u[:, :1, 1]
    parts = [slice(0, 2), slice(2, 3)]
    assert never_changing(u, parts) == (1,)
    found = from_arrays(u, names=("a", "mask", "b"))._replace(constant=(1,))
    moving = changing(found)
    assert moving.shape == (3, 4, 2, N) and moving.channels == ("a", "b") and not moving.constant
    np.testing.assert_array_equal(moving.read([2, 0], slice(1, 3)), u[[2, 0], 1:3][:, :, [0, 2]])
    np.testing.assert_array_equal(constant_fields(found, (1,)), u[:, 0, 1:2])
    assert changing(moving) is moving
    check_constant(Path("a.h5"), u, (1,))
    u[2, 3, 1, 5] += 1
    assert never_changing(u, parts) == ()
    with pytest.raises(DataError, match="mask: found a change in trajectory 2, frame 3"):
        check_constant(Path("a.h5"), u, (1,), found.channels)

"""Training and rolling emulators: the optimiser, the average, seeds, resuming, the rollout."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import fixtures
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fixtures import wrong

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.ensemble import agreement
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.objectives import Mse, Refiner
from jaxrl_rollouts.pde.training import Training, make_training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

N = 16
SMALL = Training(steps=40, batch=8, warmup=5, per_iteration=10, average=0.9)


@functools.cache
def waves() -> Fields:
    """A wave of wavenumber 1 or 2 that moves one point per frame; the condition says which way."""
    fields, way = fixtures.waves(40, 6, (N,), ways=True)
    return Fields(jnp.asarray(fields[:, :, None], jnp.float32), jnp.asarray(way[:, None], float))


@functools.cache
def one_step() -> Any:
    net = fixtures.tiny().make(FieldShape(1, N, 1))
    return Mse().make(net, 0.5)


def keys(seeds: int) -> jax.Array:
    return jax.random.split(jax.random.key(0), seeds)


def test_updates_are_adam_with_warmup_cosine_clip_and_average() -> None:
    """A linear network, followed by hand with optax's own parts."""
    net = FieldNetwork(lambda key: jnp.float32(0.0), lambda p, u, noised, t, c: p * u)
    emulator = Mse().make(net, 1.0)
    config = Training(
        steps=6,
        batch=4,
        lr=0.1,
        final_lr=0.01,
        warmup=2,
        clip=0.5,
        average=0.8,
        per_iteration=3,
        random_shift=False,
    )
    # One trajectory of two frames: every batch is the same, du = 3 u.
    data = Fields(jnp.asarray([[[[2.0, -2.0]], [[8.0, -8.0]]]]), jnp.zeros((1, 0)))
    training = make_training(emulator, config)
    state = training.init(jax.random.key(0))
    for _ in range(training.iterations):
        state, _ = jax.jit(training.update)(state, data)
    cosine = [0.01 + 0.09 * (1 + np.cos(np.pi * i / 4)) / 2 for i in range(4)]
    rates = [0.1 / 3, 0.1 / 3 + (0.1 - 0.1 / 3) / 2, *cosine]
    weight, average, adam = 0.0, 0.0, optax.scale_by_adam()
    memory = adam.init(jnp.float32(0.0))
    for i, rate in enumerate(rates):
        gradient = np.clip(2 * 4.0 * (weight - 3.0), -0.5, 0.5)
        direction, memory = adam.update(jnp.float32(gradient), memory)
        weight -= rate * float(direction)
        kept = min(0.8, (2 + i) / (11 + i))
        average = kept * average + (1 - kept) * weight
    assert float(state.params) == pytest.approx(weight, rel=1e-5)
    assert float(state.average) == pytest.approx(average, rel=1e-5)


def test_resuming_is_bitwise_the_uninterrupted_run(tmp_path: Path) -> None:
    training = make_training(one_step(), SMALL)
    run = functools.partial(train_loop, training.update, training.init, keys(2), waves(), stage="a")
    whole = run(iterations=4)
    folder = RunFolder.create(tmp_path, "e", "p", SMALL, "command")
    for iterations in (2, 4):
        cut = run(iterations=iterations, context=RunContext(folder, progress=False))
    for a, b in zip(
        jax.tree.leaves(whole.state._replace(key=0)),
        jax.tree.leaves(cut.state._replace(key=0)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def refiner() -> Any:
    """Adds its condition; its refinements say nothing, so noise of a known size is left."""
    net = FieldNetwork(
        lambda key: {}, lambda p, u, noised, t, c: jnp.where(t > 999, c[0] * jnp.ones_like(u), 0.0)
    )
    config = Refiner(min_noise_variance=1e-2, form="noise", first="zeros", sampler="renoise")
    return config.make(net, 1.0)


def test_a_rollout_is_repeated_steps_with_own_conditions() -> None:
    u, given = jnp.zeros((3, 1, 400)), jnp.array([[1.0], [2.0], [-1.0]])
    rolled = roll_emulator(refiner(), {}, u, given, jax.random.key(0), 4)
    assert rolled.shape == (4, 3, 1, 400)
    np.testing.assert_allclose(rolled.mean((2, 3))[3], 4 * given[:, 0], atol=0.2)
    prefix = roll_emulator(refiner(), {}, u, given, jax.random.key(0), 2)
    np.testing.assert_array_equal(rolled[:2], prefix)


def test_every_field_and_step_has_its_own_noise() -> None:
    u, given = jnp.zeros((2, 1, 400)), jnp.zeros((2, 1))
    rolled = np.asarray(roll_emulator(refiner(), {}, u, given, jax.random.key(0), 3))
    noise = np.diff(np.concatenate([u[None], rolled]), axis=0).reshape(6, -1)
    correlations = np.corrcoef(noise) - np.eye(6)
    assert np.abs(correlations).max() < 0.25


def test_agreement_of_samples_falls_as_the_noise_adds_up() -> None:
    wave = jnp.sin(jnp.arange(64) / 64 * 2 * jnp.pi)[None, None]
    keys = jax.random.split(jax.random.key(0), 8)
    roll = jax.vmap(lambda k: roll_emulator(refiner(), {}, wave, jnp.zeros((1, 1)), k, 30))
    found = agreement(roll(keys))[:, 0]
    # Equal waves of variance 1/2 with independent noise of variance s t: correlation .5/(.5 + s t).
    rolled = roll_emulator(refiner(), {}, 0 * wave, jnp.zeros((1, 1)), jax.random.key(1), 30)
    step = float(jnp.square(jnp.diff(rolled[:, 0, 0], axis=0)).mean())
    expected = 0.5 / (0.5 + step * np.arange(1, 31))
    np.testing.assert_allclose(found, expected, atol=0.12)
    assert metrics.correlation_horizons(found[:, None], 1.0)[0] < 30


@pytest.mark.parametrize(
    ("change", "named"),
    wrong(
        dict(steps=0, batch=0, per_iteration=7, final_lr=0.0, warmup=40, clip=0.0, average=1.0),
        dict(final_lr=1.0),
    ),
)
def test_settings_are_checked(change: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make_training(one_step(), Training(**(vars(SMALL) | change)))

"""Emulators that draw samples: their score against formulas, limits, and a distribution learned."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.scores import crps

POINTS = 16


def drawing() -> FieldNetwork:
    """A network that hands the noise on, `params` times."""

    def apply(params: Any, field: Any, noised: Any, index: Any, conditions: Any) -> Any:
        return params * noised

    return FieldNetwork(lambda key: jnp.float32(1.0), apply)


def test_without_noise_it_is_the_mean_absolute_error() -> None:
    net = pde.Resnet(width=4, blocks=1, dilations=(1,), embedding=4)
    made = net.make(pde.FieldShape(1, (POINTS,)))
    params = made.init(jax.random.key(0))
    window = jax.random.normal(jax.random.key(1), (2, 1, POINTS))
    emulator = pde.Crps(members=3, noise=0.0).make(made, 0.5)
    value, metrics = emulator.loss(params, jax.random.key(2), window, jnp.zeros(0))
    change = pde.Mse().make(made, 0.5).step(params, jax.random.key(2), window[0], jnp.zeros(0))
    np.testing.assert_allclose(value, np.abs(change - window[1]).mean() / 0.5, rtol=1e-5)
    assert metrics["spread"] < 1e-6


@pytest.mark.parametrize("members", [2, 5])
def test_the_fair_score_of_the_right_distribution_is_known(members: int) -> None:
    """Truth and members from one normal of deviation s: s / sqrt(pi), whatever M is."""
    emulator = pde.Crps(members=members, alpha=1.0, noise=2.0).make(drawing(), 0.25)
    frames = (
        jnp.zeros((2, 1, 40_000)).at[1].set(0.5 * jax.random.normal(jax.random.key(0), (1, 40_000)))
    )
    value, metrics = emulator.loss(jnp.float32(1.0), jax.random.key(1), frames, jnp.zeros(0))
    np.testing.assert_allclose(value, 2.0 / np.sqrt(np.pi), rtol=0.02)
    np.testing.assert_allclose(metrics["spread"], 2.0 * {2: 0.798, 5: 0.940}[members], rtol=0.02)
    sample = emulator.step(jnp.float32(1.0), jax.random.key(3), frames[0], jnp.zeros(0))
    np.testing.assert_allclose(sample.std(), 0.5, rtol=0.02)


def test_members_go_on_from_their_own_fields() -> None:
    """Two steps of noise: the second score is that of their sums against the second frame."""
    objective = pde.Crps(members=4, alpha=0.95, unroll=2)
    emulator, key = objective.make(drawing(), 1.0), jax.random.key(5)
    window = jax.random.normal(jax.random.key(6), (3, 1, POINTS))
    value, _ = emulator.loss(jnp.float32(1.0), key, window, jnp.zeros(0))
    draws = [
        jax.vmap(lambda k: jax.random.normal(k, (1, POINTS)))(
            jax.random.split(jax.random.fold_in(key, ahead), 4)
        )
        for ahead in (0, 1)
    ]
    fields = [window[0] + draws[0], window[0] + draws[0] + draws[1]]
    scores = [
        crps(f, after, alpha=0.95).mean() for f, after in zip(fields, window[1:], strict=True)
    ]
    np.testing.assert_allclose(value, np.mean(scores), rtol=1e-5)
    assert emulator.frames == 3


def test_it_learns_how_much_is_random_from_a_trained_emulator() -> None:
    """Fields that take random steps of deviation 0.5, and members spread as much."""
    steps = 0.5 * np.random.default_rng(0).normal(size=(64, 21, 1, POINTS))
    fields = pde.from_arrays(u=np.cumsum(steps, 1).astype(np.float32), dt=0.1, dx=0.1)
    net = pde.Resnet(width=8, blocks=1, dilations=(1,), embedding=4)
    mean = pde.fit("mse", fields, network=net, steps=50)
    fitted = pde.fit(pde.Crps(), fields, network=net, start=mean.params, steps=400)
    start = np.zeros((200, 1, POINTS), np.float32)
    rolled = np.asarray(fitted.roll(start, 1))[0]
    np.testing.assert_allclose(rolled[0].std(), 0.5, rtol=0.15)
    assert np.abs(np.asarray(mean.roll(start, 1))[0]).max() < 0.2


@pytest.mark.parametrize(("setting", "value"), [("members", 1), ("alpha", 1.5), ("unroll", 0)])
def test_settings_out_of_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=setting):
        pde.Crps(**{setting: value}).make(drawing(), 1.0)

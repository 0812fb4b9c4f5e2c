"""Rollouts that grow longer while training: their lengths, losses and gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.objectives import Mse, Unrolled
from jaxrl_rollouts.pde.training import Training

N, SCALE = 8, 0.5
KEY, NONE = jax.random.key(0), jnp.zeros((0,))
GROWING = Unrolled(length=4, curriculum=((2, 1), (3, 2)))


def linear(history: int = 1) -> FieldNetwork:
    """`w u_newest`."""

    def apply(params: Any, u: Any, second: Any, index: Any, conditions: Any) -> jax.Array:
        return params["w"] * u[-1:]

    return FieldNetwork(lambda key: {"w": jnp.float32(0.4)}, apply, history)


@pytest.mark.parametrize("history", [1, 2])
def test_the_loss_is_that_of_the_length_of_its_time(history: int) -> None:
    net = linear(history)
    params = net.init(KEY)
    w = np.random.default_rng(0).normal(size=(history + 4, 1, N)).astype(np.float32)
    emulator = GROWING.make(net, SCALE)
    assert emulator.paced and emulator.frames == history + 4
    others = {1: Mse(), 2: Unrolled(length=2), 4: Unrolled(length=4)}
    for count, length in ((0, 1), (1, 1), (2, 2), (4, 2), (5, 4), (99, 4)):
        plain = others[length].make(net, SCALE)
        window = w[: history + length]
        value, metrics = emulator.loss(params, KEY, w, NONE, jnp.int32(count))
        expected, parts = plain.loss(params, KEY, window, NONE)
        assert float(value) == pytest.approx(float(expected), rel=1e-6), count
        last = parts.get("loss_last", expected)
        assert float(metrics["loss_last"]) == pytest.approx(float(last), rel=1e-6)
        assert float(metrics["unrolled"]) == length
        found = jax.grad(lambda p, c=count: emulator.loss(p, KEY, w, NONE, jnp.int32(c))[0])(params)
        right = jax.grad(lambda p, e=plain, x=window: e.loss(p, KEY, x, NONE)[0])(params)
        assert float(found["w"]) == pytest.approx(float(right["w"]), rel=1e-5)
    # Without a number of steps the whole length counts.
    whole = emulator.loss(params, KEY, w, NONE)[0]
    assert float(whole) == float(others[4].make(net, SCALE).loss(params, KEY, w, NONE)[0])


def test_steps_that_do_not_count_yet_cannot_make_a_gradient_infinite() -> None:
    net = linear()
    w = jnp.ones((5, 1, N))
    emulator = GROWING.make(net, SCALE)
    grown = {"w": jnp.float32(1e12)}  # four such steps are beyond float32
    assert not jnp.isfinite(Unrolled(length=4).make(net, SCALE).loss(grown, KEY, w, NONE)[0])
    gradient = jax.grad(lambda p: emulator.loss(p, KEY, w, NONE, jnp.int32(0))[0])(grown)
    assert np.isfinite(gradient["w"]) and gradient["w"] > 0


def test_it_counts_gradient_steps_of_the_training() -> None:
    u = np.random.default_rng(0).normal(size=(4, 8, 1, 16)).cumsum(1).astype(np.float32)
    network = pde.Resnet(width=4, blocks=1, dilations=(1,), embedding=4)
    training = Training(steps=8, batch=2, warmup=0, per_iteration=1)
    fitted = pde.fit(GROWING, pde.from_arrays(u), network=network, seeds=2, training=training)
    lengths = [record.metrics["unrolled"] for record in fitted.history.records]
    np.testing.assert_array_equal(np.stack(lengths)[:, 0], [1, 1, 2, 2, 2, 4, 4, 4])


@pytest.mark.parametrize("wrong", [((0, 1),), ((5, 0),), ((5, 3),)])
def test_a_curriculum_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="curriculum"):
        Unrolled(length=2, curriculum=wrong).make(linear(), SCALE)

"""A refiner after another emulator, whose step is its first prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_oracle import FORMS, NONE, RELEASED, field, oracle

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import Emulator, FieldNetwork, persistence
from jaxrl_rollouts.pde.objectives import Refiner


def of_truth(truth: jax.Array, error: float) -> Emulator:
    """An emulator whose step misses the residual by `error` everywhere."""

    def step(params: Any, key: Any, u: jax.Array, conditions: Any) -> jax.Array:
        return u + params * 0.3 * (truth + error)

    return Emulator(lambda key: jnp.ones(()), step, lambda *_: (jnp.zeros(()), {}), 2, 1)


@pytest.mark.parametrize("config", FORMS[:4])
def test_refinement_after_another_emulator(config: Refiner) -> None:
    truth, u, key = field(1), field(2), jax.random.key(0)
    knowing = config.make(oracle(truth, config), 0.3, after=of_truth(truth, 0.5))
    assert knowing.calls == config.refinements + 1
    params = knowing.init(key)
    after = jax.jit(knowing.step)(params, key, u, NONE)
    np.testing.assert_allclose(after, u + 0.3 * truth, atol=2e-6)
    # With nothing applied it is the other emulator.
    bare = replace(config, applied=0).make(oracle(truth, config), 0.3, after=of_truth(truth, 0.5))
    np.testing.assert_allclose(bare.step(params, key, u, NONE), u + 0.3 * (truth + 0.5), atol=1e-6)


def test_the_other_emulator_is_not_trained_and_no_sample_is_a_first_prediction() -> None:
    net = FieldNetwork(lambda key: jnp.ones(()), lambda p, u, noised, t, c: p * noised)
    emulator = Refiner().make(net, 0.3, after=of_truth(field(1), 0.0))
    params, window = emulator.init(jax.random.key(0)), jnp.stack([field(0), field(1)])
    keys = jax.random.split(jax.random.key(1), 200)

    def total(params: Any) -> tuple[jax.Array, dict]:
        losses, parts = jax.vmap(emulator.loss, (None, 0, None, None))(params, keys, window, NONE)
        return losses.mean(), parts

    (_, parts), gradient = jax.value_and_grad(total, has_aux=True)(params)
    assert float(jnp.abs(gradient[0])) == 0.0 and float(jnp.abs(gradient[1])) > 0.0
    assert float(parts["loss_first"].max()) == 0.0 and float(parts["loss_refine"].min()) > 0.0
    with pytest.raises(ConfigError, match="first_share"):
        Refiner(first_share=0.5).make(net, 0.3, after=of_truth(field(1), 0.0))


def test_weights_of_its_own_at_every_noise() -> None:
    """A refiner of one step after another: each oracle is asked once."""
    truth, u, key = field(1), field(2), jax.random.key(0)
    coarse, fine = (Refiner(refinements=1, min_noise_variance=v) for v in (1e-2, 1e-4))
    one = coarse.make(oracle(truth, coarse), 0.3, after=of_truth(truth, 0.5))
    two = fine.make(oracle(truth, fine), 0.3, after=one)
    assert two.calls == 3
    params = two.init(key)
    assert jax.tree.structure(params) == jax.tree.structure(((jnp.ones(()), {}), {}))
    np.testing.assert_allclose(two.step(params, key, u, NONE), u + 0.3 * truth, atol=2e-6)


def test_stages_after_another_emulator_begin_with_its_step() -> None:
    first, key, u = persistence(), jax.random.key(2), field(0)
    refiner = RELEASED.make(oracle(field(1), RELEASED, 1), 0.3, after=first)
    assert refiner.stages is not None
    stages = refiner.stages(((), {}), key, u, NONE)
    assert len(stages) == RELEASED.refinements + 1 == refiner.calls + 1  # persistence calls nothing
    np.testing.assert_allclose(stages[0], u, rtol=1e-6)

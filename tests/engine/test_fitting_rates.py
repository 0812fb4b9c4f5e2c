"""Weight decay and learning rates of fitted ensembles: per layer, along a cosine, lowered once."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers_fitting import SMALL

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import annealed, gaussian_network, make_optimiser, next_rate


@pytest.mark.parametrize("decay", [(0.1, 0.2, 0.4), (0.3,)])
def test_weight_decay_is_per_layer_and_spares_all_but_kernels(decay: tuple) -> None:
    config = EnsembleConfig(
        hidden_dims=(5, 4), layer_norm=True, lr=2.0, weight_decay=decay, decay="decoupled"
    )
    optimiser = make_optimiser(config)
    params = gaussian_network(config, 3, 2).init(jax.random.key(0))
    params = jax.tree.map(lambda p: p + 1.0, params)
    nothing = jax.tree.map(jnp.zeros_like, params)
    step, _ = optimiser.update(nothing, optimiser.init(params), params)
    each = [*decay, decay[-1]] if len(decay) > 1 else decay * 4  # two heads share the last layer's
    strengths = {f"Dense_{i}": strength for i, strength in enumerate(each)}
    decayed = set()
    for path, leaf in jax.tree_util.tree_flatten_with_path(step)[0]:
        names = [p.key for p in path]
        strength = strengths[names[-2]] if names[-1] == "kernel" else 0.0
        want = functools.reduce(lambda tree, name: tree[name], names, params) * -2.0 * strength
        np.testing.assert_allclose(leaf, want, rtol=1e-6)
        decayed |= {names[-2]} if strength else set()
    assert decayed == set(strengths)


def test_coupled_decay_is_part_of_the_gradient_that_adam_scales() -> None:
    config = EnsembleConfig(hidden_dims=(5,), lr=0.5, weight_decay=(0.3,))
    params = gaussian_network(config, 3, 2).init(jax.random.key(0))
    gradient = jax.tree.map(lambda p: 0.1 * jnp.cos(7.0 * p) + 0.2, params)
    ours, theirs = make_optimiser(config), optax.adam(0.5)
    state, moments = ours.init(params), theirs.init(params)
    for _ in range(3):
        step, state = ours.update(gradient, state, params)
        penalised = jax.tree_util.tree_map_with_path(
            lambda path, g, p: g + 0.3 * p if path[-1].key == "kernel" else g, gradient, params
        )
        want, moments = theirs.update(penalised, moments, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), step, want)


def test_rates_as_functions_of_the_epoch() -> None:
    """What the two slow tests see in a fit, here by itself."""
    parts: Any = SimpleNamespace(config=replace(SMALL, cosine=True, max_epochs=8))
    rates = [float(annealed(parts, ("moments", 9.9), jnp.int32(at))[-1]) for at in (0, 2, 4, 8, 20)]
    shares = np.array([1.0, 0.5 + np.sqrt(0.125), 0.5, 0.0, 0.0])
    np.testing.assert_allclose(rates, SMALL.lr * shares, atol=1e-8)
    parts = SimpleNamespace(config=replace(SMALL, lr_drop=0.3))
    full = jnp.float32(SMALL.lr)
    for early, rate, want, said in [
        (True, full, 0.3 * SMALL.lr, True),
        (True, 0.3 * full, 0.3 * SMALL.lr, False),  # once only
        (False, full, SMALL.lr, False),
    ]:
        (_, found), lowered = next_rate(parts, ("moments", rate), jnp.bool_(early))
        np.testing.assert_allclose(found, want, rtol=1e-6)
        assert bool(lowered) == said


def test_the_default_decay_fits_any_depth() -> None:
    """First, middle and last of PETS' five for two hidden layers; others' lengths are refused."""
    assert EnsembleConfig().layer_decay() == EnsembleConfig().weight_decay
    check(config := EnsembleConfig(hidden_dims=(32, 32)))
    np.testing.assert_allclose(config.layer_decay(), [2.5e-5, 7.5e-5, 1e-4], rtol=1e-12)
    assert replace(config, weight_decay=(0.3,)).layer_decay() == (0.3, 0.3, 0.3)
    with pytest.raises(ConfigError, match="weight_decay: found .*, expected 1 or 3 values"):
        check(replace(config, weight_decay=(0.1, 0.2)))

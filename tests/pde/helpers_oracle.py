"""Refiners' settings, and a network that knows what they should find."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.objectives import Refiner
from jaxrl_rollouts.pde.objectives.refiner import make_schedule

C, N = 2, 24
RELEASED = Refiner(min_noise_variance=4e-7)
FORMS = [
    RELEASED,
    Refiner(sampler="renoise", first="zeros"),
    Refiner(form="noise", sampler="renoise", first="zeros"),
    Refiner(refinements=1, min_noise_variance=1e-4),
    Refiner(refinements=5, samples=3),
]
NONE = jnp.zeros((0,))


def field(seed: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (C, N))


def oracle(truth: jax.Array, config: Refiner, down_to: int = 0) -> FieldNetwork:
    """A network that knows the residual `truth`; below index `down_to` it says zero."""
    plan = make_schedule(config.refinements, config.min_noise_variance)
    share = 1.0 - plan.signal if config.form == "v" else plan.variance
    dirt = jnp.asarray(np.sqrt(share), jnp.float32)
    clean = jnp.asarray(np.sqrt(1.0 - share), jnp.float32)

    def apply(params: Any, u: Any, noised: jax.Array, index: Any, conditions: Any) -> jax.Array:
        t = jnp.round(index * config.refinements / 1000.0).astype(int)
        if config.form == "v":
            noise = (noised - clean[t] * truth) / dirt[t]
            said = clean[t] * noise - dirt[t] * truth
            first = -truth  # whatever the second input
        else:
            said, first = (noised - truth) / dirt[t], truth
        return jnp.where(t == config.refinements, first, jnp.where(t < down_to, 0.0, said))

    return FieldNetwork(lambda key: {}, apply)

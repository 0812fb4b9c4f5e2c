"""Steps of a solver, and the plane."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

TURN = 2 * np.pi


def march(solver: Callable, u: jax.Array, steps: int) -> np.ndarray:
    body = jax.jit(lambda u: jax.lax.fori_loop(0, steps, lambda _, u: solver(u), u))
    return np.asarray(body(u))


def plane(points: int, extent: float = TURN) -> tuple[jax.Array, jax.Array]:
    x = jnp.arange(points) * extent / points
    return x[:, None], x[None]

"""One step of gradient descent, as every learner takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from .trees import PyTree


def descend(
    optimiser: optax.GradientTransformation,
    loss: Callable[..., tuple[jax.Array, Any]],
    params: PyTree,
    moments: optax.OptState,
    *args: Any,
) -> tuple[PyTree, optax.OptState, jax.Array, Any]:
    """Move `params` against the gradient of a loss.

    Args:
        loss: `(params, *args) -> (scalar, more)`.

    Returns:
        Parameters, moments, the loss before the step and what came with it.
    """
    (value, more), gradient = jax.value_and_grad(loss, has_aux=True)(params, *args)
    step, moments = optimiser.update(gradient, moments, params)
    return optax.apply_updates(params, step), moments, value, more

"""One step of gradient descent, shared by all learners; and Adam with averaged weights.

Emulators and denoisers are trained by the latter, on batches drawn anew: an update for the loop.
Each brings its loss, its batches, its learning rate and how fast its average follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .errors import ConfigError
from .feeds import Drawn
from .trees import PyTree


def gradient_step(
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


def falling(rate: float, steps: int | None) -> Any:
    """The rate along a cosine to zero over `steps`; None (or 0) keeps it."""
    return optax.cosine_decay_schedule(rate, steps) if steps else rate


class AveragedState(NamedTuple):
    """State of one seed; `average` is what is used afterwards."""

    params: PyTree
    average: PyTree
    optimiser: optax.OptState
    key: jax.Array


class AveragedTraining(NamedTuple):
    """Functions of one configuration; see `make_averaged`.

    Attributes:
        init: `(key, data=None) -> AveragedState`.
        update: `per_iteration` gradient steps, `(state, data) -> (state, metrics)`.
        iterations: number of iterations of the loop.
    """

    init: Callable[..., AveragedState]
    update: Callable[[AveragedState, PyTree], tuple[AveragedState, dict[str, jax.Array]]]
    iterations: int


def check_schedule(config: Any) -> None:
    """Check how `steps`, `per_iteration`, `warmup`, `clip` and `average` of a config fit."""
    if config.steps % config.per_iteration:
        expected = f"a divisor of steps ({config.steps})"
        raise ConfigError("per_iteration", config.per_iteration, expected)
    if not 0 <= config.warmup < config.steps:
        raise ConfigError("warmup", config.warmup, f"from 0 to below steps ({config.steps})")
    if config.clip is not None and config.clip <= 0:
        raise ConfigError("clip", config.clip, "above 0", "leave it out for no clipping")
    if not 0 <= config.average < 1:
        raise ConfigError("average", config.average, "in [0, 1)")


def iteration_keys(config: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys `[per_iteration, 2]` of batch and loss of every step of an iteration that begins with
    this key, and the key after it."""
    learn_key, key = jax.random.split(key)
    return jax.vmap(jax.random.split)(jax.random.split(learn_key, config.per_iteration)), key


def make_averaged(
    config: Any,
    optimiser: optax.GradientTransformation,
    weight: Callable[[jax.Array], jax.Array],
    init_params: Callable[[jax.Array], PyTree],
    draw: Callable[[jax.Array, PyTree], tuple],
    loss: Callable[..., tuple[jax.Array, dict[str, jax.Array]]],
    start: Callable[[PyTree, PyTree], PyTree] | None = None,
    counted: bool = False,
) -> AveragedTraining:
    """Functions for `train_loop`.

    Args:
        draw: `(key, data) -> batch`, a tuple; `data` is an update's own part of them where they
            were `Drawn` before.
        loss: `(params, key, *batch) -> (loss, metrics)`.
        start: `(params, data) -> params`, what to begin with in their place (a teacher's, say).
        counted: whether the loss takes the number of steps before this one behind the batch.
    """
    limit = [optax.clip_by_global_norm(config.clip)] if config.clip is not None else []
    optimise = optax.chain(*limit, optimiser)

    def init(key: jax.Array, data: PyTree = None) -> AveragedState:
        net_key, key = jax.random.split(key)
        params = init_params(net_key)
        if start is not None:
            params = start(params, data)
        # Separate buffers: a donated state cannot contain one twice.
        average = jax.tree.map(jnp.copy, params)
        return AveragedState(params, average, optimise.init(params), key)

    def update(state: AveragedState, data: PyTree) -> tuple[AveragedState, dict[str, jax.Array]]:
        keys, key = iteration_keys(config, state.key)
        drawn = data.batches if isinstance(data, Drawn) else None

        def learn(carry: tuple, step: tuple) -> tuple[tuple, dict[str, jax.Array]]:
            params, average, moments = carry
            (draw_key, loss_key), ready = step
            batch = draw(draw_key, data if ready is None else ready)
            batch = (*batch, _count(moments)) if counted else batch
            (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(
                params, loss_key, *batch
            )
            change, moments = optimise.update(gradient, moments, params)
            params = optax.apply_updates(params, change)
            average = optax.incremental_update(params, average, weight(_count(moments)))
            recorded = {"loss": value, **metrics, "gradient_norm": optax.tree.norm(gradient)}
            return (params, average, moments), recorded

        before = (state.params, state.average, state.optimiser)
        carry, metrics = jax.lax.scan(learn, before, (keys, drawn))
        return AveragedState(*carry, key), jax.tree.map(jnp.mean, metrics)

    return AveragedTraining(init, update, config.steps // config.per_iteration)


def _count(moments: optax.OptState) -> jax.Array:
    """Steps that an optimiser has taken."""
    return optax.tree_utils.tree_get_all_with_path(moments, "count")[0][1]

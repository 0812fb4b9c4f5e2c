"""Training of a denoiser: an update for the loop, with the moving average of the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..configs import at_least_one
from ..errors import ConfigError
from .edm import Denoiser

PyTree = Any


@dataclass(frozen=True)
class DenoiserTrainingConfig:
    """Adam with warm-up and a cosine to zero; averaged weights are the ones to sample with.

    Defaults are SynthER's. Policy-guided diffusion: rate 2e-3, betas 0.9 and 0.999, a tenth of
    the updates as warm-up, no clipping, batches of 32 windows.

    Attributes:
        updates: gradient steps in all.
        batch: rows per step.
        rate: peak learning rate.
        betas: of Adam.
        warmup: updates over which the rate rises from a tenth of its peak.
        clip: greatest global norm of a gradient; None for no clipping.
        average: decay of the moving average, applied every `average_every` updates. It ramps up
            as `1 - (1 + k)^(-2/3)`, so that short trainings forget their first weights.
        per_iteration: updates in one iteration of the loop.
    """

    updates: int = 100_000
    batch: int = 256
    rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = 0
    clip: float | None = 1.0
    average: float = 0.995
    average_every: int = 10
    per_iteration: int = 500

    def validate(self) -> None:
        at_least_one(self, "updates", "batch", "average_every", "per_iteration")
        if self.updates % self.per_iteration:
            expected = f"a divisor of updates ({self.updates})"
            raise ConfigError("per_iteration", self.per_iteration, expected)
        if self.rate <= 0 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError("rate, betas", (self.rate, self.betas), "above 0 and in [0, 1)")
        if not 0 <= self.warmup < self.updates:
            raise ConfigError("warmup", self.warmup, f"from 0 to below updates ({self.updates})")
        if self.clip is not None and self.clip <= 0:
            raise ConfigError("clip", self.clip, "above 0", "leave it out for no clipping")
        if not 0 <= self.average < 1:
            raise ConfigError("average", self.average, "in [0, 1)")


class DenoiserTrainingState(NamedTuple):
    """State of one seed; `average` is what is sampled with."""

    params: PyTree
    average: PyTree
    optimiser: optax.OptState
    count: jax.Array
    key: jax.Array


class DenoiserTraining(NamedTuple):
    """Functions of one configuration; see `make_denoiser_training`.

    Attributes:
        init: `key -> DenoiserTrainingState`.
        update: `per_iteration` gradient steps, `(state, data) -> (state, metrics)`.
        iterations: of the loop.
    """

    init: Callable[[jax.Array], DenoiserTrainingState]
    update: Callable[
        [DenoiserTrainingState, PyTree], tuple[DenoiserTrainingState, dict[str, jax.Array]]
    ]
    iterations: int


def take_rows(data: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
    """The default `batch_of`: rows of one array, every entry weighed alike."""
    return data[rows], None


@functools.lru_cache(maxsize=32)
def make_denoiser_training(
    denoiser: Denoiser,
    config: DenoiserTrainingConfig,
    batch_of: Callable[[PyTree, jax.Array], tuple[jax.Array, jax.Array | None]] = take_rows,
) -> DenoiserTraining:
    """Functions for `loop.train`. Equal arguments give the same functions.

    Args:
        denoiser: what learns.
        config: optimisation.
        batch_of: `(data, rows [B] int32) -> (clean rows [B, ...], weights or None)`, where rows
            index the first leaf of `data`; weights are those of `Denoiser.loss`.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    rate = optax.cosine_decay_schedule(config.rate, config.updates - config.warmup)
    if config.warmup:
        rise = optax.linear_schedule(0.1 * config.rate, config.rate, config.warmup)
        rate = optax.join_schedules([rise, rate], [config.warmup])
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip is not None else []
    optimise = optax.chain(*parts, optax.adam(rate, *config.betas))

    def init(key: jax.Array) -> DenoiserTrainingState:
        net_key, key = jax.random.split(key)
        params = denoiser.init(net_key)
        return DenoiserTrainingState(params, params, optimise.init(params), jnp.int32(0), key)

    def follow(average: PyTree, params: PyTree, count: jax.Array) -> PyTree:
        """The average after update number `count`; moves every `average_every` of them."""
        times = count // config.average_every
        decay = jnp.minimum(config.average, 1.0 - (1.0 + times) ** (-2.0 / 3.0))
        moved = jnp.where(count % config.average_every == 0, 1.0 - decay, 0.0)
        return optax.incremental_update(params, average, moved)

    def update(
        state: DenoiserTrainingState, data: PyTree
    ) -> tuple[DenoiserTrainingState, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)
        size = jax.tree.leaves(data)[0].shape[0]

        def learn(carry: tuple, key: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
            params, average, optimiser, count = carry
            row_key, loss_key = jax.random.split(key)
            rows = jax.random.randint(row_key, (config.batch,), 0, size)
            loss, gradient = jax.value_and_grad(denoiser.loss)(
                params, loss_key, *batch_of(data, rows)
            )
            step, optimiser = optimise.update(gradient, optimiser, params)
            params = optax.apply_updates(params, step)
            average = follow(average, params, count + 1)
            found = {"loss": loss, "gradient_norm": optax.global_norm(gradient)}
            return (params, average, optimiser, count + 1), found

        keys = jax.random.split(learn_key, config.per_iteration)
        before = (state.params, state.average, state.optimiser, state.count)
        carry, metrics = jax.lax.scan(learn, before, keys)
        return DenoiserTrainingState(*carry, key), jax.tree.map(jnp.mean, metrics)

    return DenoiserTraining(init, update, config.updates // config.per_iteration)

"""Training of emulators: an update for the loop, with the moving average of the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError

from .emulator import Emulator
from .fieldset import Fields, sample_windows

PyTree = Any


@dataclass(frozen=True)
class TrainingConfig:
    """Adam with warm-up and a cosine to `final_rate`, clipped; averaged weights are evaluated.

    Defaults suit small networks; the paper's are batch 128, 1e-4 to 1e-6, no warm-up, no
    clipping and an average with decay 0.995. The average's decay rises to `average` as
    `(1 + n) / (10 + n)`. `every` frames of the data are one step.
    """

    updates: int = 20_000
    batch: int = 32
    rate: float = 1e-3
    final_rate: float = 1e-5
    warmup: int = 500
    clip: float | None = 1.0
    average: float = 0.999
    shift: bool = True
    every: int = 1
    per_iteration: int = 100

    def validate(self) -> None:
        at_least_one(self, "updates", "batch", "every", "per_iteration")
        if self.updates % self.per_iteration:
            expected = f"a divisor of updates ({self.updates})"
            raise ConfigError("per_iteration", self.per_iteration, expected)
        if not 0 < self.final_rate <= self.rate:
            raise ConfigError("final_rate", self.final_rate, f"above 0, at most rate {self.rate}")
        if not 0 <= self.warmup < self.updates:
            raise ConfigError("warmup", self.warmup, f"from 0 to below updates ({self.updates})")
        if self.clip is not None and self.clip <= 0:
            raise ConfigError("clip", self.clip, "above 0", "leave it out for no clipping")
        if not 0 <= self.average < 1:
            raise ConfigError("average", self.average, "in [0, 1)")


class TrainingState(NamedTuple):
    """State of one seed; `average` is what is evaluated."""

    params: PyTree
    average: PyTree
    optimiser: optax.OptState
    key: jax.Array


class Training(NamedTuple):
    """Functions of one configuration; see `make_training`.

    Attributes:
        init: `key -> TrainingState`.
        update: `per_iteration` gradient steps, `(state, Fields) -> (state, metrics)`.
        iterations: of the loop.
    """

    init: Callable[[jax.Array], TrainingState]
    update: Callable[[TrainingState, Fields], tuple[TrainingState, dict[str, jax.Array]]]
    iterations: int


@functools.lru_cache(maxsize=32)
def make_training(emulator: Emulator, config: TrainingConfig) -> Training:
    """Functions for `loop.train`. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    config.validate()
    cosine = optax.cosine_decay_schedule(
        config.rate, config.updates - config.warmup, config.final_rate / config.rate
    )
    # The first step is not lost at a rate of zero.
    rise = optax.linear_schedule(config.rate / (config.warmup + 1), config.rate, config.warmup)
    rate = optax.join_schedules([rise, cosine], [config.warmup]) if config.warmup else cosine
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip is not None else []
    optimise = optax.chain(*parts, optax.adam(rate))

    def kept(optimiser: optax.OptState) -> jax.Array:
        """Share of the average that stays; less at first, so that short trainings forget theirs."""
        count = optax.tree_utils.tree_get_all_with_path(optimiser, "count")[0][1]
        return jnp.minimum(config.average, (1.0 + count) / (10.0 + count))

    def init(key: jax.Array) -> TrainingState:
        net_key, key = jax.random.split(key)
        params = emulator.init(net_key)
        return TrainingState(params, params, optimise.init(params), key)

    def batch_loss(
        params: PyTree, keys: jax.Array, windows: jax.Array, conditions: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        losses, metrics = jax.vmap(emulator.loss, (None, 0, 0, 0))(
            params, keys, windows, conditions
        )
        return losses.mean(), jax.tree.map(lambda x: x.mean(), metrics)

    def update(state: TrainingState, data: Fields) -> tuple[TrainingState, dict[str, jax.Array]]:
        learn_key, key = jax.random.split(state.key)

        def learn(
            carry: tuple[PyTree, PyTree, optax.OptState], key: jax.Array
        ) -> tuple[tuple, dict[str, jax.Array]]:
            params, average, optimiser = carry
            window_key, loss_key = jax.random.split(key)
            windows, conditions = sample_windows(
                data, window_key, config.batch, emulator.frames, shift=config.shift,
                every=config.every,
            )  # fmt: skip
            keys = jax.random.split(loss_key, config.batch)
            (loss, metrics), gradient = jax.value_and_grad(batch_loss, has_aux=True)(
                params, keys, windows, conditions
            )
            step, optimiser = optimise.update(gradient, optimiser, params)
            params = optax.apply_updates(params, step)
            average = optax.incremental_update(params, average, 1.0 - kept(optimiser))
            found = {"loss": loss, **metrics, "gradient_norm": optax.global_norm(gradient)}
            return (params, average, optimiser), found

        keys = jax.random.split(learn_key, config.per_iteration)
        carry = (state.params, state.average, state.optimiser)
        carry, metrics = jax.lax.scan(learn, carry, keys)
        return TrainingState(*carry, key), jax.tree.map(jnp.mean, metrics)

    return Training(init, update, config.updates // config.per_iteration)

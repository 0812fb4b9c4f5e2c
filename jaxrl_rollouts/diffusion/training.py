"""Training of a denoiser: an update for the loop, with the moving average of the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from ..configs import check, positive, step_size
from ..descent import AveragedTraining, check_schedule, make_averaged
from ..errors import ConfigError
from ..loop import Trained, train_loop
from ..record.context import RunContext
from ..trees import PyTree
from .edm import Denoiser
from .flow import DistillationBatch, Flow, FlowConfig, distillation_batch, start_from_teacher
from .jumps import JumpConfig


@dataclass(frozen=True)
class DenoiserTrainingConfig:
    """Adam with warm-up and a cosine to zero; averaged weights are the ones to sample with.

    Defaults are SynthER's for fewer than 800,000 rows. Policy-guided diffusion: lr 2e-3, betas
    0.9 and 0.999, a tenth of the steps as warm-up, no clipping, batches of 32 windows.

    Attributes:
        steps: gradient steps in all.
        batch: rows per step.
        lr: peak learning rate.
        betas: betas of Adam.
        warmup: steps over which the rate rises from a tenth of its peak.
        clip: greatest global norm of a gradient; None for no clipping.
        average: decay of the moving average, applied every `average_every` steps. It ramps up
            as `1 - k^(-2/3)`, so that short trainings forget their first weights.
        average_every: steps between two moves of the average.
        ramp: k in this: "delayed", the steps beyond the first hundred, during which the average
            is the weights themselves (ema_pytorch's, and so SynthER's); "immediate", the moves of
            the average, and one, for trainings of fewer than a few hundred steps.
        per_iteration: steps in one iteration of the loop.
    """

    steps: int = positive(100_000)
    batch: int = positive(256)
    lr: float = step_size(3e-4)
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = 0
    clip: float | None = 1.0
    average: float = 0.995
    average_every: int = positive(10)
    ramp: Literal["delayed", "immediate"] = "delayed"
    per_iteration: int = positive(500)

    def validate(self) -> None:
        check_schedule(self)
        if self.lr <= 0 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError("lr, betas", (self.lr, self.betas), "above 0 and in [0, 1)")


def small_training(steps: int, batch: int, *, lr: float = 1e-3) -> DenoiserTrainingConfig:
    """For a small budget: a tenth is warm-up, the average goes back a twentieth of it."""
    per = max(steps // 10, 1)
    return DenoiserTrainingConfig(
        steps=steps,
        batch=batch,
        lr=lr,
        betas=(0.9, 0.999),
        warmup=per,
        average=1.0 - min(0.5, 20.0 / steps),
        average_every=1,
        ramp="immediate",
        per_iteration=per,
    )


def unweighted_rows(data: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
    """The default `batch_of`: rows of one array, every entry weighed alike."""
    return data[rows], None


@functools.lru_cache(maxsize=32)
def make_denoiser_training(
    denoiser: Denoiser | Flow,
    config: DenoiserTrainingConfig,
    batch_of: Callable[[PyTree, jax.Array], tuple] = unweighted_rows,
    start: Callable[[PyTree, PyTree], PyTree] | None = None,
) -> AveragedTraining:
    """Functions for `train_loop`. Equal arguments give the same functions.

    Args:
        denoiser: the model that is trained.
        config: optimisation.
        batch_of: `(data, rows [B] int32) -> (clean rows [B, ...], weights or None)`, where rows
            index the first leaf of `data`; weights, and what follows them (of a `Flow`: the
            condition and a teacher's parameters), are those of its `loss`.
        start: `(fresh parameters, data) -> parameters` to begin with; None for fresh ones.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    rate = optax.cosine_decay_schedule(config.lr, config.steps - config.warmup)
    if config.warmup:
        rise = optax.linear_schedule(0.1 * config.lr, config.lr, config.warmup)
        rate = optax.join_schedules([rise, rate], [config.warmup])

    def weight(count: jax.Array) -> jax.Array:
        """Of the new weights in the average, which moves every `average_every` steps."""
        if config.ramp == "immediate":
            k = 1.0 + count // config.average_every
        else:
            k = 1.0 * jnp.maximum(count - 100, 1)
        decay = jnp.minimum(config.average, 1.0 - k ** (-2.0 / 3.0))
        return jnp.where(count % config.average_every == 0, 1.0 - decay, 0.0)

    def draw(key: jax.Array, data: PyTree) -> tuple:
        size = jax.tree.leaves(data)[0].shape[0]
        return batch_of(data, jax.random.randint(key, (config.batch,), 0, size))

    def loss(params: PyTree, key: jax.Array, *batch: PyTree) -> tuple[jax.Array, dict]:
        return denoiser.loss(params, key, *batch), {}

    adam = optax.adam(rate, *config.betas)
    return make_averaged(config, adam, weight, denoiser.init, draw, loss, start)


def train_denoiser(
    denoiser: Denoiser,
    config: DenoiserTrainingConfig,
    rows: jax.Array,
    keys: jax.Array,
    *,
    stage: str,
    context: RunContext | None,
) -> Trained:
    """Train denoisers side by side on the same rows.

    Args:
        denoiser: the model that is trained.
        config: optimisation.
        rows: `[N, ...]`, clean.
        keys: `[seeds]`, consumed, one for each.
        stage, context: as for `train_loop`.

    Returns:
        `Trained`; the weights to sample with are its `state.average`.

    Raises:
        ConfigError: a setting is out of range.
    """
    training = make_denoiser_training(denoiser, config)
    return _train(training, config, rows, keys, stage=stage, context=context)


@dataclass(frozen=True)
class DistilConfig:
    """A few-step student: its loss, training and sampling.

    Attributes:
        flow: the student; a consistency model in as many segments as there are jumps.
        training: settings of its training, which starts at the teacher's weights.
        jumps: settings of its sampling.
    """

    flow: FlowConfig = field(default_factory=lambda: FlowConfig(loss="consistency"))
    training: DenoiserTrainingConfig = field(default_factory=DenoiserTrainingConfig)
    jumps: JumpConfig = field(default_factory=JumpConfig)

    def validate(self) -> None:
        if self.flow.loss == "velocity":
            raise ConfigError("flow.loss", "velocity", "a loss that a teacher has something for")


def small_distil(calls: int, steps: int, batch: int) -> DistilConfig:
    """A consistency student of `calls` jumps; 64 steps of its teacher in all, 16 in a segment."""
    flow = FlowConfig(loss="consistency", segments=calls, steps=max(64 // calls, 8))
    return DistilConfig(flow, small_training(steps, batch), JumpConfig(calls))


def distil(
    flow: Flow,
    config: DenoiserTrainingConfig,
    lesson: DistillationBatch,
    keys: jax.Array,
    *,
    own_rows: bool = False,
    stage: str,
    context: RunContext | None,
) -> Trained:
    """Train students side by side, each from the weights of its own teacher and on his velocities.

    Args:
        flow: the student, made with its teacher.
        config: optimisation.
        lesson: rows and the teachers' parameters, `[seeds, ...]` each.
        keys: `[seeds]`, consumed, one for each.
        own_rows: rows have a leading seed axis, too.
        stage, context: as for `train_loop`.

    Returns:
        `Trained`; the weights to sample with are its `state.average`.

    Raises:
        ConfigError: a setting is out of range.
    """
    training = make_denoiser_training(flow, config, distillation_batch, start_from_teacher)
    per_seed: Any = own_rows, True
    run: dict[str, Any] = {
        "per_seed": DistillationBatch(*per_seed),
        "stage": stage,
        "context": context,
    }
    return _train(training, config, lesson, keys, **run)


def _train(
    training: AveragedTraining,
    config: DenoiserTrainingConfig,
    data: PyTree,
    keys: jax.Array,
    **run: Any,
) -> Trained:
    lengths: dict[str, Any] = {
        "iterations": training.iterations,
        "units_per_iteration": config.per_iteration,
    }
    return train_loop(training.update, training.init, keys, data, about=config, **lengths, **run)

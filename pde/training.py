"""Training of emulators: an update for the loop, with the moving average of the weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxrl_rollouts.configs import check, positive, step_size
from jaxrl_rollouts.descent import AveragedTraining, check_schedule, make_averaged
from jaxrl_rollouts.devices import BATCH, SPACE, mesh_along, split
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from .emulator import Emulator
from .equations import EQUATIONS
from .fieldset import Fields, FieldSet, sample_windows
from .precision import Precision, Shard


@dataclass(frozen=True)
class Training:
    """Adam with warm-up and a cosine to `final_lr`, clipped; averaged weights are evaluated.

    Defaults suit small networks; the paper's are batch 128, 1e-4 to 1e-6, no warm-up, no
    clipping and an average with decay 0.995. The average's decay rises to `average` as
    `(1 + n) / (10 + n)`.

    Attributes:
        steps: gradient steps in all.
        batch: windows in a gradient step.
        lr: learning rate after the warm-up.
        final_lr: final learning rate of its cosine decay.
        warmup: gradient steps in which it rises from zero.
        clip: largest global norm of the gradient; None for no limit.
        average: decay of the weights' moving average.
        random_shift: roll each window by a random number of points: for circles only. Networks
            that treat all points alike learn nothing from it; it costs 0 to 3 % of a step.
        shift_axes: axes of these shifts; None for every axis.
        stride: frames of the data per step of the emulator.
        per_iteration: gradient steps between two records in the log.
        precision: precision of the network's computations in training: float32 or bfloat16.
            Weights, losses and what is saved and rolled are float32.
        remat: gradients window by window, activations computed again: one window's at a time are
            in memory, for a third more computation.
        shard: axis split over devices: seeds; `batch`, the windows of each gradient step, which
            one seed's training gains from, CPU cores included (`prepare`); or `space`, the first
            axis of space of each window, for grids whose activations one device cannot hold. Data
            stay whole on each. Sums are then taken in another order: on as many devices results
            are the same bits, on others not.
    """

    steps: int = positive(20_000)
    batch: int = positive(32)
    lr: float = step_size(1e-3)
    final_lr: float = 1e-5
    warmup: int = 500
    clip: float | None = 1.0
    average: float = 0.999
    random_shift: bool = True
    shift_axes: tuple[int, ...] | None = None
    stride: int = positive(1)
    per_iteration: int = positive(100)
    precision: Precision = "float32"
    remat: bool = False
    shard: Shard = "seeds"

    def validate(self) -> None:
        check_schedule(self)
        if not 0 < self.final_lr <= self.lr:
            raise ConfigError("final_lr", self.final_lr, f"above 0, at most lr {self.lr}")


@functools.lru_cache(maxsize=32)
def make_training(emulator: Emulator, config: Training) -> AveragedTraining:
    """Functions for `train_loop`. Equal arguments give the same functions."""
    check(config)
    cosine = optax.cosine_decay_schedule(
        config.lr, config.steps - config.warmup, config.final_lr / config.lr
    )
    # A first step at a rate of zero would change nothing.
    rise = optax.linear_schedule(config.lr / (config.warmup + 1), config.lr, config.warmup)
    rate = optax.join_schedules([rise, cosine], [config.warmup]) if config.warmup else cosine

    def weight(count: jax.Array) -> jax.Array:
        """The average forgets more at first, so that short trainings forget their beginning."""
        return 1.0 - jnp.minimum(config.average, (1.0 + count) / (10.0 + count))

    def draw(key: jax.Array, data: Fields) -> tuple[jax.Array, jax.Array]:
        return sample_windows(
            data,
            key,
            config.batch,
            emulator.frames,
            random_shift=config.random_shift,
            axes=config.shift_axes,
            stride=config.stride,
        )

    def batch_loss(
        params: PyTree, key: jax.Array, windows: jax.Array, conditions: jax.Array, *count: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        keys = jax.random.split(key, config.batch)
        keys, windows, conditions = split((keys, windows, conditions), BATCH)
        windows = split(windows, SPACE, place=3)

        def loss(*window: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            return emulator.loss(params, *window, *count)

        if config.remat:
            losses, metrics = jax.lax.map(lambda window: loss(*window), (keys, windows, conditions))
        else:
            losses, metrics = jax.vmap(loss)(keys, windows, conditions)
        return losses.mean(), jax.tree.map(lambda x: x.mean(), metrics)

    return make_averaged(
        config, optax.adam(rate), weight, emulator.init, draw, batch_loss, counted=emulator.paced
    )


def over_devices(training: Training, points: int) -> Mesh | None:
    """Devices over windows or their first axis of space, where it is to be spread and there are
    several.

    Raises:
        ConfigError: no number of devices divides the `batch`, or the `points` of the axis.
    """
    kinds = {
        "batch": (BATCH, training.batch, f"a batch of {training.batch}"),
        "space": (SPACE, points, f"a first axis of space of {points} points"),
    }
    if training.shard not in kinds or len(jax.devices()) == 1:
        return None
    axis, size, found = kinds[training.shard]
    if (mesh := mesh_along(axis, size)) is None:
        expected = "what devices divide evenly"
        raise ConfigError("shard", f"{training.shard}, {found}", expected, 'take "seeds"')
    return mesh


def training_of(
    training: Training | None,
    steps: int | None,
    stride: int,
    fields: FieldSet,
    evaluations: int = 1,
) -> Training:
    """The training's settings, for so many steps, moving windows along circles only."""
    training = training or Training()
    if steps is not None and steps >= 1:
        warmup = min(training.warmup, steps // 10)
        training = replace(training, steps=steps, warmup=warmup, per_iteration=1)
    elif steps is not None:
        raise ConfigError("steps", steps, "at least 1")
    if steps is not None or training.steps // training.per_iteration < evaluations:
        # Records come between iterations only: as many steps in each as evaluations leave.
        most = min(100, max(1, training.steps // evaluations))
        per = max(n for n in range(1, most + 1) if training.steps % n == 0)
        training = replace(training, per_iteration=per)
    circles = training.shift_axes
    if circles is None:
        forced = EQUATIONS[fields.equation].forced if fields.equation else ()
        kinds = enumerate(fields.boundaries)
        circles = tuple(axis for axis, kind in kinds if kind == "periodic" and axis not in forced)
    _check_circles(circles, fields)
    shift = training.random_shift and bool(circles)
    return replace(training, stride=stride, random_shift=shift, shift_axes=circles or None)


def _check_circles(axes: tuple[int, ...], fields: FieldSet) -> None:
    """`ConfigError` where windows cannot be moved along one of the axes: a wall, or no axis."""
    count = len(fields.shape[3:])
    for axis in axes:
        if not 0 <= axis < count:
            known = "0" if count == 1 else f"0 to {count - 1}"
            raise ConfigError("shift_axes", list(axes), f"axes of space: {known}")
        kind = fields.boundaries[axis] if fields.boundaries else ""
        if kind not in ("", "periodic"):
            expected = f"periodic axes; {fields.path.name} has axis {axis}: {kind}"
            raise ConfigError("shift_axes", list(axes), expected)

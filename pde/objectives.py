"""Emulators without refinement: one-step MSE, pushforward, unrolled, Sobolev, error correction.

The baselines PDE-Refiner is compared with (Lippe et al. 2023, section 4). Error correction calls
the network twice without any noise: what it does not gain is not owed to the second call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from .emulator import (
    FIRST_INDEX,
    Conditions,
    Emulator,
    FieldNetwork,
    Metrics,
    Scale,
    check_scale,
    kind_and_settings,
    latest,
    opening,
    per_channel,
    pushed,
    residual,
    squared_error,
)
from .spectral import waves

Error = Callable[[jax.Array, jax.Array], jax.Array]
OneStep = Literal["mse", "pushforward", "unrolled", "sobolev", "correction", "prediction"]
Loss = Literal["squared", "relative_l1"]
OBJECTIVES: tuple[str, ...] = get_args(OneStep)
SECOND_CALL = 0.0  # the index a correcting call sees


@dataclass(frozen=True)
class OneStepConfig:
    """How a one-step emulator is trained.

    Attributes:
        objective: `mse`; `pushforward` (the second step's loss, from a first step without
            gradient); `unrolled` (gradients through `unroll` steps); `sobolev` (MSE of spectral
            derivatives too); `correction` and `prediction` (a second call that sees the first
            one's output and predicts the residual again, or its error).
        residual_scale: c; about the standard deviation of a step's change: one for all channels,
            or one for each.
        unroll: steps of `unrolled`.
        sobolev_order: highest derivative in the Sobolev norm.
        loss: what is averaged: `squared` differences of scaled changes; `relative_l1`, absolute
            ones of the fields over the mean size of the true one, channel by channel (Poseidon's
            and DRIFT-Net's is by groups of channels, a velocity being one). Not of `sobolev`.
        frequency_weight: of `frequency_error`, which is added; DRIFT-Net's, whose released code
            divides it by the number of points, where it is a millionth of the loss.
    """

    objective: OneStep = "mse"
    residual_scale: Scale = 0.3
    unroll: int = number(2, least=2, expected="at least 2; one step is the objective mse")
    sobolev_order: int = positive(1)
    loss: Loss = "squared"
    frequency_weight: float = number(0.0, least=0)

    def validate(self) -> None:
        if self.objective == "sobolev" and self.loss != "squared":
            raise ConfigError("loss", self.loss, "squared, with the objective sobolev")
        check_scale(self.residual_scale)


def sobolev_error(order: int) -> Error:
    """Squared error of a field and of its first `order` derivatives, as a mean over space.

    Derivatives are spectral on a domain of length 2 pi, so a unit sine of wavenumber k counts
    `1 + k^2 + ... + k^(2 order)` times; along every axis of space.
    """

    def error(prediction: jax.Array, target: jax.Array) -> jax.Array:
        shape, axes = target.shape[1:], tuple(range(1, target.ndim))
        grids = [jnp.fft.fftfreq(n, 1.0 / n) for n in shape]
        squared = sum(jnp.square(k) for k in jnp.meshgrid(*grids, indexing="ij"))
        weight = sum(squared**i for i in range(order + 1))
        modes = jnp.fft.fftn(prediction - target, axes=axes)
        points = target[0].size
        return (weight * jnp.square(jnp.abs(modes))).sum() / points**2

    return error


def relative_error(prediction: jax.Array, target: jax.Array, truth: jax.Array) -> jax.Array:
    """`mean |p - t| / (mean |truth| + 1e-10)` of every channel of `[C, *space]`, their mean."""
    space = tuple(range(1, target.ndim))
    size = jnp.abs(truth).mean(space) + 1e-10
    return (jnp.abs(prediction - target).mean(space) / size).mean()


def frequency_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """`mean (|k| / k_max)^1.5 |F(p - t)|^2` over channels and the bins of a unitary transform.

    Lengths are shares of each axis's highest wavenumber (DRIFT-Net).
    """
    shape, axes = target.shape[1:], tuple(range(1, target.ndim))
    highest = np.array(shape).reshape(-1, *(1,) * len(shape)) // 2
    length = np.sqrt(np.square(waves(shape) / np.maximum(highest, 1)).sum(0))
    modes = jnp.fft.rfftn(prediction - target, axes=axes, norm="ortho")
    return ((length / max(length.max(), 1e-8)) ** 1.5 * jnp.square(jnp.abs(modes))).mean()


@functools.lru_cache(maxsize=32)
def make_one_step(net: FieldNetwork, config: OneStepConfig) -> Emulator:
    """An emulator with one call (two for `correction` and `prediction`) per step.

    Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    scale, objective = config.residual_scale, config.objective
    twice = objective in ("correction", "prediction")
    error = sobolev_error(config.sobolev_order) if objective == "sobolev" else squared_error

    def wrong(said: jax.Array, field: jax.Array, after: jax.Array) -> jax.Array:
        """How wrong a scaled change is, for the frame that comes `after` a field."""
        target = residual(field, after, scale)
        if config.loss == "relative_l1":
            by = per_channel(scale, said)
            found = relative_error(by * said, by * target, after)
        else:
            found = error(said, target)
        if config.frequency_weight:
            found += config.frequency_weight * frequency_error(said, target)
        return found

    def first(params: PyTree, field: jax.Array, conditions: Conditions) -> jax.Array:
        nothing = jnp.zeros_like(latest(field, net.history))
        return net.apply(params, field, nothing, FIRST_INDEX, conditions)

    def second(
        params: PyTree, field: jax.Array, guess: jax.Array, conditions: Conditions
    ) -> jax.Array:
        said = net.apply(params, field, guess, SECOND_CALL, conditions)
        return guess + said if objective == "prediction" else said

    def change(params: PyTree, field: jax.Array, conditions: Conditions) -> jax.Array:
        guess = first(params, field, conditions)
        return second(params, field, guess, conditions) if twice else guess

    def moved(field: jax.Array, said: jax.Array) -> jax.Array:
        return pushed(field, per_channel(scale, said) * said)

    def advance(params: PyTree, field: jax.Array, conditions: Conditions) -> jax.Array:
        return moved(field, change(params, field, conditions))

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions) -> jax.Array:
        del key
        return advance(params, field, conditions)

    def loss(
        params: PyTree, key: jax.Array, window: jax.Array, conditions: Conditions
    ) -> tuple[jax.Array, Metrics]:
        del key
        field, following = opening(window, net.history)
        if objective == "unrolled":
            losses = []
            for after in following:
                said = change(params, field, conditions)
                losses.append(wrong(said, field, after))
                field = moved(field, said)
            return jnp.stack(losses).mean(), {"loss_last": losses[-1]}
        if objective == "pushforward":
            own = wrong(first(params, field, conditions), field, following[0])
            field = jax.lax.stop_gradient(advance(params, field, conditions))
            said = first(params, field, conditions)
            ahead = wrong(said, field, following[1])
            return own + ahead, {"loss_first": own, "loss_pushed": ahead}
        guess = first(params, field, conditions)
        own = wrong(guess, field, following[0])
        if not twice:
            return own, {}
        corrected = second(params, field, jax.lax.stop_gradient(guess), conditions)
        again = wrong(corrected, field, following[0])
        return own + again, {"loss_first": own, "loss_second": again}

    ahead = {"unrolled": config.unroll, "pushforward": 2}.get(objective, 1)
    return Emulator(
        net.init,
        step,
        loss,
        frames=net.history + ahead,
        calls=2 if twice else 1,
        history=net.history,
        about=net.about + kind_and_settings("objective", config),
    )

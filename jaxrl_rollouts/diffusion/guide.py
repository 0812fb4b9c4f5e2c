"""Guidance of some channels by the gradient of a log-density: a policy's, of the actions.

Two rules. `published` is policy-guided diffusion's (Jackson et al. 2024, arXiv:2404.06356, as its
public code has it): before every step the noised sample is pushed along the gradient by a length
that shrinks with the step's number and not with the noise. Its strength grows with the number of
steps and it is *not* the product `p(x) pi(x)^lambda` it stands for; over many steps it collapses
onto the policy's mode.
`calibrated` moves the denoised sample to the mean of its normal posterior times the normal that the
gradient belongs to, for any number of steps. With `spread="unit"` that is the product exactly for
one normal channel; with `joint` for one action and any number of states that are normal together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ..configs import check
from ..errors import ConfigError
from ..trees import PyTree
from .sampler import Guidance, Place

Rule = Literal["published", "calibrated"]


@dataclass(frozen=True)
class GuidanceConfig:
    """The guidance rule. The first four settings are the published rule's, the last the other's.

    Attributes:
        rule: see the module.
        reference: where the published rule takes the gradient: at the `denoised` sample (one more
            network call a step) or at the `noised` one.
        normalise: gradients have length one over a `trajectory`, over each `step` of it, or `none`.
        bump: c of the cosine term, `lambda_i = lambda ((1 - i / N) + c sin(pi (i + 1) / N))`.
        reference_steps: the coefficient is meant for so many steps and is multiplied by
            `reference_steps / N`; None applies it as it is, as published.
        spread: the calibrated rule's covariance of the clean row given the noised
            one. `unit`: standardised and unrelated channels; moves the guided ones only. `joint`:
            the denoiser's own derivative (Tweedie; one directional derivative a call), along the
            gradient by every channel. It moves the states too, and has to: given its actions a
            state is more likely or less, and the policy is evaluated at a state still noisy.
        interval: guide at noises from the first to the second only; None at all. Below 0.3 or so
            the published rule at few steps moves actions further than the denoiser can still move
            states after them. Outside no network is evaluated for a reference.
    """

    rule: Rule = "published"
    reference: Literal["denoised", "noised"] = "denoised"
    normalise: Literal["trajectory", "step", "none"] = "trajectory"
    bump: float = 0.3
    reference_steps: int | None = None
    spread: Literal["unit", "joint"] = "unit"
    interval: tuple[float, float] | None = None

    def validate(self) -> None:
        if not math.isfinite(self.bump):
            raise ConfigError("bump", self.bump, "a finite number")
        if self.reference_steps is not None and self.reference_steps < 1:
            raise ConfigError("reference_steps", self.reference_steps, "at least 1, or None")
        if self.interval is not None and not 0 <= self.interval[0] < self.interval[1]:
            raise ConfigError("interval", self.interval, "two noises, from 0, ascending; or None")


class Target(NamedTuple):
    """The guidance target, as functions of standardised rows.

    Attributes:
        log_prob: `(params, rows [B, ...]) -> [B]`, summed over the steps of a trajectory.
        channels: first and one past the last guided entry of the last axis; only these are
            differentiated and moved.
        precision: `(params, rows) -> [B, ..., guided]` (or what broadcasts to it), the inverse
            variance of the target in the rows' units; the calibrated rule needs it.
    """

    log_prob: Callable[[PyTree, jax.Array], jax.Array]
    channels: tuple[int, int]
    precision: Callable[[PyTree, jax.Array], jax.Array] | None = None


class GuideParams(NamedTuple):
    """Arguments of a guidance, so that neither a new policy nor a new strength recompiles."""

    target: PyTree
    coefficient: jax.Array | float  # lambda


def unit_length(gradient: jax.Array, normalise: str) -> jax.Array:
    """`[B, ..., A]` gradients over their norm; a zero gradient stays zero.

    The norm of `trajectory` is over everything but rows, that of `step` over channels.
    """
    if normalise == "none":
        return gradient
    axes = tuple(range(1, gradient.ndim)) if normalise == "trajectory" else (gradient.ndim - 1,)
    norm = jnp.sqrt(jnp.square(gradient).sum(axes, keepdims=True))
    return gradient / (norm + 1e-8)


def strength(place: Place, bump: float) -> jax.Array:
    """What the coefficient is multiplied by at a step: falling, with a bump; 0 at the last."""
    last = place.index >= place.steps - 1
    share = (place.index + 1) / place.steps
    rest = 1.0 - place.index / place.steps
    return jnp.where(last, 0.0, rest + bump * jnp.sin(jnp.pi * share))


@functools.lru_cache(maxsize=32)
def make_guidance(target: Target, config: GuidanceConfig | None = None) -> Guidance:
    """The guidance; its parameters are `GuideParams`. Equal arguments give the same one.

    Raises:
        ConfigError: a setting is out of range, or the calibrated rule has no precision.
    """
    config = config or GuidanceConfig()
    check(config)
    within = functools.partial(inside, config.interval)
    if config.rule == "published":
        return Guidance(push=within(functools.partial(push, target, config), lambda x, *_: x))
    if target.precision is None:
        raise ConfigError("rule", "calibrated", "a target with a precision, which it divides by")
    correct = correct_unit if config.spread == "unit" else correct_joint

    def own(x: jax.Array, sigma: jax.Array, denoise: Callable) -> jax.Array:
        return denoise(x, sigma)

    return Guidance(correct=within(functools.partial(correct, target), own))


def inside(interval: tuple[float, float] | None, act: Callable, otherwise: Callable) -> Callable:
    """`act(guide, x, at, denoise)` at noises of the interval, `otherwise(x, at, denoise)` beyond.

    `at` is a `Place` or its noise, a scalar.
    """
    if interval is None:
        return act
    low, high = interval

    def chosen(guide: GuideParams, x: jax.Array, at: Any, denoise: Callable) -> jax.Array:
        sigma = at.sigma if isinstance(at, Place) else at
        return jax.lax.cond(
            (low <= sigma) & (sigma <= high),
            lambda x: act(guide, x, at, denoise),
            lambda x: otherwise(x, at, denoise),
            x,
        )

    return chosen


def gradient(target: Target, params: PyTree, rows: jax.Array) -> jax.Array:
    """Of the log-density by the guided channels, everything else held fixed: `[B, ..., guided]`."""
    guided = slice(*target.channels)

    def total(part: jax.Array) -> jax.Array:
        return target.log_prob(params, rows.at[..., guided].set(part)).sum()

    return jax.grad(total)(rows[..., guided])


def push(
    target: Target,
    config: GuidanceConfig,
    guide: GuideParams,
    x: jax.Array,
    place: Place,
    denoise: Callable,
) -> jax.Array:
    """`x + lambda c(n) g / |g|`, g by the guided channels (the public code).

    Before every step n but the last.
    """
    rows = denoise(x, place.sigma) if config.reference == "denoised" else x
    along = unit_length(gradient(target, guide.target, rows), config.normalise)
    coefficient = guide.coefficient * strength(place, config.bump)
    if config.reference_steps is not None:
        coefficient = coefficient * (config.reference_steps / place.steps)
    return x.at[..., slice(*target.channels)].add(coefficient * along)


def correct_unit(
    target: Target, guide: GuideParams, x: jax.Array, sigma: jax.Array, denoise: Callable
) -> jax.Array:
    """The denoised row of the product, if clean rows are normal with unit variance.

    `D + lambda v g / (1 + v lambda P)` with `v = sigma^2 / (sigma^2 + 1)` and precision P.
    """
    assert target.precision is not None
    clean = denoise(x, sigma)
    spread = jnp.square(sigma) / (jnp.square(sigma) + 1.0)
    pull = guide.coefficient * target.precision(guide.target, clean)
    move = guide.coefficient * spread * gradient(target, guide.target, clean)
    return clean.at[..., slice(*target.channels)].add(move / (1.0 + spread * pull))


def correct_joint(
    target: Target, guide: GuideParams, x: jax.Array, sigma: jax.Array, denoise: Callable
) -> jax.Array:
    """The same with the denoiser's own covariance `sigma^2 dD/dx`: all channels move."""
    assert target.precision is not None
    axes, guided = tuple(range(1, x.ndim)), slice(*target.channels)

    def total(rows: jax.Array) -> jax.Array:
        return rows.sum(axes, keepdims=True)

    clean, derivative = jax.linearize(lambda x: denoise(x, sigma), x)
    slope = jax.grad(lambda rows: target.log_prob(guide.target, rows).sum())(clean)
    move = jnp.square(sigma) * derivative(slope)  # covariance times slope
    # One damping per row: variance along the slope, in units of the guided channels.
    square = jnp.square(slope[..., guided])
    size = jnp.where(total(square) > 0, total(square), 1.0)
    spread = jnp.maximum(total(slope * move), 0.0) / size
    precision = total(square * target.precision(guide.target, clean)) / size
    damping = 1.0 + guide.coefficient * spread * precision
    return clean + guide.coefficient * move / damping

"""EDM's samplers (Karras et al. 2022, algorithms 1 and 2) as one scan, with room for guidance.

Two departures from policy-guided diffusion's public code, both on purpose: the Euler predictor
starts from the churned sample at which its slope was taken (there it starts from the un-churned
one), and the network's and the policy's parameters are arguments, so that a refreshed policy runs
in the program that is already compiled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import draws
from ..configs import check
from ..errors import ConfigError, DivergenceError
from ..trees import PyTree
from .edm import Denoise, EdmConfig, noise_levels


@dataclass(frozen=True)
class SamplerConfig:
    """How noise becomes data; defaults are SynthER's (policy-guided diffusion: 256 steps).

    Attributes:
        steps: noise levels N. The network is called `2 N - 1` times (Heun) or N times (Euler).
        method: second order (`heun`) or first (`euler`).
        churn: S_churn: noise added back, in units shared between the steps; 0 is deterministic.
        churn_min, churn_max: noise is added back between these levels only.
        churn_noise: S_noise, a little above 1 against the loss of variance in the network.
    """

    steps: int = 128
    method: Literal["heun", "euler"] = "heun"
    churn: float = 80.0
    churn_min: float = 0.05
    churn_max: float = 50.0
    churn_noise: float = 1.003

    def validate(self) -> None:
        if self.steps < 2:
            raise ConfigError("steps", self.steps, "at least 2")
        if self.method not in ("heun", "euler"):
            raise ConfigError("method", self.method, "heun or euler")
        if self.churn < 0 or self.churn_noise <= 0 or self.churn_min > self.churn_max:
            found = (self.churn, self.churn_noise, self.churn_min, self.churn_max)
            expected = "at least 0, above 0, ascending"
            raise ConfigError("churn, churn_noise, churn_min, churn_max", found, expected)

    @property
    def calls(self) -> int:
        """Network calls per sample, without guidance."""
        return 2 * self.steps - 1 if self.method == "heun" else self.steps


class Place(NamedTuple):
    """Where in the sampling a guidance is asked; scalars."""

    index: jax.Array  # int32, from 0
    sigma: jax.Array  # float32, noise of the sample before churn
    steps: int  # N


class Guidance(NamedTuple):
    """What a sampler does besides denoising; either part may be None. See `make_guidance`.

    Attributes:
        push: `(guide_params, x, place, denoise) -> x`, once per step and before the churn;
            `denoise(x, sigma)` is the model's own.
        correct: `(guide_params, x, sigma, denoise) -> denoised`, in place of every network call,
            both of Heun's included.
    """

    push: Callable[[PyTree, jax.Array, Place, Callable], jax.Array] | None = None
    correct: Callable[[PyTree, jax.Array, jax.Array, Callable], jax.Array] | None = None


def churn_factors(levels: np.ndarray, config: SamplerConfig) -> np.ndarray:
    """`[N]` float64: gamma of every step."""
    sigma = levels[:-1]
    gamma = min(config.churn / config.steps, math.sqrt(2.0) - 1.0)
    return np.where((config.churn_min <= sigma) & (sigma <= config.churn_max), gamma, 0.0)


@functools.partial(jax.jit, static_argnames=("denoise", "shape", "config", "edm", "guidance"))
def sample(
    denoise: Denoise,
    params: PyTree,
    key: jax.Array,
    shape: tuple[int, ...],
    *,
    config: SamplerConfig | None = None,
    edm: EdmConfig | None = None,
    guidance: Guidance | None = None,
    guide_params: PyTree = None,
) -> jax.Array:
    """Draw samples, side by side. Compiled once for the same functions, settings and shapes.

    Args:
        denoise: `(params, x, sigma) -> D(x; sigma)`, of a `Denoiser`.
        params: handed to `denoise`.
        key: consumed; step `i` uses `fold_in(key, i)`.
        shape: `(B, ...)`.
        config: number of steps, order and churn.
        edm: noise levels; those the network was trained with.
        guidance: pushes samples or corrects the denoiser; None for neither.
        guide_params: handed to it (a policy's parameters and the coefficient, say).

    Returns:
        `[B, ...]` float32, standardised as the training data were.

    Raises:
        ConfigError: a setting is out of range.
    """
    config, edm, guidance = config or SamplerConfig(), edm or EdmConfig(), guidance or Guidance()
    check(config)
    check(edm)
    levels = noise_levels(config.steps, edm)
    gamma = churn_factors(levels, config)
    raised = levels[:-1] * (1.0 + gamma)
    # In float64 here: where no noise is added the difference is zero, not a NaN of a root.
    added = config.churn_noise * np.sqrt(np.maximum(raised**2 - levels[:-1] ** 2, 0.0))
    plan = tuple(
        jnp.asarray(column, jnp.float32) for column in (levels[:-1], levels[1:], raised, added)
    )
    start_key, key = jax.random.split(key)

    def own(x: jax.Array, sigma: jax.Array) -> jax.Array:
        return denoise(params, x, sigma)

    def guided(x: jax.Array, sigma: jax.Array) -> jax.Array:
        if guidance.correct is None:
            return own(x, sigma)
        return guidance.correct(guide_params, x, sigma, own)

    def prepared(x: jax.Array, index: jax.Array, sigma: jax.Array, added: jax.Array) -> jax.Array:
        """Pushed and churned."""
        if guidance.push is not None:
            x = guidance.push(guide_params, x, Place(index, sigma, config.steps), own)
        if config.churn == 0:
            return x
        return x + added * draws.normal(jax.random.fold_in(key, index), x.shape)

    def advance(x: jax.Array, step: tuple) -> tuple[jax.Array, None]:
        index, sigma, following, raised, added = step
        x = prepared(x, index, sigma, added)
        slope = (x - guided(x, raised)) / raised
        there = x + (following - raised) * slope
        if config.method == "euler":
            return there, None
        corrected = (there - guided(there, following)) / following
        return x + (following - raised) * 0.5 * (slope + corrected), None

    x = edm.sigma_max * draws.normal(start_key, shape)
    steps = (jnp.arange(config.steps, dtype=jnp.int32), *plan)
    x, _ = jax.lax.scan(advance, x, jax.tree.map(lambda column: column[:-1], steps))
    # An Euler step to noise 0 is the denoised sample itself; outside the scan it costs one call.
    index, sigma, _, raised, added = jax.tree.map(lambda column: column[-1], steps)
    return guided(prepared(x, index, sigma, added), raised)


def check_finite(samples: jax.Array, what: str = "samples") -> jax.Array:
    """`samples` `[N, ...]` themselves; waits for them.

    Raises:
        DivergenceError: one of them holds a NaN or an infinity.
    """
    axes = tuple(range(1, samples.ndim))
    if bad := int((~jnp.isfinite(samples)).any(axes).sum()):
        raise DivergenceError(
            f"sampling: {bad} of {len(samples)} {what} are not finite, expected none; "
            "the network has diverged or the guidance is too strong"
        )
    return samples

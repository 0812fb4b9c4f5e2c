"""EDM's samplers and DPM-Solver++ as one scan, with room for guidance.

Karras et al. 2022, algorithms 1 and 2; and the second-order multistep solver 2M of Lu et al. 2022
(arXiv:2211.01095), for the probability-flow ODE and for the SDE. It remembers the last denoised
sample and so needs one network call a step where Heun's needs two.

Two departures from policy-guided diffusion's public code, both on purpose: the Euler predictor
starts from the churned sample at which its slope was taken (there it starts from the un-churned
one), and the compiled sampler is kept from refresh to refresh (there it is made anew each time).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import draws
from ..configs import check, number
from ..errors import ConfigError, DivergenceError
from ..trees import PyTree
from .edm import Denoise, EdmConfig, noise_levels


@dataclass(frozen=True)
class SamplerConfig:
    """Settings of the sampler; defaults are SynthER's (policy-guided diffusion: 256 steps).

    Attributes:
        num_steps: noise levels N. The network is called `2 N - 1` times (Heun), else N times.
        method: second order (`heun`, or `dpmpp_2m`: DPM-Solver++(2M)) or first (`euler`).
        churn: S_churn: noise added back, in units shared between the steps; 0 is deterministic.
            Of `heun` and `euler`.
        churn_min, churn_max: noise is added back between these levels only.
        churn_noise: S_noise, a little above 1 against the loss of variance in the network; what
            `eta` adds is multiplied by it, too.
        eta: noise of `dpmpp_2m` in place of churn: 0 solves the ODE, 1 the SDE whose noise is
            renewed as fast as it is taken away.
        sigma_max, rho: greatest noise and crowding of the levels, in place of the network's
            `EdmConfig`; half of 16 levels from 80 down lie above 3 standard deviations.
    """

    num_steps: int = 128
    method: Literal["heun", "euler", "dpmpp_2m"] = "heun"
    churn: float = 80.0
    churn_min: float = 0.05
    churn_max: float = 50.0
    churn_noise: float = 1.003
    eta: float = number(0.0, least=0)
    sigma_max: float | None = number(None, above=0)
    rho: float | None = number(None, above=0)

    def validate(self) -> None:
        if self.num_steps < 2:
            raise ConfigError("num_steps", self.num_steps, "at least 2")
        if self.eta and self.method != "dpmpp_2m":
            raise ConfigError("eta", self.eta, f"0 for {self.method}", "its noise is churn")
        if self.churn < 0 or self.churn_noise <= 0 or self.churn_min > self.churn_max:
            found = (self.churn, self.churn_noise, self.churn_min, self.churn_max)
            expected = "at least 0, above 0, ascending"
            raise ConfigError("churn, churn_noise, churn_min, churn_max", found, expected)

    @property
    def calls(self) -> int:
        """Network calls per sample, without guidance."""
        return 2 * self.num_steps - 1 if self.method == "heun" else self.num_steps

    def levels(self, edm: EdmConfig) -> np.ndarray:
        """`noise_levels` of a network trained with `edm`.

        Raises:
            ConfigError: `sigma_max` is not above the least noise.
        """
        given = {"sigma_max": self.sigma_max, "rho": self.rho}
        edm = replace(edm, **{name: x for name, x in given.items() if x is not None})
        check(edm)
        return noise_levels(self.num_steps, edm)


class Place(NamedTuple):
    """The point of the sampling at which a guidance is evaluated; scalars."""

    index: jax.Array  # int32, from 0
    sigma: jax.Array  # float32, noise of the sample before churn
    steps: int  # N


class Guidance(NamedTuple):
    """What a sampler does besides denoising; either part may be None. See `make_guidance`.

    Attributes:
        push: `(guide_params, x, place, denoise) -> x`, once per step and before the churn;
            `denoise(x, sigma)` is the model's own. What `dpmpp_2m` remembers of a row that was
            moved is of another path, and the step is one of first order.
        correct: `(guide_params, x, sigma, denoise) -> denoised`, in place of every network call,
            both of Heun's included.
    """

    push: Callable[[PyTree, jax.Array, Place, Callable], jax.Array] | None = None
    correct: Callable[[PyTree, jax.Array, jax.Array, Callable], jax.Array] | None = None


def churn_factors(levels: np.ndarray, config: SamplerConfig) -> np.ndarray:
    """`[N]` float64: gamma of every step."""
    sigma = levels[:-1]
    # Bounded as in algorithm 2: more than the noise that is there is never added.
    gamma = min(config.churn / config.num_steps, math.sqrt(2.0) - 1.0)
    return np.where((config.churn_min <= sigma) & (sigma <= config.churn_max), gamma, 0.0)


class Multistep(NamedTuple):
    """DPM-Solver++(2M)'s steps but the last, `[N - 1]` float64 each; see `multistep`."""

    keep: np.ndarray
    gain: np.ndarray
    lean: np.ndarray
    noise: np.ndarray


def multistep(levels: np.ndarray, config: SamplerConfig) -> Multistep:
    """`x' = keep x + gain (D + lean (D - D_before)) + noise n`, in `t = -ln sigma`.

    With `h = t' - t`: `keep = e^{-h (1 + eta)}`, `gain = 1 - keep`, `lean = h / (2 h_before)` (0 at
    the first step) and `noise = sigma' sqrt(1 - e^{-2 eta h})`: equation 12 and algorithm 2 of
    DPM-Solver++, and its SDE form by the midpoint. The step to no noise is the denoised sample.
    """
    times = -np.log(levels[:-1])
    h = np.diff(times)
    keep = np.exp(-h * (1.0 + config.eta))
    lean = np.append(0.0, h[1:] / (2.0 * h[:-1]))
    # expm1: with small steps 1 - exp(-2 eta h) would lose its digits.
    noise = levels[1:-1] * np.sqrt(-np.expm1(-2.0 * config.eta * h)) * config.churn_noise
    return Multistep(keep, 1.0 - keep, lean, noise)


class _Sampling(NamedTuple):
    """What every step of one call of `sample` shares."""

    denoise: Denoise
    params: PyTree
    guidance: Guidance
    guide_params: PyTree
    key: jax.Array
    config: SamplerConfig
    churns: bool

    def own(self, x: jax.Array, sigma: jax.Array) -> jax.Array:
        return self.denoise(self.params, x, sigma)

    def guided(self, x: jax.Array, sigma: jax.Array) -> jax.Array:
        if self.guidance.correct is None:
            return self.own(x, sigma)
        return self.guidance.correct(self.guide_params, x, sigma, self.own)

    def noise(self, x: jax.Array, index: jax.Array) -> jax.Array:
        # Keyed by the step's number: with and without a guide samples see the same noise.
        return draws.normal(jax.random.fold_in(self.key, index), x.shape)

    def prepared(
        self, x: jax.Array, index: jax.Array, sigma: jax.Array, added: jax.Array
    ) -> jax.Array:
        """Pushed and churned."""
        if self.guidance.push is not None:
            place = Place(index, sigma, self.config.num_steps)
            x = self.guidance.push(self.guide_params, x, place, self.own)
        return x + added * self.noise(x, index) if self.churns else x

    def advance(self, x: jax.Array, step: tuple) -> tuple[jax.Array, None]:
        """A step of `euler` or `heun`."""
        index, sigma, following, raised, added = step
        x = self.prepared(x, index, sigma, added)
        # At the churned sample, whose noise the network estimates.
        slope = (x - self.guided(x, raised)) / raised
        there = x + (following - raised) * slope
        if self.config.method == "euler":
            return there, None
        # `following` is above 0: the last step, to no noise, is outside the scan.
        corrected = (there - self.guided(there, following)) / following
        return x + (following - raised) * 0.5 * (slope + corrected), None

    def advance_2m(self, carry: tuple, step: tuple) -> tuple[tuple, None]:
        """A step of `dpmpp_2m`, which remembers the last denoised sample."""
        (x, before), (index, sigma, *_), of_step = carry, *step
        there = self.prepared(x, index, sigma, jnp.float32(0.0))
        clean, lean = self.guided(there, sigma), of_step.lean
        if self.guidance.push is not None:
            # A pushed row left the path of its memory; its second-order term would point elsewhere.
            lean = jnp.where((there != x).any(tuple(range(1, x.ndim)), keepdims=True), 0.0, lean)
        x = of_step.keep * there + of_step.gain * (clean + lean * (clean - before))
        if self.config.eta > 0:
            x += of_step.noise * self.noise(x, index)
        return (x, clean), None


def _float32(columns: PyTree) -> PyTree:
    return jax.tree.map(lambda column: jnp.asarray(column, jnp.float32), columns)


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
    # DPM-Solver++ has its own noise (eta); churn would be a second one.
    levels, churns = config.levels(edm), config.churn > 0 and config.method != "dpmpp_2m"
    gamma = churn_factors(levels, config) if churns else np.zeros(config.num_steps)
    raised = levels[:-1] * (1.0 + gamma)
    # In float64 here: where no noise is added the difference is zero, not a NaN of a root.
    added = config.churn_noise * np.sqrt(np.maximum(raised**2 - levels[:-1] ** 2, 0.0))
    plan = _float32((levels[:-1], levels[1:], raised, added))
    start_key, key = jax.random.split(key)
    sampling = _Sampling(denoise, params, guidance, guide_params, key, config, churns)
    # The data's own deviation is left out: it is small beside sigma_max (EDM, algorithm 1).
    x = (config.sigma_max or edm.sigma_max) * draws.normal(start_key, shape)
    steps = (jnp.arange(config.num_steps, dtype=jnp.int32), *plan)
    early = jax.tree.map(lambda column: column[:-1], steps)
    if config.method == "dpmpp_2m":
        of_steps = _float32(multistep(levels, config))
        (x, _), _ = jax.lax.scan(sampling.advance_2m, (x, jnp.zeros_like(x)), (early, of_steps))
    else:
        x, _ = jax.lax.scan(sampling.advance, x, early)
    # An Euler step to noise 0 is the denoised sample itself; outside the scan it costs one call.
    index, sigma, _, raised, added = jax.tree.map(lambda column: column[-1], steps)
    return sampling.guided(sampling.prepared(x, index, sigma, added), raised)


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

"""PDE-Refiner (Lippe et al. 2023): a prediction and a few denoising steps with shrinking noise.

A one-step model fits wavenumbers whose amplitude is above its own error and no others. Adding
noise of a known, small variance to a prediction and learning to take it away again makes the
network look at ever smaller amplitudes. Indices run as in the released code: `K` is the first
prediction, 0 the finest refinement.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..emulator import (
    FIRST_INDEX,
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
from .one_step import cached


@dataclass(frozen=True)
class Refiner:
    """Schedule and forms; defaults are the paper's main setting.

    Attributes:
        refinements: K, after the first prediction; the network is called K + 1 times.
        min_noise_variance: variance of the finest noise, in units of the scaled residual. A
            *variance*: the released code calls it `min_noise_std` and uses it as one.
        max_noise_variance: variance of the first refinement's noise, the others lying geometrically
            between; None for the paper's, `min_noise_variance ** (1 / K)`.
        form: the network's prediction: `v` (released code) or the `noise` (paper's pseudo-code).
        first: the second input of the first prediction: `noise` (released code) or `zeros`.
        first_share: share of training samples at the first prediction; None for 1 / (K + 1).
        first_weight: weight of their loss.
        sampler: `ancestral` (released code) or `renoise` (the prediction with fresh noise).
        samples: predictions averaged in every step; 1 in the paper's main results.
        applied: refinements done when stepping, to see what each gains; None for all.
        precision: precision of the network's matrix products. The finest noise has a standard
            deviation of 4e-4 to 1e-3, TF32 rounds fields to 5e-4 of their size and bfloat16 to
            4e-3: with the `default` of GPUs and TPUs it would drown in rounding. CPUs have
            `highest` anyway.
    """

    refinements: int = positive(3)
    min_noise_variance: float = number(2e-7, above=0, below=1)
    max_noise_variance: float | None = None
    form: Literal["v", "noise"] = "v"
    first: Literal["noise", "zeros"] = "noise"
    first_share: float | None = number(
        None, above=0, below=1, expected="in (0, 1); left out for equal shares"
    )
    first_weight: float = number(1.0, above=0)
    sampler: Literal["ancestral", "renoise"] = "ancestral"
    samples: int = positive(1)
    applied: int | None = number(None, least=0)
    precision: Literal["highest", "high", "default"] = "highest"

    def validate(self) -> None:
        if self.applied is not None and self.applied > self.refinements:
            raise ConfigError(
                "applied", self.applied, f"from 0 to refinements ({self.refinements})"
            )
        highest = self.max_noise_variance
        if highest is not None and (
            self.refinements < 2 or not self.min_noise_variance < highest < 1
        ):
            expected = f"above min_noise_variance ({self.min_noise_variance:g}), below 1"
            raise ConfigError(
                "max_noise_variance",
                highest,
                expected,
                "leave it out with a single refinement: there is one noise only",
            )
        if self.form == "noise" and (self.first, self.sampler) != ("zeros", "renoise"):
            raise ConfigError(
                "form",
                self.form,
                "first='zeros' and sampler='renoise' with it",
                "there is no signal in the first input to scale the noise against",
            )

    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """An emulator that predicts and refines; equal arguments give the same functions.

        Args:
            net: the network.
            scale: c, of a step's change: one for all channels or one for each.

        Raises:
            ConfigError: a setting is out of range, or settings contradict each other.
        """
        if self.precision != "highest" and jax.default_backend() != "cpu":
            warnings.warn(
                f"refiner: matrix products of {self.precision} precision round fields more "
                "coarsely than the finest noise; expected precision 'highest'",
                stacklevel=2,
            )
        return _refiner(net, self, scale)


@cached
def _refiner(net: FieldNetwork, config: Refiner, scale: Scale) -> Emulator:
    parts = _with_weights(net, config, scale)
    return Emulator(
        net.init,
        functools.partial(step, parts),
        functools.partial(loss, parts),
        frames=net.history + 1,
        calls=config.samples * (_applied(config) + 1),
        history=net.history,
        stages=functools.partial(stages, parts),
        about=(*net.about, *kind_and_settings("objective", config), ("scale", scale)),
        random=config.first == "noise" or _applied(config) > 0,
    )


class RefinerParts(NamedTuple):
    """A network, its schedule and forms; what `init`, `step` and `loss` share.

    Attributes:
        net, config, scale: as of `Refiner.make`.
        signal_scale, noise_scale: `[K + 1]` weights of signal and noise in the second input of
            every index.
        on_guess, on_noised, on_fresh: `[K + 1]` as in `schedule.sampler_weights`.
        odds: `[K + 1]` shares of the training samples.
    """

    net: FieldNetwork
    config: Refiner
    scale: Scale
    signal_scale: jax.Array
    noise_scale: jax.Array
    on_guess: jax.Array
    on_noised: jax.Array
    on_fresh: jax.Array
    odds: jax.Array


def _with_weights(net: FieldNetwork, config: Refiner, scale: Scale) -> RefinerParts:
    check(config)
    check_scale(scale)
    last, v_form = config.refinements, config.form == "v"
    plan = make_schedule(last, config.min_noise_variance, config.max_noise_variance)
    # Not one minus the share below: that loses the finest noise in float32.
    noise_share = 1.0 - plan.signal if v_form else plan.variance
    signal_scale = np.sqrt(1.0 - noise_share) if v_form else np.ones(last + 1)
    weights = (
        signal_scale,
        np.sqrt(noise_share),
        *sampler_weights(plan, config.form, config.sampler),
    )
    share = config.first_share if config.first_share is not None else 1.0 / (last + 1)
    odds = jnp.append(jnp.full((last,), (1.0 - share) / last), share)
    return RefinerParts(
        net, config, scale, *(jnp.asarray(w, jnp.float32) for w in weights), odds=odds
    )


def _applied(config: Refiner) -> int:
    return config.refinements if config.applied is None else config.applied


def call(
    parts: RefinerParts,
    params: PyTree,
    field: jax.Array,
    noised: jax.Array,
    t: jax.Array,
    conditions: jax.Array,
) -> jax.Array:
    """The network at index `t`; its second input is the noised residual `[C, *space]`."""
    config = parts.config
    if config.first == "zeros":
        # Index K has no signal: zeros here, so that its loss and its step see the same input.
        noised = jnp.where(t == config.refinements, 0.0, noised)
    # The embedding's range is the same for every K, as in the released code.
    index = t * (FIRST_INDEX / config.refinements)
    # TF32's rounding is larger than the finest noise, and would be learned instead of it.
    with jax.default_matmul_precision(config.precision):
        return parts.net.apply(params, field, noised, index, conditions)


def denoised(
    parts: RefinerParts, prediction: jax.Array, noised: jax.Array, t: jax.Array
) -> jax.Array:
    """The clean residual `x` that a prediction at index `t` stands for.

    With `z = signal_t x + noise_t e`, form `v` predicts `signal_t e - noise_t x`, so
    `x = signal_t z - noise_t v` (`signal_t^2 + noise_t^2 = 1`). Form `noise` predicts `e` of
    `z = x + noise_t e`, so `x = z - noise_t e`; the first prediction is `x` itself.
    """
    if parts.config.form == "v":
        return parts.signal_scale[t] * noised - parts.noise_scale[t] * prediction
    first = t == parts.config.refinements
    return jnp.where(first, prediction, noised - parts.noise_scale[t] * prediction)


def loss(
    parts: RefinerParts, params: PyTree, key: jax.Array, window: jax.Array, conditions: jax.Array
) -> tuple[jax.Array, Metrics]:
    """The training objective of the paper's section 3, of one window at one random index.

    `|| net(u, signal_t x + noise_t e, t) - y ||^2` with the residual `x = (u(t + dt) - u(t)) / c`,
    noise `e` and the target `y = signal_t e - noise_t x` (form `v`) or `e` (form `noise`; `x`
    at the first prediction). First predictions count `first_weight` times.
    """
    config = parts.config
    index_key, noise_key = jax.random.split(key)
    # One index per window: a batch covers them all, at the price of one network call.
    t = jax.random.choice(index_key, config.refinements + 1, p=parts.odds)
    field, following = opening(window, parts.net.history)
    x = residual(field, following[0], parts.scale)
    noise = draws.normal(noise_key, x.shape, x.dtype)
    noised = parts.signal_scale[t] * x + parts.noise_scale[t] * noise
    prediction = call(parts, params, field, noised, t, conditions)
    if config.form == "v":
        target = parts.signal_scale[t] * noise - parts.noise_scale[t] * x
    else:
        target = jnp.where(t == config.refinements, x, noise)
    # Unweighted over indices: at every noise level the target has about unit variance.
    value = squared_error(prediction, target)
    # Each metric is zero where the index is the other's, so that means over a batch add up.
    first = (t == config.refinements).astype(value.dtype)
    weighed = value * (1.0 + first * (config.first_weight - 1.0))
    return weighed, {"loss_first": first * value, "loss_refine": (1.0 - first) * value}


def predict(
    parts: RefinerParts, params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
) -> jax.Array:
    """Residuals `[K + 1, C, *space]`: a first prediction, and after each of its refinements.

    The noised input of index `t - 1` is `on_guess_t x + on_noised_t z_t + on_fresh_t e`, with `x`
    the clean residual that index `t` predicts.
    """
    config, last = parts.config, parts.config.refinements
    frame = latest(field, parts.net.history)

    # By index: fewer refinements of the same key see the noise that more of them would.
    def noise(t: Any) -> jax.Array:
        return draws.normal(jax.random.fold_in(key, t), frame.shape, frame.dtype)

    def renoised(guess: jax.Array, noised: jax.Array, t: Any) -> jax.Array:
        mixed = parts.on_guess[t] * guess + parts.on_noised[t] * noised
        return mixed + parts.on_fresh[t] * noise(t)

    def refine(noised: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        prediction = call(parts, params, field, noised, t, conditions)
        guess = denoised(parts, prediction, noised, t)
        return renoised(guess, noised, t), guess

    # Nothing but noise at index K. A scan, not K copies: compile time does not grow with K.
    indices = jnp.arange(last, last - _applied(config) - 1, -1)
    return jax.lax.scan(refine, noise(last + 1), indices)[1]


def stages(
    parts: RefinerParts, params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
) -> jax.Array:
    """`u + c x` `[K + 1, H * C, *space]` with the residual `x` after 0, 1, ... refinements, a mean
    over `samples` predictions."""
    config = parts.config
    scale = per_channel(parts.scale, field)
    if config.samples == 1:
        guesses = predict(parts, params, key, field, conditions)
    else:
        keys = jax.random.split(key, config.samples)
        guess = functools.partial(predict, parts)
        sampled = jax.vmap(guess, in_axes=(None, 0, None, None))(params, keys, field, conditions)
        # The mean of residuals, not of fields: float32 keeps more digits of a small change.
        guesses = sampled.mean(0)
    return jax.vmap(lambda x: pushed(field, scale * x))(guesses)


def step(
    parts: RefinerParts, params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
) -> jax.Array:
    """The last of the `stages`."""
    return stages(parts, params, key, field, conditions)[-1]


class Schedule(NamedTuple):
    """Noise of every index, `[K + 1]`, coarsest last.

    Attributes:
        variance: added at the index: geometric from `min_noise_variance` at 0, 1 at K.
        signal: share of the variance that is signal, the running product of `1 - variance`.
    """

    variance: np.ndarray
    signal: np.ndarray


def make_schedule(steps: int, lowest: float, highest: float | None = None) -> Schedule:
    """Noise variances `lowest` to `highest` and then 1, geometric, float64.

    Without `highest` all `steps + 1` are geometric: the schedule of section 3 of the paper.
    """
    variance = lowest ** (np.arange(steps, -1, -1) / steps)
    if highest is not None:
        variance = np.append(np.geomspace(lowest, highest, steps), 1.0)
    return Schedule(variance, np.cumprod(1.0 - variance))


def sampler_weights(
    plan: Schedule, form: str, sampler: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of guess, noised input and fresh noise in the next noised input, `[K + 1]` each.

    `form` and `sampler` are those of `Refiner`. Entry `t` leads from index `t` to `t - 1`;
    entry 0 is the end and 1, 0, 0.
    """
    here, next_ = plan.signal[1:], plan.signal[:-1]
    if form == "noise":
        weights = np.ones_like(here), np.zeros_like(here), np.sqrt(plan.variance[:-1])
    elif sampler == "renoise":
        weights = np.sqrt(next_), np.zeros_like(here), np.sqrt(1.0 - next_)
    else:  # DDPM's posterior of index t - 1 given the guess and the noised input
        kept = here / next_
        guess = np.sqrt(next_) * (1.0 - kept) / (1.0 - here)
        noised = np.sqrt(kept) * (1.0 - next_) / (1.0 - here)
        weights = guess, noised, np.sqrt((1.0 - next_) / (1.0 - here) * (1.0 - kept))
    ends = (1.0, 0.0, 0.0)
    return tuple(np.append(end, w) for end, w in zip(ends, weights, strict=True))  # type: ignore[return-value]

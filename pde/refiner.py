"""PDE-Refiner (Lippe et al. 2023): a prediction and a few denoising steps with shrinking noise.

A one-step model fits wavenumbers whose amplitude is above its own error and no others. Adding
noise of a known, small variance to a prediction and learning to take it away again makes the
network look at ever smaller amplitudes. Indices run as in the released code: `K` is the first
prediction, 0 the finest refinement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError

from .emulator import Emulator, FieldNetwork, Metrics, residual, squared_error

PyTree = Any
FIRST_INDEX = 1000.0  # the network sees t * 1000 / K


@dataclass(frozen=True)
class RefinerConfig:
    """Schedule and forms; defaults are the paper's main setting.

    Attributes:
        steps: refinements K after the first prediction; the network is called K + 1 times.
        min_noise_variance: of the finest noise, in units of the scaled residual. A *variance*:
            the released code calls it `min_noise_std` and uses it as one.
        residual_scale: c; about the standard deviation of a step's change.
        form: what the network predicts: `v` (released code) or the `noise` (paper's pseudo-code).
        first: the second input of the first prediction: `noise` (released code) or `zeros`.
        first_share: share of training samples at the first prediction; None for 1 / (K + 1).
        sampler: `ancestral` (released code) or `renoise` (the prediction with fresh noise).
        samples: predictions averaged in every step; 1 in the paper's main results.
        applied: refinements done when stepping, to see what each gains; None for all.
    """

    steps: int = 3
    min_noise_variance: float = 2e-7
    residual_scale: float = 0.3
    form: Literal["v", "noise"] = "v"
    first: Literal["noise", "zeros"] = "noise"
    first_share: float | None = None
    sampler: Literal["ancestral", "renoise"] = "ancestral"
    samples: int = 1
    applied: int | None = None

    def validate(self) -> None:
        for name in ("steps", "samples"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "at least 1")
        if self.applied is not None and not 0 <= self.applied <= self.steps:
            raise ConfigError("applied", self.applied, f"from 0 to steps ({self.steps})")
        if not 0 < self.min_noise_variance < 1:
            raise ConfigError("min_noise_variance", self.min_noise_variance, "in (0, 1)")
        if self.residual_scale <= 0:
            raise ConfigError("residual_scale", self.residual_scale, "above 0")
        if self.first_share is not None and not 0 < self.first_share < 1:
            raise ConfigError(
                "first_share", self.first_share, "in (0, 1)", "leave it out for equal"
            )
        if self.form == "noise" and (self.first, self.sampler) != ("zeros", "renoise"):
            raise ConfigError(
                "form", self.form, "first='zeros' and sampler='renoise' with it",
                "there is no signal in the first input to scale the noise against",
            )  # fmt: skip


class Schedule(NamedTuple):
    """Noise of every index, `[K + 1]`, coarsest last.

    Attributes:
        variance: added at the index: `min_noise_variance ** ((K - t) / K)`, 1 at K.
        signal: share of the variance that is signal, the running product of `1 - variance`.
    """

    variance: np.ndarray
    signal: np.ndarray


def make_schedule(steps: int, min_noise_variance: float) -> Schedule:
    """The geometric schedule of section 3 of the paper, float64."""
    variance = min_noise_variance ** (np.arange(steps, -1, -1) / steps)
    return Schedule(variance, np.cumprod(1.0 - variance))


def sampler_weights(
    plan: Schedule, config: RefinerConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of guess, noised input and fresh noise in the next noised input, `[K + 1]` each.

    Entry `t` leads from index `t` to `t - 1`; entry 0 is the end and 1, 0, 0.
    """
    here, next_ = plan.signal[1:], plan.signal[:-1]
    if config.form == "noise":
        weights = np.ones_like(here), np.zeros_like(here), np.sqrt(plan.variance[:-1])
    elif config.sampler == "renoise":
        weights = np.sqrt(next_), np.zeros_like(here), np.sqrt(1.0 - next_)
    else:  # DDPM's posterior of index t - 1 given the guess and the noised input
        kept = here / next_
        guess = np.sqrt(next_) * (1.0 - kept) / (1.0 - here)
        noised = np.sqrt(kept) * (1.0 - next_) / (1.0 - here)
        weights = guess, noised, np.sqrt((1.0 - next_) / (1.0 - here) * (1.0 - kept))
    ends = (1.0, 0.0, 0.0)
    return tuple(np.append(end, w) for end, w in zip(ends, weights, strict=True))  # type: ignore[return-value]


def make_refiner(net: FieldNetwork, config: RefinerConfig) -> Emulator:
    """An emulator that predicts and refines.

    Raises:
        ConfigError: a setting is out of range, or settings contradict each other.
    """
    config.validate()
    applied = config.steps if config.applied is None else config.applied
    last, scale, v_form = config.steps, config.residual_scale, config.form == "v"
    plan = make_schedule(config.steps, config.min_noise_variance)
    # 1 - signal loses the finest noise in float32.
    noise_share = 1.0 - plan.signal if v_form else plan.variance
    clean = jnp.asarray(np.sqrt(1.0 - noise_share) if v_form else np.ones(last + 1), jnp.float32)
    dirt = jnp.asarray(np.sqrt(noise_share), jnp.float32)
    on_guess, on_noised, on_fresh = (
        jnp.asarray(weights, jnp.float32) for weights in sampler_weights(plan, config)
    )
    others = jnp.full((last,), 1.0 / (last + 1))
    share = config.first_share if config.first_share is not None else 1.0 / (last + 1)
    odds = jnp.append(others * (1.0 - share) / others.sum(), share)

    def call(
        params: PyTree, field: jax.Array, noised: jax.Array, t: jax.Array, conditions: jax.Array
    ) -> jax.Array:
        if config.first == "zeros":
            noised = jnp.where(t == last, 0.0, noised)
        return net.apply(params, field, noised, t * (FIRST_INDEX / last), conditions)

    def denoised(said: jax.Array, noised: jax.Array, t: jax.Array) -> jax.Array:
        """The clean residual, from what the network said at index `t`."""
        if v_form:
            return clean[t] * noised - dirt[t] * said
        return jnp.where(t == last, said, noised - dirt[t] * said)

    def loss(
        params: PyTree, key: jax.Array, window: jax.Array, conditions: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        index_key, noise_key = jax.random.split(key)
        t = jax.random.choice(index_key, last + 1, p=odds)
        target = residual(window[0], window[1], scale)
        noise = jax.random.normal(noise_key, target.shape, target.dtype)
        noised = clean[t] * target + dirt[t] * noise
        said = call(params, window[0], noised, t, conditions)
        if v_form:
            wanted = clean[t] * noise - dirt[t] * target
        else:
            wanted = jnp.where(t == last, target, noise)
        value = squared_error(said, wanted)
        first = (t == last).astype(value.dtype)
        return value, {"loss_first": first * value, "loss_refine": (1.0 - first) * value}

    def predict(
        params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
    ) -> jax.Array:
        def refine(carry: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[tuple, None]:
            noised, _ = carry
            guess = denoised(call(params, field, noised, t, conditions), noised, t)
            fresh = jax.random.normal(jax.random.fold_in(key, t), field.shape, field.dtype)
            noised = on_guess[t] * guess + on_noised[t] * noised + on_fresh[t] * fresh
            return (noised, guess), None

        start = jax.random.normal(jax.random.fold_in(key, last + 1), field.shape, field.dtype)
        (_, guess), _ = jax.lax.scan(
            refine, (start, start), jnp.arange(last, last - applied - 1, -1)
        )
        return guess

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        if config.samples == 1:
            return field + scale * predict(params, key, field, conditions)
        keys = jax.random.split(key, config.samples)
        guesses = jax.vmap(predict, in_axes=(None, 0, None, None))(params, keys, field, conditions)
        return field + scale * guesses.mean(0)

    return Emulator(net.init, step, loss, 2, config.samples * (applied + 1))

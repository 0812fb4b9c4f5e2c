"""PDE-Refiner (Lippe et al. 2023): a prediction and a few denoising steps with shrinking noise.

A one-step model fits wavenumbers whose amplitude is above its own error and no others. Adding
noise of a known, small variance to a prediction and learning to take it away again makes the
network look at ever smaller amplitudes. Indices run as in the released code: `K` is the first
prediction, 0 the finest refinement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from .emulator import (
    FIRST_INDEX,
    Emulator,
    FieldNetwork,
    Metrics,
    latest,
    opening,
    pushed,
    residual,
    squared_error,
)
from .schedule import make_schedule, sampler_weights


@dataclass(frozen=True)
class RefinerConfig:
    """Schedule and forms; defaults are the paper's main setting.

    Attributes:
        steps: refinements K after the first prediction; the network is called K + 1 times.
        min_noise_variance: of the finest noise, in units of the scaled residual. A *variance*:
            the released code calls it `min_noise_std` and uses it as one.
        max_noise_variance: of the first refinement's noise, the others lying geometrically
            between; None for the paper's, `min_noise_variance ** (1 / K)`.
        residual_scale: c; about the standard deviation of a step's change.
        form: what the network predicts: `v` (released code) or the `noise` (paper's pseudo-code).
        first: the second input of the first prediction: `noise` (released code) or `zeros`.
        first_share: share of training samples at the first prediction; None for 1 / (K + 1).
        first_weight: of their loss.
        sampler: `ancestral` (released code) or `renoise` (the prediction with fresh noise).
        samples: predictions averaged in every step; 1 in the paper's main results.
        applied: refinements done when stepping, to see what each gains; None for all.
    """

    steps: int = 3
    min_noise_variance: float = 2e-7
    max_noise_variance: float | None = None
    residual_scale: float = 0.3
    form: Literal["v", "noise"] = "v"
    first: Literal["noise", "zeros"] = "noise"
    first_share: float | None = None
    first_weight: float = 1.0
    sampler: Literal["ancestral", "renoise"] = "ancestral"
    samples: int = 1
    applied: int | None = None

    def validate(self) -> None:
        at_least_one(self, "steps", "samples")
        if self.applied is not None and not 0 <= self.applied <= self.steps:
            raise ConfigError("applied", self.applied, f"from 0 to steps ({self.steps})")
        if not 0 < self.min_noise_variance < 1:
            raise ConfigError("min_noise_variance", self.min_noise_variance, "in (0, 1)")
        highest = self.max_noise_variance
        if highest is not None and (self.steps < 2 or not self.min_noise_variance < highest < 1):
            expected = f"above min_noise_variance ({self.min_noise_variance:g}), below 1"
            raise ConfigError(
                "max_noise_variance", highest, expected,
                "leave it out with a single refinement: there is one noise only",
            )  # fmt: skip
        if self.residual_scale <= 0:
            raise ConfigError("residual_scale", self.residual_scale, "above 0")
        if self.first_share is not None and not 0 < self.first_share < 1:
            raise ConfigError(
                "first_share", self.first_share, "in (0, 1)", "leave it out for equal"
            )
        if self.first_weight <= 0:
            raise ConfigError("first_weight", self.first_weight, "above 0")
        if self.form == "noise" and (self.first, self.sampler) != ("zeros", "renoise"):
            raise ConfigError(
                "form", self.form, "first='zeros' and sampler='renoise' with it",
                "there is no signal in the first input to scale the noise against",
            )  # fmt: skip


def make_refiner(
    net: FieldNetwork, config: RefinerConfig, *, after: Emulator | None = None
) -> Emulator:
    """An emulator that predicts and refines.

    Args:
        net: the network.
        config: schedule and forms.
        after: an emulator whose step is the first prediction; the network then only refines. Its
            parameters come first in the pair `(theirs, the network's)` and are not trained. A
            refiner of one step after another one has weights of its own at every noise.

    Raises:
        ConfigError: a setting is out of range, or settings contradict each other.
    """
    config.validate()
    if after is not None and config.first_share is not None:
        raise ConfigError("first_share", config.first_share, "None: first predictions are not its")
    if after is not None and after.history != net.history:
        raise ConfigError("after", f"history {after.history}", f"the network's ({net.history})")
    applied = config.steps if config.applied is None else config.applied
    last, scale, v_form = config.steps, config.residual_scale, config.form == "v"
    plan = make_schedule(config.steps, config.min_noise_variance, config.max_noise_variance)
    # 1 - signal loses the finest noise in float32.
    noise_share = 1.0 - plan.signal if v_form else plan.variance
    clean = jnp.asarray(np.sqrt(1.0 - noise_share) if v_form else np.ones(last + 1), jnp.float32)
    dirt = jnp.asarray(np.sqrt(noise_share), jnp.float32)
    on_guess, on_noised, on_fresh = (
        jnp.asarray(weights, jnp.float32)
        for weights in sampler_weights(plan, config.form, config.sampler)
    )
    share = config.first_share if config.first_share is not None else 1.0 / (last + 1)
    share = 0.0 if after is not None else share
    odds = jnp.append(jnp.full((last,), (1.0 - share) / last), share)

    def own(params: PyTree) -> PyTree:
        return params if after is None else params[1]

    def call(
        params: PyTree, field: jax.Array, noised: jax.Array, t: jax.Array, conditions: jax.Array
    ) -> jax.Array:
        if config.first == "zeros":
            noised = jnp.where(t == last, 0.0, noised)
        return net.apply(own(params), field, noised, t * (FIRST_INDEX / last), conditions)

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
        field, following = opening(window, net.history)
        target = residual(field, following[0], scale)
        noise = draws.normal(noise_key, target.shape, target.dtype)
        noised = clean[t] * target + dirt[t] * noise
        said = call(params, field, noised, t, conditions)
        if v_form:
            wanted = clean[t] * noise - dirt[t] * target
        else:
            wanted = jnp.where(t == last, target, noise)
        value = squared_error(said, wanted)
        first = (t == last).astype(value.dtype)
        weighed = value * (1.0 + first * (config.first_weight - 1.0))
        return weighed, {"loss_first": first * value, "loss_refine": (1.0 - first) * value}

    def predict(
        params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array
    ) -> jax.Array:
        frame = latest(field, net.history)

        def noise(t: Any) -> jax.Array:
            return draws.normal(jax.random.fold_in(key, t), frame.shape, frame.dtype)

        def renoised(guess: jax.Array, noised: jax.Array, t: Any) -> jax.Array:
            """The input of index `t - 1`."""
            return on_guess[t] * guess + on_noised[t] * noised + on_fresh[t] * noise(t)

        def refine(carry: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[tuple, None]:
            noised, _ = carry
            guess = denoised(call(params, field, noised, t, conditions), noised, t)
            return (renoised(guess, noised, t), guess), None

        noised = guess = noise(last + 1)  # nothing but noise at index K
        begin = last
        if after is not None:
            their_key = jax.random.fold_in(key, last + 2)
            theirs = after.step(params[0], their_key, field, conditions)
            guess = residual(field, latest(theirs, net.history), scale)
            noised, begin = renoised(guess, noised, last), last - 1
        indices = jnp.arange(begin, last - applied - 1, -1)
        return jax.lax.scan(refine, (noised, guess), indices)[0][1]

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        if config.samples == 1:
            return pushed(field, scale * predict(params, key, field, conditions))
        keys = jax.random.split(key, config.samples)
        guesses = jax.vmap(predict, in_axes=(None, 0, None, None))(params, keys, field, conditions)
        return pushed(field, scale * guesses.mean(0))

    def init(key: jax.Array) -> PyTree:
        if after is None:
            return net.init(key)
        after_key, net_key = jax.random.split(key)
        return after.init(after_key), net.init(net_key)

    calls = applied + (1 if after is None else after.calls)
    return Emulator(init, step, loss, net.history + 1, config.samples * calls, net.history)

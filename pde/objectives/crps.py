"""Samples of the next field, trained by the continuous ranked probability score.

A network with noise in its second input gives a member for each draw; the almost fair score (Lang
et al. 2024, AIFS-CRPS, section 2; `scores.crps`) of several members is least where they are
distributed as the truth is. Start from a trained one-step emulator, for which the noise is zero:

    fitted = pde.fit("mse", fields, steps=1000)
    rate = pde.Training(steps=250, lr=1e-4)
    sampled = pde.fit(pde.Crps(), fields, start=fitted.params, training=rate)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, number
from jaxrl_rollouts.trees import PyTree

from ..emulator import (
    FIRST_INDEX,
    Conditions,
    Emulator,
    FieldNetwork,
    Scale,
    check_scale,
    kind_and_settings,
    latest,
    opening,
    per_channel,
    pushed,
    residual,
)
from ..scores import crps
from .one_step import Loss


@dataclass(frozen=True)
class Crps:
    """Settings of a stochastic emulator.

    Attributes:
        members: samples of a training window, M.
        alpha: 1 is the fair score, 0 the empirical one; just below 1 no member is left free.
        noise: standard deviation of the second input, white noise of the field's shape. 0 is the
            one-step emulator with the mean absolute error.
        unroll: steps of a member in training, with gradients through all of them.
    """

    members: int = number(4, least=2)
    alpha: float = number(0.95, least=0, most=1)
    noise: float = number(1.0, least=0)
    unroll: int = number(1, least=1)
    calls: ClassVar[int] = 1

    @property
    def ahead(self) -> int:
        """Frames that a training window has beyond the history."""
        return self.unroll

    @functools.lru_cache(maxsize=32)  # noqa: B019  (settings are hashed by value)
    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """The emulator of a network; equal arguments give the same functions.

        Raises:
            ConfigError: a setting is out of range.
        """
        check(self)
        check_scale(scale)

        def change(
            params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions
        ) -> jax.Array:
            place = latest(field, net.history)
            drawn = self.noise * jax.random.normal(key, place.shape, place.dtype)
            return net.apply(params, field, drawn, FIRST_INDEX, conditions)

        def step(
            params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions
        ) -> jax.Array:
            moved = change(params, key, field, conditions)
            return pushed(field, per_channel(scale, moved) * moved)

        def loss(params: PyTree, key: jax.Array, window: jax.Array, conditions: Conditions) -> Loss:
            """`[]`, mean over steps, channels and points of the score of scaled changes.

            Each member continues from its own field; its target is the change to the true frame.
            """
            field, following = opening(window, net.history)
            fields = jnp.broadcast_to(field, (self.members, *field.shape))
            scores, spreads = [], []
            for ahead, after in enumerate(following):
                keys = jax.random.split(jax.random.fold_in(key, ahead), self.members)
                drawn = jax.vmap(change, (None, 0, 0, None))(params, keys, fields, conditions)
                # The score of a shift of samples and truth together is the same: in units of c.
                start = jax.vmap(residual, (0, None, None))(fields, after, scale)
                scores.append(crps(drawn - start, jnp.zeros_like(after), alpha=self.alpha).mean())
                spreads.append(jnp.std(drawn - start, 0, ddof=1).mean())
                by = per_channel(scale, after)
                fields = jax.vmap(pushed)(fields, by * drawn)
            return jnp.stack(scores).mean(), {"spread": spreads[-1]}

        about = net.about + kind_and_settings("objective", self) + (("scale", scale),)
        frames = net.history + self.ahead
        emulator = Emulator(net.init, step, loss, frames, self.calls, net.history, about=about)
        return emulator._replace(random=self.noise > 0)

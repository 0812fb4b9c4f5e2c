"""Error correction (Lippe et al. 2023, section 4): two calls of the network without any noise.

What it does not gain over `Mse`, a refiner does not gain by its second call alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax

from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, Emulator, FieldNetwork, Metrics, Scale, opening
from .one_step import OneStepObjective, cached

SECOND_CALL = 0.0  # the index that a correcting call sees


@dataclass(frozen=True)
class Correction(OneStepObjective):
    """Predict a change, then look at it and predict again.

    Attributes:
        second: what the second call predicts: the `change` again, or the `error` of the first.
    """

    second: Literal["change", "error"] = "change"

    @cached
    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """The emulator of a network; equal arguments give the same functions.

        Raises:
            ConfigError: a setting is out of range.
        """
        one = self.one_step(net, scale)

        def corrected(
            params: PyTree, field: jax.Array, guess: jax.Array, conditions: Conditions
        ) -> jax.Array:
            prediction = net.apply(params, field, guess, SECOND_CALL, conditions)
            return guess + prediction if self.second == "error" else prediction

        def change(params: PyTree, field: jax.Array, conditions: Conditions) -> jax.Array:
            guess = one.change(params, field, conditions)
            return corrected(params, field, guess, conditions)

        def loss(
            params: PyTree, key: jax.Array, window: jax.Array, conditions: Conditions
        ) -> tuple[jax.Array, Metrics]:
            del key
            field, following = opening(window, net.history)
            guess = one.change(params, field, conditions)
            own = one.loss(guess, field, following[0])
            # The first prediction is trained by its own loss only.
            final = corrected(params, field, jax.lax.stop_gradient(guess), conditions)
            again = one.loss(final, field, following[0])
            return own + again, {"loss_first": own, "loss_second": again}

        return one.emulator(self, loss, change=change, calls=2)

"""Error correction (Lippe et al. 2023, section 4): two calls of the network without any noise.

What it does not gain over `Mse`, a refiner does not gain by its second call alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax

from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, opening
from .one_step import Loss, OneStep, OneStepObjective

SECOND_CALL = 0.0  # the index that a correcting call sees


@dataclass(frozen=True)
class Correction(OneStepObjective):
    """Predict a change, then correct it with a second call.

    Attributes:
        second: prediction of the second call: the `change` again, or the `error` of the first.
    """

    second: Literal["change", "error"] = "change"

    calls = 2

    def _corrected(
        self, one: OneStep, params: PyTree, field: Any, guess: Any, conditions: Conditions
    ) -> jax.Array:
        prediction = one.net.apply(params, field, guess, SECOND_CALL, conditions)
        return guess + prediction if self.second == "error" else prediction

    def change(
        self, one: OneStep, params: PyTree, field: jax.Array, conditions: Conditions
    ) -> jax.Array:
        """The second prediction."""
        guess = one.change(params, field, conditions)
        return self._corrected(one, params, field, guess, conditions)

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`."""
        field, following = opening(window, one.net.history)
        guess = one.change(params, field, conditions)
        own = one.loss(guess, field, following[0])
        # The first prediction is trained by its own loss only.
        final = self._corrected(one, params, field, jax.lax.stop_gradient(guess), conditions)
        again = one.loss(final, field, following[0])
        return own + again, {"loss_first": own, "loss_second": again}

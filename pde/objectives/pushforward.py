"""The pushforward trick (Brandstetter et al. 2022): learn from one's own step as well."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, opening
from .one_step import Loss, OneStep, OneStepObjective


@dataclass(frozen=True)
class Pushforward(OneStepObjective):
    """The error of a step and of the next one, which starts from the first without its gradient."""

    ahead = 2

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`."""
        field, following = opening(window, one.net.history)
        own = one.loss(one.change(params, field, conditions), field, following[0])
        # A second forward pass, so that the first one's loss keeps its own gradient.
        following_own = one.next_field(field, one.change(params, field, conditions))
        field = jax.lax.stop_gradient(following_own)
        ahead = one.loss(one.change(params, field, conditions), field, following[1])
        return own + ahead, {"loss_first": own, "loss_pushed": ahead}

"""The mean error of several steps in a row, with gradients through all of them."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions
from .one_step import Loss, OneStep, OneStepObjective


@dataclass(frozen=True)
class Unrolled(OneStepObjective):
    """Backpropagate through a rollout.

    Attributes:
        length: its steps.
    """

    length: int = number(2, least=2, expected="at least 2; one step is the objective mse")

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.length

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`."""
        losses = one.losses(params, window, conditions)
        return jnp.stack(losses).mean(), {"loss_last": losses[-1]}

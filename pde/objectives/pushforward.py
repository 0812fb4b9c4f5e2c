"""The pushforward trick (Brandstetter et al. 2022): learn from one's own step as well."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

import jax

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions
from .one_step import Loss, OneStep, OneStepObjective


@dataclass(frozen=True)
class Pushforward(OneStepObjective):
    """The sum of one-step errors along the network's own rollout, without gradients between steps.

    Attributes:
        length: its steps; of the first the field is the data's.
    """

    length: int = number(2, least=2, expected="at least 2; one step is the objective mse")

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.length

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`."""
        losses = one.losses(
            params, window, conditions, lambda _, field: jax.lax.stop_gradient(field)
        )
        metrics = {"loss_first": losses[0], "loss_pushed": losses[-1]}
        return functools.reduce(operator.add, losses), metrics

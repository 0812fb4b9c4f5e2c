"""The error of one step, the baseline of every comparison (Lippe et al. 2023, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, opening
from .one_step import Loss, OneStep, OneStepObjective


@dataclass(frozen=True)
class Mse(OneStepObjective):
    """Learn `(u(t + dt) - u(t)) / c` from `u(t)`.

    Attributes:
        bundle: frames that a call of the network predicts at once (temporal bundling, Brandstetter
            et al. 2022): `(u(t + j dt) - u(t)) / c`, j = 1 ... bundle, whose errors are averaged. A
            rollout then takes so many times fewer calls.
    """

    bundle: int = number(1, least=1)  # type: ignore[misc]

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.bundle

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`."""
        field, following = opening(window, one.net.history)
        frames = one.changes(field, one.change(params, field, conditions))
        losses = [one.loss(frames[j], field, following[j]) for j in range(self.bundle)]
        if self.bundle == 1:
            return losses[0], {}
        return jnp.stack(losses).mean(), {"loss_last": losses[-1]}

"""The error of one step, the baseline of every comparison (Lippe et al. 2023, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, Emulator, FieldNetwork, Metrics, Scale, opening
from .one_step import OneStepObjective, cached


@dataclass(frozen=True)
class Mse(OneStepObjective):
    """Learn `(u(t + dt) - u(t)) / c` from `u(t)`."""

    @cached
    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """The emulator of a network; equal arguments give the same functions.

        Raises:
            ConfigError: a setting is out of range.
        """
        one = self.one_step(net, scale)

        def loss(
            params: PyTree, key: jax.Array, window: jax.Array, conditions: Conditions
        ) -> tuple[jax.Array, Metrics]:
            del key
            field, following = opening(window, net.history)
            return one.loss(one.change(params, field, conditions), field, following[0]), {}

        return one.emulator(self, loss)

"""The mean error of several steps in a row, with gradients through all of them."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, Emulator, FieldNetwork, Metrics, Scale, opening
from .one_step import OneStepObjective, cached


@dataclass(frozen=True)
class Unrolled(OneStepObjective):
    """Backpropagate through a rollout.

    Attributes:
        length: its steps.
    """

    length: int = number(2, least=2, expected="at least 2; one step is the objective mse")

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
            losses = []
            for after in following:
                prediction = one.change(params, field, conditions)
                losses.append(one.loss(prediction, field, after))
                field = one.next_field(field, prediction)
            return jnp.stack(losses).mean(), {"loss_last": losses[-1]}

        return one.emulator(self, loss, ahead=self.length)

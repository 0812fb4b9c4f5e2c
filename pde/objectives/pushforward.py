"""The pushforward trick (Brandstetter et al. 2022): learn from one's own step as well."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, Emulator, FieldNetwork, Metrics, Scale, opening
from .one_step import OneStepObjective, cached


@dataclass(frozen=True)
class Pushforward(OneStepObjective):
    """The error of a step and of the next one, which starts from the first without its gradient."""

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
            own = one.loss(one.change(params, field, conditions), field, following[0])
            # A second forward pass, so that the first one's loss keeps its own gradient.
            pushed = one.next_field(field, one.change(params, field, conditions))
            field = jax.lax.stop_gradient(pushed)
            ahead = one.loss(one.change(params, field, conditions), field, following[1])
            return own + ahead, {"loss_first": own, "loss_pushed": ahead}

        return one.emulator(self, loss, ahead=2)

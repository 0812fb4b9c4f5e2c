"""The mean error of several steps in a row, with gradients through all of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import number
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..emulator import Conditions, opening
from .one_step import Loss, OneStep, OneStepObjective


@dataclass(frozen=True)
class Unrolled(OneStepObjective):
    """Backpropagate through a rollout.

    Attributes:
        length: its steps.
        curriculum: shorter rollouts to begin with: `((1000, 1), (500, 2))` are 1,000 gradient steps
            on one step, then 500 on two, the rest on `length`. Saves no time: the longest is
            computed throughout, since seeds share one program.
    """

    length: int = number(2, least=2, expected="at least 2; one step is the objective mse")
    curriculum: tuple[tuple[int, int], ...] = ()

    def validate(self) -> None:
        for steps, length in self.curriculum:
            if steps < 1 or not 1 <= length <= self.length:
                expected = f"(gradient steps, steps of a rollout from 1 to {self.length})"
                raise ConfigError("curriculum", (steps, length), expected)

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.length

    @property
    def paced(self) -> bool:  # type: ignore[override]
        return bool(self.curriculum)

    def unrolled_at(self, count: jax.Array) -> jax.Array:
        """Steps of a rollout after `count` gradient steps, int32."""
        ends = jnp.asarray([*itertools.accumulate(steps for steps, _ in self.curriculum)])
        lengths = jnp.asarray([*(length for _, length in self.curriculum), self.length])
        return lengths[(count >= ends).sum()]

    def error(
        self,
        one: OneStep,
        params: PyTree,
        window: jax.Array,
        conditions: Conditions,
        count: jax.Array | None = None,
    ) -> Loss:
        """Loss and metrics; see `StepObjective.error`.

        Args:
            count: gradient steps before this one; None for the whole length.
        """
        if count is None:
            losses = one.losses(params, window, conditions)
            return jnp.stack(losses).mean(), {"loss_last": losses[-1]}
        active = jnp.arange(self.length) < self.unrolled_at(count)
        fields = [opening(window[t:], one.net.history)[0] for t in range(self.length)]

        def between(step: int, field: jax.Array) -> jax.Array:
            # A step that does not count begins at the data: its gradient is a finite zero.
            return jnp.where(active[step], field, fields[step]) if step < self.length else field

        losses = jnp.stack(one.losses(params, window, conditions, between))
        counted = jnp.where(active, losses, 0.0)
        last = counted[active.sum() - 1]
        return counted.sum() / active.sum(), {"loss_last": last, "unrolled": active.sum() * 1.0}

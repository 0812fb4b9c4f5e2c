"""The error of one step, the baseline of every comparison (Lippe et al. 2023, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from .one_step import OneStepObjective


@dataclass(frozen=True)
class Mse(OneStepObjective):
    """Learn `(u(t + dt) - u(t)) / c` from `u(t)`."""

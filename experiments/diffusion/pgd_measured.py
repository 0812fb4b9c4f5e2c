"""What `pgd_vs_world_model` measured: sources of paths, their errors, and where they cross."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

LENGTHS = (4, 8, 16, 32, 64, 128)


class Source(NamedTuple):
    """Where paths come from.

    Attributes:
        rule: `data`, `ensemble`, `unguided`, or the name of a rule of guidance.
        steps: of the sampler; 0 where nothing is sampled.
        coefficient: of the guidance.
    """

    rule: str
    steps: int = 0
    coefficient: float = 0.0


class Measured(NamedTuple):
    """`[seeds, T]` each: means over paths, and the median of the step error.

    Attributes:
        gap: squared distance of the actions to the policy's, per entry.
        error: of single steps, in squared deviations of the data per entry.
        median: of the same.
        open_loop: after so many steps, from the path's first state and actions.
    """

    gap: np.ndarray
    error: np.ndarray
    median: np.ndarray
    open_loop: np.ndarray

    def first(self, steps: int) -> Measured:
        """Its first steps."""
        return Measured(*(values[:, :steps] for values in self))


Found = Mapping[Source, Measured]


def log_likelihood(gap: Any) -> Any:
    """Of an action entry under a normal of unit variance around the policy's action."""
    return -0.5 * (gap + math.log(2.0 * math.pi))


def crossing(ensemble: np.ndarray, other: np.ndarray) -> np.ndarray:
    """First step, from 1, at which an ensemble's error is above the other's mean over its window.

    Args:
        ensemble, other: `[seeds, T]` and `[seeds, T']`.

    Returns:
        `[seeds]`; infinite where it never is.
    """
    above = ensemble > other.mean(1, keepdims=True)
    return np.where(above.any(1), above.argmax(1) + 1.0, np.inf)


def coefficient_at(gap: np.ndarray, at: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """The coefficient at which a falling curve of gaps reaches `gap`, interpolated in logarithms.

    Args:
        gap: `[seeds]`, wanted.
        at: `[points]`, coefficients, ascending.
        gaps: `[seeds, points]`; what follows a curve's lowest point does not count.

    Returns:
        `[seeds]`, within `at`.
    """
    found = []
    for wanted, curve in zip(gap, gaps, strict=True):
        falling = slice(0, int(curve.argmin()) + 1)
        y, x = np.log(curve[falling])[::-1], np.log(at[falling])[::-1]
        found.append(np.exp(np.interp(np.log(wanted), y, x)))
    return np.array(found)


def three(config: Any, found: Found) -> tuple[Measured, Measured, Measured]:
    """The ensemble, unguided diffusion, and the published rule at the coefficient of reference."""
    return (
        found[Source("ensemble")], found[Source("unguided", config.steps)],
        found[Source("published", config.steps, config.reference)],
    )  # fmt: skip

"""Noise of PDE-Refiner's refinements, and what is carried from one to the next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Schedule(NamedTuple):
    """Noise of every index, `[K + 1]`, coarsest last.

    Attributes:
        variance: added at the index: geometric from `min_noise_variance` at 0, 1 at K.
        signal: share of the variance that is signal, the running product of `1 - variance`.
    """

    variance: np.ndarray
    signal: np.ndarray


def make_schedule(steps: int, lowest: float, highest: float | None = None) -> Schedule:
    """Noise variances `lowest` to `highest` and then 1, geometric, float64.

    Without `highest` all `steps + 1` are geometric: the schedule of section 3 of the paper.
    """
    variance = lowest ** (np.arange(steps, -1, -1) / steps)
    if highest is not None:
        variance = np.append(np.geomspace(lowest, highest, steps), 1.0)
    return Schedule(variance, np.cumprod(1.0 - variance))


def sampler_weights(
    plan: Schedule, form: str, sampler: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of guess, noised input and fresh noise in the next noised input, `[K + 1]` each.

    `form` and `sampler` are those of `Refiner`. Entry `t` leads from index `t` to `t - 1`;
    entry 0 is the end and 1, 0, 0.
    """
    here, next_ = plan.signal[1:], plan.signal[:-1]
    if form == "noise":
        weights = np.ones_like(here), np.zeros_like(here), np.sqrt(plan.variance[:-1])
    elif sampler == "renoise":
        weights = np.sqrt(next_), np.zeros_like(here), np.sqrt(1.0 - next_)
    else:  # DDPM's posterior of index t - 1 given the guess and the noised input
        kept = here / next_
        guess = np.sqrt(next_) * (1.0 - kept) / (1.0 - here)
        noised = np.sqrt(kept) * (1.0 - next_) / (1.0 - here)
        weights = guess, noised, np.sqrt((1.0 - next_) / (1.0 - here) * (1.0 - kept))
    ends = (1.0, 0.0, 0.0)
    return tuple(np.append(end, w) for end, w in zip(ends, weights, strict=True))  # type: ignore[return-value]

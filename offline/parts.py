"""A memory and the head on it: parameters in two parts that learn at rates of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import optax

from jaxrl_rollouts.trees import PyTree

Rate = float | optax.Schedule


class Parts(NamedTuple):
    """Parameters of memory and head, or what an optimiser keeps for each."""

    memory: PyTree
    head: PyTree


class PartsOptimiser(NamedTuple):
    """Adam for each part, its gradient clipped by its own global norm.

    Attributes:
        init: `params -> moments`.
        step: `(params, gradient, moments) -> (params, moments)`.
    """

    init: Callable[[Parts], Parts]
    step: Callable[[Parts, Parts, Parts], tuple[Parts, Parts]]


def follow(params: Parts, target: Parts, rate: float) -> Parts:
    """Target parameters, moved towards `params` by the share `rate` of their distance."""
    pairs = zip(params, target, strict=True)
    return Parts(*(optax.incremental_update(new, old, rate) for new, old in pairs))


def parts_optimiser(memory_rate: Rate, head_rate: Rate, clip: float | None) -> PartsOptimiser:
    """Two learning rates (or schedules), and the largest norm of each part's gradient."""

    def adam(rate: Rate) -> optax.GradientTransformation:
        limit = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
        return optax.chain(limit, optax.adam(rate))

    both = adam(memory_rate), adam(head_rate)

    def init(params: Parts) -> Parts:
        return Parts(*(opt.init(p) for opt, p in zip(both, params, strict=True)))

    def step(params: Parts, gradient: Parts, moments: Parts) -> tuple[Parts, Parts]:
        moved = [
            opt.update(g, m, p)
            for opt, g, m, p in zip(both, gradient, moments, params, strict=True)
        ]
        changed = [optax.apply_updates(p, c) for p, (c, _) in zip(params, moved, strict=True)]
        return Parts(*changed), Parts(*(kept for _, kept in moved))

    return PartsOptimiser(init, step)

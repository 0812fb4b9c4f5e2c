"""What a Bayesian would earn on the bandits: optimal stopping by dynamic programming, exactly.

Arm 1's mean has a normal prior and its rewards are believed normal; arm 0 is known. Once arm 0 is
better it stays better (nothing more is learned), so the question is only when to stop pulling arm
1. The plan is made under these beliefs and played on Bernoulli arms. No neural network, no
sampling: a reference for agents that explore in an ensemble's opinions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError


@dataclass(frozen=True)
class Beliefs:
    """Prior of the planner, and what it plans for.

    Attributes:
        mean, std: of arm 1's unknown mean; the defaults are an ensemble's typical opinions.
        noise: standard deviation of a reward around that mean.
        known: what arm 0 pays.
        pulls: of an episode.
        discount: per pull.
        penalty: subtracted from the plan's rewards of arm 1, times `std` (conservatism).
    """

    mean: float = 0.30
    std: float = 0.30
    noise: float = 0.5
    known: float = 0.495
    pulls: int = positive(100)
    discount: float = 1.0
    penalty: float = 0.0

    def validate(self) -> None:
        for name in ("std", "noise"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "above 0")
        if not 0 < self.discount <= 1:
            raise ConfigError("discount", self.discount, "in (0, 1]")


class Optimum(NamedTuple):
    """How a plan fares on true bandits, `[arms]` each."""

    returns: np.ndarray  # mean true reward per pull, undiscounted
    pulls: np.ndarray  # mean number of pulls of arm 1


def stopping_boundary(
    beliefs: Beliefs, *, points: int = 2001, half_width: float = 8.0, nodes: int = 40
) -> np.ndarray:
    """Posterior means below which arm 0 is pulled for the rest of the episode, `[pulls]`.

    Entry `n` is the boundary after `n` pulls of arm 1; `-inf` where one goes on at any mean, `inf`
    where one stops at any.

    Args:
        beliefs: prior, horizon and penalty.
        points: of the grid of posterior means, spread over `half_width` prior standard deviations.
        nodes: of the Gauss-Hermite rule for the next posterior mean.

    Raises:
        ConfigError: a belief is out of range.
    """
    check(beliefs)
    b, n = beliefs, np.arange(beliefs.pulls)
    grid = b.mean + b.std * np.linspace(-half_width, half_width, points)
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    variance = 1.0 / (1.0 / b.std**2 + n / b.noise**2)
    # The posterior mean moves by this much (standard deviation) with the next reward.
    move = variance / np.sqrt(variance + b.noise**2)
    left = np.arange(b.pulls, 0, -1)
    stay = b.known * np.array([(b.discount ** np.arange(k)).sum() for k in left])
    boundary, value = np.empty(b.pulls), np.zeros(points)
    for t in reversed(range(b.pulls)):
        after = np.interp(grid[:, None] + move[t] * x, grid, value) @ weight
        go = grid - b.penalty * b.std + b.discount * after
        better = go > stay[t]
        if better.all() or not better.any():
            boundary[t] = -np.inf if better.all() else np.inf
        else:
            above = int(np.argmax(better))
            gain = (go - stay[t])[above - 1 : above + 1]
            boundary[t] = np.interp(0.0, gain, grid[above - 1 : above + 1])
        value = np.maximum(go, stay[t])
    return boundary


def play_optimum(
    beliefs: Beliefs,
    arms: tuple[float, ...],
    *,
    known: float = 0.5,
    boundary: np.ndarray | None = None,
) -> Optimum:
    """Expected play of the stopping rule on Bernoulli bandits, exactly.

    The posterior mean depends on the number of pulls and of wins only, so the chances of all
    (pulls, wins) at which one still goes on are a small table.

    Args:
        beliefs: of the planner.
        arms: true chances that arm 1 pays.
        known: true chance that arm 0 pays.
        boundary: of `stopping_boundary`; None computes it.
    """
    b = beliefs
    boundary = stopping_boundary(b) if boundary is None else boundary
    p = np.asarray(arms, float)
    wins = np.arange(b.pulls + 1)
    going = np.zeros((len(p), b.pulls + 1))
    going[:, 0] = 1.0
    pulls = np.zeros(len(p))
    for t in range(b.pulls):
        precision = 1.0 / b.std**2 + t / b.noise**2
        mean = (b.mean / b.std**2 + wins / b.noise**2) / precision
        going = np.where(mean > boundary[t], going, 0.0)
        pulls += going.sum(1)
        moved = going * (1.0 - p[:, None])
        moved[:, 1:] += going[:, :-1] * p[:, None]
        going = moved
    return Optimum((pulls * p + (b.pulls - pulls) * known) / b.pulls, pulls)

"""Worst-case targets where everything can be computed: value iteration on a windy cliff.

4 x 8 cells, discount 0.97, reward 1 at the goal; a fall costs 1 and leads back to the start. The
wind blows one cell towards the cliff in the place of the action. An ensemble of 20 models has its
probability from Beta(1.2, 12).
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.offline.methods.cvar import tail_gap

ROWS, COLUMNS, DISCOUNT, MODELS = 4, 8, 0.97, 20
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
DOWN, START, GOAL = 1, (ROWS - 1) * COLUMNS, ROWS * COLUMNS - 1
PAGE = Path(__file__).parents[3] / "docs" / "pages" / "methods" / "cvar.md"
WIND = np.random.default_rng(0).beta(1.2, 12, MODELS)


def cliff() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, next cell and end of every action and cell, `[4, 32]` each."""
    to = np.zeros((4, ROWS * COLUMNS), int)
    for cell in range(ROWS * COLUMNS):
        row, column = divmod(cell, COLUMNS)
        for action, (down, right) in enumerate(MOVES):
            at = np.clip(row + down, 0, ROWS - 1), np.clip(column + right, 0, COLUMNS - 1)
            to[action, cell] = at[0] * COLUMNS + at[1]
    falls = (to > START) & (to < GOAL)
    return (to == GOAL) * 1.0 - falls, np.where(falls, START, to), to == GOAL


REWARDS, NEXT, ENDS = cliff()


def backup(value: np.ndarray, wind: float) -> np.ndarray:
    """Of every action and cell, `[4, 32]`, where the wind blows with that probability."""
    still = REWARDS + DISCOUNT * ~ENDS * value[NEXT]
    return (1 - wind) * still + wind * still[DOWN]


def policy(dropped: float) -> np.ndarray:
    """The greedy policy of targets with the tail over models, by value iteration."""
    value, found = np.zeros(ROWS * COLUMNS), np.zeros((4, ROWS * COLUMNS))
    for _ in range(250):
        targets = np.stack([backup(value, wind) for wind in WIND])
        gap = np.asarray(tail_gap(jnp.asarray(targets.reshape(MODELS, -1)), dropped))
        found = targets.mean(0) - gap.reshape(4, -1)
        value = found.max(0)
    return found.argmax(0)


def earned(acts: np.ndarray, wind: float) -> float:
    """The policy's exact return from the start."""
    value = np.zeros(ROWS * COLUMNS)
    for _ in range(600):
        value = backup(value, wind)[acts, np.arange(ROWS * COLUMNS)]
    return float(value[START])


def row(dropped: float) -> list[float]:
    """Return at the mean wind, over the models, in the worst decile of them, at 0.2 and at 0.3."""
    acts = policy(dropped)
    every = np.sort([earned(acts, wind) for wind in WIND])
    strong = earned(acts, 0.2), earned(acts, 0.3)
    return [earned(acts, WIND.mean()), every.mean(), every[: MODELS // 10].mean(), *strong]


@functools.cache
def table() -> dict[float, list[float]]:
    return {dropped: row(dropped) for dropped in (0.0, 0.2, 0.5, 0.8)}


def test_the_tail_earns_more_in_strong_wind_and_as_much_in_the_mean_one() -> None:
    mean = table()[0.0]
    for dropped in (0.2, 0.5, 0.8):
        tail = table()[dropped]
        assert abs(tail[0] - mean[0]) < 0.02
        assert tail[2] > 1.25 * mean[2] and tail[4] > mean[4] + 0.25
    assert table()[0.8][4] > table()[0.5][4] > table()[0.2][4]


def test_without_a_tail_it_is_the_optimum_of_the_mean_model() -> None:
    """Backups are linear in the wind's probability: that of the mean model is the mean's."""
    value = np.zeros(ROWS * COLUMNS)
    for _ in range(600):
        value = backup(value, WIND.mean()).max(0)
    assert table()[0.0][0] == pytest.approx(value[START], abs=1e-4)


def test_the_page_has_this_table() -> None:
    for dropped, values in table().items():
        line = f"| {dropped:g} | " + " | ".join(f"{x:.2f}" for x in values) + " |"
        assert line.replace("-", "−") in PAGE.read_text(), line

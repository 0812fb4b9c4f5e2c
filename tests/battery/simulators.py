"""Simulators that break their contract: what an evaluation of a policy makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from . import attacks
from .attacks import Areas, Attack, base, command, some
from .hostile import CORRECT, WRONG
from .tally import Tally

# A Pendulum whose step or reset is overridden by one line; `good` changes nothing.
MODULE = """
import sys, time
import gymnasium, numpy as np

class Bad(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.count = 0

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        {reset}
        return observation, info

    def step(self, action):
        self.count += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.count > 100:
            {step}
        return observation, reward, terminated, truncated, info

def make():
    return Bad()
"""
STEPS = {
    "good": "pass",
    "NaN observation": "observation = observation * np.nan",
    "infinite observation": "observation = observation + np.inf",
    "1e300": "observation = observation.astype(float) + 1e300",
    "longer observation": "observation = np.append(observation, 0)",
    "observation of text": "observation = 'x'",
    "observation None": "observation = None",
    "NaN reward": "reward = float('nan')",
    "infinite reward": "reward = float('inf')",
    "reward None": "reward = None",
    "reward of two": "reward = np.zeros(2)",
    "text reward": "reward = 'x'",
    "flag of text": "terminated = 'no'",
    "four values": "return observation, reward, terminated, info",
    "nothing": "return None",
    "raises": "raise ValueError('broken joint')",
    "exits": "sys.exit(3)",
}
RESETS = {
    "NaN at reset": "observation = observation * np.nan",
    "longer at reset": "observation = np.append(observation, 0)",
    "raises at reset": "raise ValueError('broken joint')",
}


def played(reset: str, step: str, folder: Path) -> str:
    """`evaluate` in it."""
    (folder / "bad.py").write_text(MODULE.format(reset=reset, step=step))
    words = ["evaluate", base(), "--environment", "bad:make", "--episodes", 2]
    ended = command(*words, cwd=folder)
    if step == reset == "pass":
        return CORRECT if ended.code == 0 else ended.outcome
    return f"{WRONG}: a return was printed" if ended.code == 0 else ended.outcome


def evaluated(share: float, seed: int) -> list[Attack]:
    made = [Attack(name, partial(played, "pass", line)) for name, line in STEPS.items()]
    made += [Attack(name, partial(played, line, "pass")) for name, line in RESETS.items()]
    return some(made, share)


AREAS: Areas = {"an evaluation": evaluated}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("simulators", AREAS, share, seed)

"""Simulators that misbehave: at the reset, in a step, in the first copy or the third."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import attacks
from .attacks import CORRECT, NAMED, TRACEBACK, WRONG, Areas, Attack, some
from .tally import Tally


def _raises(_: Any) -> Any:
    raise RuntimeError("the robot\nfell over \x1b[31m")


def _exits(_: Any) -> Any:
    raise SystemExit(3)


# What is done to one entry of what `step` returns: observation, reward, terminated, truncated.
OBSERVATION: dict[str, Callable[[Any], Any]] = {
    "nan": lambda x: np.full_like(x, np.nan),
    "one inf": lambda x: np.where(np.arange(len(x)) == 1, np.inf, x),
    "beyond float32": lambda x: x.astype(np.float64) + 1e300,
    "one entry more": lambda x: np.append(x, 0.0),
    "one row more": lambda x: np.stack([x, x]),
    "None": lambda x: None,
    "text": lambda x: "state",
    "objects": lambda x: np.array([None] * len(x)),
    "complex": lambda x: x + 1j,
    "a dictionary": lambda x: {"state": x},
    "raises": _raises,
    "exits": _exits,
}
REWARD: dict[str, Callable[[Any], Any]] = {
    "nan": lambda r: float("nan"),
    "inf": lambda r: -float("inf"),
    "None": lambda r: None,
    "two": lambda r: np.array([r, r]),
    "text": lambda r: "1",
    "raises": _raises,
}
# These are taken for what they are.
FINE: dict[str, Callable[[Any], Any]] = {
    "an array of one": lambda r: np.array([[r]]),
    "float64": lambda r: np.float64(r),
}
WHOLE: dict[str, Callable[[Any], Any]] = {
    "four values": lambda s: s[:4],
    "None": lambda s: None,
    "a list": list,
    "interrupts": lambda s: (_ for _ in ()).throw(ArithmeticError("0/0")),
}


def environment(change: Callable[[Any], Any], part: int | None, at: int, copy: int) -> Any:
    """Pendulum whose copy `copy` is changed in its step `at` and in all after it; -1: its reset."""
    import gymnasium

    made: list[int] = []

    class Misbehaving(gymnasium.Wrapper):
        def __init__(self) -> None:
            super().__init__(gymnasium.make("Pendulum-v1"))
            self.number, self.time = len(made), 0
            made.append(self.number)

        def reset(self, **options: Any) -> Any:
            self.time = 0
            seen, info = self.env.reset(**options)
            # The first reset is a probe before any training; here the run itself is attacked.
            return (change(seen), info) if at < 0 and self.number >= copy else (seen, info)

        def step(self, action: Any) -> Any:
            given = self.env.step(action)
            self.time += 1
            if at < 0 or self.time <= at or self.number < copy:
                return given
            if part is None:
                return change(given)
            return (*given[:part], change(given[part]), *given[part + 1 :])

    return Misbehaving


def played(change: Callable, part: int | None, at: int, copy: int, fine: bool, _: Path) -> str:
    """A short training whose policy is played there."""
    import jax

    from jaxrl_rollouts.errors import UserError
    from jaxrl_rollouts.offline import recipe, train
    from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
    from jaxrl_rollouts.offline.data import Dataset
    from jaxrl_rollouts.offline.environments import from_gymnasium

    rows = pendulum_mixed(jax.random.key(0), 600)
    data = Dataset("pendulum-mixed", rows, None, Path("(made)"), "")
    method = recipe("bc", "smoke", data, steps=4, hidden_dims=(4,))
    try:
        env = from_gymnasium(environment(change, part, at, copy))
        result = train(data, method, seeds=2, episodes=2, evaluations=1, environment=env)
    except UserError as error:
        text = str(error)
        if "\n" in text or not attacks.printed(text):
            return f"{TRACEBACK}: {text[:200]!r}"
        return f"{WRONG}: refused: {text[:200]}" if fine else NAMED
    if result.returns is None or not np.isfinite(result.returns).all():
        return f"{WRONG}: returns {result.returns}"
    return CORRECT if fine else f"{WRONG}: returns {result.returns}"


def steps(share: float, seed: int) -> list[Attack]:
    """In the first step, which a probe sees, and late in one of the copies."""
    places = [(at, copy) for at, copy in itertools.product((0, 100), (0, 3)) if at or not copy]
    parts = [(0, OBSERVATION, False), (1, REWARD, False), (1, FINE, True), (None, WHOLE, False)]
    made = [
        Attack(f"{name}, part {part}, step {at}, copy {copy}", partial(played, *given))
        for part, kinds, fine in parts
        for name, change in kinds.items()
        for at, copy in places
        for given in [(change, part, at, copy, fine)]
    ]
    return some(made, share)


def resets(share: float, seed: int) -> list[Attack]:
    made = [
        Attack(f"{name}, reset, copy {copy}", partial(played, change, 0, -1, copy, False))
        for name, change in OBSERVATION.items()
        for copy in (0, 3)
    ]
    return some(made, share)


AREAS: Areas = {"steps": steps, "resets": resets}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("simulators", AREAS, share, seed, based=False)

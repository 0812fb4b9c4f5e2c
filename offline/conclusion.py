"""What a report concludes of a trained policy: whether to use it, why, and what to try next."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.reports.claims import TIME_CONSTANTS
from jaxrl_rollouts.reports.text import format_number

from .policy_value import ImaginedValue
from .worlds.quality import Quality

# Estimates are called too high from this share of the true value's size on, in every seed.
OVERESTIMATED = 0.25
LONGEST = 100.0  # a longer training than this many times the run is no advice


class Measured(NamedTuple):
    """What a conclusion rests on; arrays are `[seeds]`.

    Attributes:
        returns: returns of the last evaluation in the true environment.
        behaviour: mean return of the dataset's episodes.
        true_value: discounted return of the last evaluation.
        estimated_value: the critics' value of the start states; None of an agent without critics.
        time_constants: `n tau (1 - gamma)` of the critics; None where nothing bootstraps.
        unlike: why returns of the data and of the policy cannot be compared; "" where they can.
        world: open-loop errors of the world model; None where there is none.
        imagined: the value in the world models; None where there are none.
    """

    returns: np.ndarray
    behaviour: float
    true_value: np.ndarray
    estimated_value: np.ndarray | None = None
    time_constants: float | None = None
    unlike: str = ""
    world: Quality | None = None
    imagined: ImaginedValue | None = None


def conclude(found: Measured) -> list[str]:
    """At most three sentences: the verdict, its reasons, and what to try."""
    reasons = [*_estimates(found), *_members(found), *_world(found)]
    parts = [_verdict(found), f"Why: {'; '.join(reasons)}." if reasons else "", _advice(found)]
    return [part for part in parts if part]


def disagreeing(returns: np.ndarray, behaviour: float) -> str:
    """Why seeds leave it undecided whether returns are above the data's; "" where they agree."""
    above = int((returns >= behaviour).sum())
    if above in (0, len(returns)):
        return ""
    return f"{above} of {len(returns)} seeds earn as much as the data"


def world_is_worse(world: Quality) -> list[int]:
    """Steps, of the first and the last, at which the model errs more than "nothing changes"."""
    errors, still = _medians(world)
    return [s for s in sorted({1, len(errors)}) if not errors[s - 1] <= still[s - 1]]


def _medians(world: Quality) -> tuple[np.ndarray, np.ndarray]:
    """`[T]` open-loop errors of the model and of "nothing changes"."""
    return np.median(world.errors, 1), np.median(world.unchanged, 1)


def _verdict(found: Measured) -> str:
    returns = found.returns
    failed = int((~np.isfinite(returns)).sum())
    if failed:
        others = f"; the others earn {_range(returns[np.isfinite(returns)])}"
        many = f"{failed} of {len(returns)} seeds"
        return f"Undecided: training diverged in {many}{others * (failed < len(returns))}."
    earned = f"{_range(returns)} in {_seeds(len(returns))}, the data {_number(found.behaviour)}"
    if found.unlike:
        return f"Undecided: the policy earns {earned}, but {found.unlike}."
    if _early(found):
        clock = f"{format_number(found.time_constants)} of {TIME_CONSTANTS:g} time constants"
        unit = "one is 1 / (tau (1 - discount)) gradient steps"
        return f"Not converged: values were read after {clock} ({unit}); the policy earns {earned}."
    if mixed := disagreeing(returns, found.behaviour):
        return f"Undecided: {mixed}; the policy earns {earned}."
    if (returns >= found.behaviour).all():
        return f"Use it: every seed earns at least as much as the data ({earned})."
    return f"Do not use it: every seed earns less than the data ({earned})."


def _estimates(found: Measured) -> list[str]:
    reasons = []
    imagined = None if found.imagined is None else found.imagined.value
    for name, values in (("critics", found.estimated_value), ("world models", imagined)):
        if values is None:
            continue
        if not np.isfinite(values).all():
            failed = int((~np.isfinite(values)).sum())
            reasons.append(f"the {name}' value is not finite in {failed} of {len(values)} seeds")
        elif (values - found.true_value > OVERESTIMATED * np.abs(found.true_value)).all():
            pair = f"{_range(values)} where {_range(found.true_value)} is true"
            reasons.append(f"the {name} overestimate the value ({pair})")
    return reasons


def _members(found: Measured) -> list[str]:
    if found.imagined is None or not found.imagined.away.any():
        return []
    many = f"{found.imagined.away.sum()} of {found.imagined.by_member.size}"
    return [f"{many} members of the world models diverged"]


def _world(found: Measured) -> list[str]:
    if found.world is None:
        return []
    errors, still = _medians(found.world)
    shown = [
        f"{_number(errors[s - 1])} against {_number(still[s - 1])} at step {s}"
        for s in world_is_worse(found.world)
    ]
    return [f'world model: larger errors than "nothing changes": {", ".join(shown)}'] * bool(shown)


def _advice(found: Measured) -> str:
    if not np.isfinite(found.returns).all():
        return "Try: a smaller learning rate, or a method without a world model (iql, td3_bc)."
    if _early(found):
        assert found.time_constants is not None
        times = math.ceil(TIME_CONSTANTS / max(found.time_constants, 1e-12))
        many = f"{times} times as many steps" if times <= LONGEST else "--preset small or long"
        return f"Try: {many}."
    if found.world is not None and world_is_worse(found.world):
        return "Try: a larger world model, fitted longer (--preset long), or iql or td3_bc."
    if found.unlike:
        return "Try: an environment with the data's time limit, by --environment."
    if disagreeing(found.returns, found.behaviour):
        return "Try: more seeds (--seeds 5) and more evaluation episodes (--episodes 50)."
    if (found.returns < found.behaviour).all():
        return "Try: a stronger penalty, or a method that stays near the data (td3_bc, iql)."
    return ""


def _early(found: Measured) -> bool:
    return found.time_constants is not None and found.time_constants < TIME_CONSTANTS


def _range(values: np.ndarray) -> str:
    low, high = _number(np.min(values)), _number(np.max(values))
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    return format_number(float(value))


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"

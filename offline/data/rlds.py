"""Steps in RLDS's layout (Ramos et al. 2021, arXiv:2111.02767), and dm_env's discounts.

A step is an observation, the action taken there, and the reward and discount of that action. The
last step of an episode (`is_last`) is an observation only: its action, reward and discount mean
nothing. `is_terminal` marks a last observation after which no value follows. An episode of T + 1
steps is therefore T rows. Without `is_terminal` a discount of 0 marks the row that terminates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.outside import to_numbers

from .checks import as_column, as_flags

FLAGS = ("is_first", "is_last", "is_terminal")
DISCOUNTS = ("discount", "discounts")


def find_steps(keys: Collection[str]) -> dict[str, str]:
    """RLDS's names that are there, in small letters, and how the file writes them.

    Empty unless an episode's last or first step is marked.
    """
    known = (*FLAGS, *DISCOUNTS)
    there = {key.lower(): key for key in sorted(keys) if key.lower() in known}
    return there if {"is_last", "is_first"} & {*there} else {}


def read_as(steps: Mapping[str, str]) -> str:
    """What these names are read as."""
    ends = steps.get("is_last", "the steps before " + steps.get("is_first", ""))
    marks = [steps[key] for key in ("is_terminal", *DISCOUNTS) if key in steps]
    terminal = f", {marks[0]}{' 0' * (marks[0].lower() in DISCOUNTS)} as terminals" if marks else ""
    return f"{ends} as the last observation of an episode, which is no row (RLDS){terminal}"


def terminates(source: str | Path, key: str, values: Any) -> np.ndarray:
    """Where a discount is 0, so that no value follows, `[N]` bool."""
    discount = as_column(source, key, to_numbers(source, key, values), 1)
    wrong = np.flatnonzero(~((discount >= 0) & (discount <= 1)))
    if len(wrong):
        raise DataError(source, key, f"{discount[wrong[0]]} in row {wrong[0]}", "0 to 1")
    return discount == 0


def rows_of_steps(
    source: str | Path, arrays: Mapping[str, Any], steps: Mapping[str, str]
) -> tuple[dict[str, Any], np.ndarray]:
    """Rows of steps, under our names, and which steps they are.

    Args:
        arrays: `observations` [N, S], `actions` [N, A], `rewards` [N] of steps, and RLDS's flags
            under their own names.
        steps: see `find_steps`.

    Raises:
        DataError: nothing that marks terminals; flags that contradict each other; stored
            `next_observations`; no episode of two steps.
    """
    if "next_observations" in arrays:
        found = f"next_observations beside {steps.get('is_last', steps.get('is_first'))}"
        expected = "one of the two: RLDS's last step of an episode is its last observation"
        hint = "leave next_observations out; or, if last steps are rows, name the flags timeouts"
        raise DataError(source, "next_observations", found, expected, hint)
    last, over = _flags(source, arrays, steps)
    count = len(last)
    rows = np.flatnonzero(~last)
    if not len(rows):
        raise DataError(source, "is_last", f"1 in all {count} steps", "an episode of two steps")
    taken = {key: values for key, values in arrays.items() if key not in steps.values()}
    for key in ("observations", "actions", "rewards"):
        if key in taken:
            taken[key] = to_numbers(source, key, taken[key])
            if len(taken[key]) != count:
                found = f"{len(taken[key])} rows"
                raise DataError(
                    source, key, found, f"{count} rows, as {next(iter(steps.values()))}"
                )
    if "observations" in taken:
        taken["next_observations"] = taken["observations"][rows + 1]
    taken |= {k: taken[k][rows] for k in ("observations", "actions", "rewards") if k in taken}
    ends = last[rows + 1]
    return taken | {"terminals": over[rows], "timeouts": ends & ~over[rows]}, rows


def _flags(
    source: str | Path, arrays: Mapping[str, Any], steps: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """Which steps are last ones, and after which no value follows, `[N]` bool each.

    What comes after the last mark is an episode that was not finished: its last step has no
    successor, so it is taken as a last one.
    """
    marks = {key: as_flags(source, steps[key], arrays[steps[key]]) for key in FLAGS if key in steps}
    discount = next((steps[key] for key in DISCOUNTS if key in steps), None)
    if discount is not None:
        marks["discount"] = terminates(source, discount, arrays[discount])
    (first_key, first), *others = marks.items()
    for key, values in others:
        if len(values) != len(first):
            found = f"{len(values)} rows"
            raise DataError(source, key, found, f"{len(first)} rows, as {first_key}")
    last = marks["is_last"].copy() if "is_last" in marks else np.append(first[1:], True)
    if not len(last):
        raise DataError(source, first_key, "0 rows", "at least one step")
    if "is_last" in marks and "is_first" in marks:
        wrong = np.flatnonzero(marks["is_first"][1:] != last[:-1])
        if len(wrong):
            found = f"is_first {int(marks['is_first'][wrong[0] + 1])} in step {wrong[0] + 1}"
            raise DataError(source, "is_last", found, "is_first in the step after each last one")
    last[-1] = True
    if "is_terminal" in marks:
        wrong = np.flatnonzero(marks["is_terminal"] & ~last)
        if len(wrong):
            found = f"a terminal step {wrong[0]} that is not the last of its episode"
            raise DataError(source, "is_terminal", found, "terminal steps that are last ones")
        return last, np.append(marks["is_terminal"][1:], False) & ~last
    if "discount" not in marks:
        expected = "is_terminal, or a discount, which is 0 where no value follows"
        hint = "add an array is_terminal; zeros where episodes were only cut"
        raise DataError(source, "is_terminal", "no such key", expected, hint)
    over = marks["discount"] & ~last
    wrong = np.flatnonzero(over & ~np.append(last[1:], True))
    if len(wrong):
        found = f"0 in step {wrong[0]}, inside an episode"
        raise DataError(source, discount or "", found, "0 at the end of an episode only")
    return last, over

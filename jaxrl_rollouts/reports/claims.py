"""A claim is a sentence from a paper, a threshold, and numbers that decide whether it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import DataError
from .statistics import STATISTICS, aggregate, spread

_SPECIAL = {None: math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EXTREMES = ("all", "min", "max")
TIME_CONSTANTS = 3.0  # after which a value is within exp(-3) = 5 % of what its critics go towards


@dataclass(frozen=True)
class Claim:
    """Whether `statistic(values)` lies in `[low, high]`.

    Made by `of`. The measured value and whether the claim holds are
    computed from `values` and cannot be given. A claim about values or returns of critics that
    were read before `TIME_CONSTANTS` time constants holds and fails nothing: it is not converged;
    one with a value that is not finite is undecided.

    Attributes:
        name: short and unique within a report.
        source: paper, section, table.
        expected: in words.
        values: `[seeds]` or `[seeds, tasks]`, as nested tuples.
        low, high: the bounds, None for an open end.
        statistic: "iqm", "mean", "median"; "min", "max"; or "all", the value nearest to failing.
        command: the command line that remakes it; `Report.claim` fills in the report's own.
        time_constants: time constants of the critics behind the values, `n tau (1 - gamma)` after n
            gradient steps, the fewest of all; None where the values are not read off critics.
        undecided: why the values and the bound are not of the same kind, so that the claim neither
            holds nor fails; "" where they are.
    """

    name: str
    source: str
    expected: str
    values: tuple[Any, ...]
    low: float | None
    high: float | None
    statistic: str = "iqm"
    command: str = ""
    time_constants: float | None = None
    undecided: str = ""

    def __post_init__(self) -> None:
        array = np.atleast_1d(np.asarray(self.values, np.float64))
        if array.size == 0 or array.ndim > 2:
            raise ValueError(
                f"{self.name}: found values of shape {array.shape}, "
                "expected [seeds] or [seeds, tasks]"
            )
        if self.statistic not in (*STATISTICS, *_EXTREMES):
            raise ValueError(
                f"{self.name}: statistic: found {self.statistic!r}, "
                f"expected one of {', '.join((*STATISTICS, *_EXTREMES))}"
            )
        bounds = [b for b in (self.low, self.high) if b is not None]
        if not bounds or any(math.isnan(b) for b in bounds) or bounds != sorted(bounds):
            raise ValueError(
                f"{self.name}: found bounds {self.low} and {self.high}, expected low <= high"
            )
        rows = tuple(tuple(row) if isinstance(row, list) else row for row in array.tolist())
        object.__setattr__(self, "values", rows)

    @classmethod
    def of(
        cls,
        name: str,
        values: ArrayLike,
        *,
        source: str,
        expected: str,
        at_least: float | None = None,
        at_most: float | None = None,
        between: tuple[float, float] | None = None,
        **more: Any,
    ) -> Claim:
        """That `statistic(values)` lies within one of the three bounds; `more` as of the class.

        Raises:
            ValueError: no bound, or several.
        """
        if sum(bound is not None for bound in (at_least, at_most, between)) != 1:
            raise ValueError(f"{name}: expected one of at_least, at_most and between")
        low, high = between or (at_least, at_most)
        low, high = (None if bound is None else float(bound) for bound in (low, high))
        rows = tuple(np.atleast_1d(np.asarray(values, np.float64)).tolist())
        return cls(name, source, expected, rows, low, high, **more)

    @property
    def measured(self) -> float:
        """The statistic of the values; NaN if any value is NaN."""
        array = np.asarray(self.values, np.float64)
        if np.isnan(array).any():
            return math.nan
        if self.statistic in STATISTICS:
            return aggregate(array, self.statistic)
        flat = array.reshape(-1)
        if self.statistic != "all":
            return float(flat.min() if self.statistic == "min" else flat.max())
        below = -math.inf if self.low is None else self.low - flat
        above = -math.inf if self.high is None else flat - self.high
        return float(flat[np.argmax(np.maximum(below, above))])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The values' `spread`; their range for "all", "min" and "max".

        None with a single seed, or with values that are not finite.
        """
        array = np.asarray(self.values, np.float64)
        if len(array) < 2 or not np.isfinite(array).all():
            return None
        if self.statistic in _EXTREMES:
            return float(array.min()), float(array.max())
        return spread(array, self.statistic)

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def verdict(self) -> str:
        """yes, no, not converged, or undecided: not comparable, or a value that is not finite."""
        if self.undecided:
            return "undecided"
        if self.time_constants is not None and self.time_constants < TIME_CONSTANTS:
            return "not converged"
        if not np.isfinite(np.asarray(self.values, np.float64)).all():
            return "undecided"
        above = self.low is None or self.measured >= self.low
        return "yes" if above and (self.high is None or self.measured <= self.high) else "no"

    @property
    def holds(self) -> bool:
        """Whether the measured value is within the bounds, finite, converged and decided."""
        return self.verdict == "yes"

    @property
    def threshold(self) -> float | tuple[float, float]:
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return self.low if self.high is None else self.high  # type: ignore[return-value]

    @property
    def rule(self) -> str:
        """at_least, at_most or between."""
        if self.low is not None and self.high is not None:
            return "between"
        return "at_least" if self.high is None else "at_most"

    def to_json(self) -> dict[str, Any]:
        """The claim with what is computed from it."""
        keys = ("name", "source", "expected", "statistic", "rule", "threshold", "measured")
        keys += ("interval", "seeds", "holds", "values", "command")
        data = {key: getattr(self, key) for key in keys}
        late = self.time_constants
        data |= {} if late is None else {"time_constants": late}
        data |= {"undecided": self.undecided} if self.undecided else {}
        known = late is None and not self.undecided
        return data if known else data | {"verdict": self.verdict}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> Claim:
        """Read what `to_json` wrote; the result is computed again from the values.

        Raises:
            DataError: something is missing, or a stored `measured` or `holds` is not what the
                values say.
        """
        key = f"claim {data.get('name', '?')}" if isinstance(data, Mapping) else "claims"
        try:
            make: Mapping[str, Callable[[Any], tuple[Any, Any]]] = {
                "at_least": lambda t: (float(t), None),
                "at_most": lambda t: (None, float(t)),
                "between": lambda t: (float(t[0]), float(t[1])),
            }
            low, high = make[data["rule"]](data["threshold"])
            texts = (data["name"], data["source"], data["expected"])
            values = numbers(data["values"])
            late = data.get("time_constants")
            late = None if late is None else float(late)
            why = str(data.get("undecided", ""))
            claim = cls(*texts, values, low, high, data["statistic"], data["command"], late, why)
            stored, holds = numbers(data["measured"]), data["holds"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(where, key, f"{type(error).__name__} {error}", "a claim") from None
        if holds is not claim.holds:
            raise DataError(where, f"{key}: holds", holds, f"{claim.holds}, computed from values")
        if not np.isclose(stored, claim.measured, equal_nan=True):
            raise DataError(where, f"{key}: measured", stored, f"{claim.measured} from values")
        return claim


def counted(claims: Iterable[Claim]) -> str:
    """How many hold: "2 of 5 hold, 1 not converged"."""
    claims = list(claims)
    text = f"{sum(claim.holds for claim in claims)} of {len(claims)} hold"
    for verdict in ("not converged", "undecided"):
        count = sum(claim.verdict == verdict for claim in claims)
        text += f", {count} {verdict}" if count else ""
    return text


def numbers(data: Any) -> Any:
    """Undo `run_folder.plain` for numbers and nested lists of them (as tuples)."""
    if isinstance(data, list | tuple):
        return tuple(numbers(item) for item in data)
    if data is None or isinstance(data, str):
        return _SPECIAL[data]
    return float(data)

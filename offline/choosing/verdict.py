"""From estimates to a verdict on every policy, and one on all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from .estimates import Estimate, Log
from .importance import LEAST
from .models import Models
from .policies import Entry

DEPLOY, TRY, UNKNOWN, REJECT = "deploy", "try first", "undecided", "do not deploy"
OFF = 0.15  # of the range of the data's returns, that its own parts may be misjudged by
BEYOND, TOO_FAR = 0.2, 0.5  # shares of steps beyond the models' limit

# Width factor of the intervals. By leaving one dataset out (`scores.left_out`) none covers the set
# that is left out: `experiments/results/policy_value.md`.
WIDTH = 1.0


class Row(NamedTuple):
    """One policy. Values are discounted sums of the data's rewards; NaN where there is none.

    Attributes:
        policy: its name.
        verdict, why: one of four, and the reason.
        value, low, high: those of the first estimator, with an interval.
        gain, gain_low, gain_high: the same of the difference to the data, on the same episodes.
        beyond: share of its steps where the models disagree more than anywhere on the data.
        members: with a finite value, of how many.
        fqe, is_, dr, dice: values by the others.
        effective: episodes that importance sampling rests on; 0 of a policy without a density.
    """

    policy: str
    verdict: str
    why: str
    value: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    beyond: float
    members: str
    fqe: float = float("nan")
    is_: float = float("nan")
    dr: float = float("nan")
    dice: float = float("nan")
    effective: float = 0.0


class Check(NamedTuple):
    """The first estimator on the log's own parts.

    Attributes:
        off: median of its estimates less what the parts earned.
        spread: 1.48 times the median distance from that; it widens the intervals.
        allowed: allowed error.
        parts: number of parts; 0 where nothing was checked.
    """

    off: float
    spread: float
    allowed: float
    parts: int

    @property
    def passed(self) -> bool:
        return bool(abs(self.off) <= self.allowed)


def check_of(estimate: Estimate, log: Log) -> Check:
    """How far an estimator is off on the log's own parts, against the range of its returns.

    With one part the spread is its error; a part without a finite value fails the check.
    """
    off = estimate.off
    middle = float(np.median(off))
    spread = 1.48 * float(np.median(np.abs(off - middle))) if len(off) > 1 else abs(middle)
    low, high = np.quantile(log.returns, [0.1, 0.9])
    error = float(log.returns.std(ddof=1)) / len(log.returns) ** 0.5
    return Check(middle, spread, OFF * float(high - low) + 2.0 * error, len(off))


def verdict_of(
    row: Row, above: float, *, doubt: str, no_value: str, against: str
) -> tuple[str, str]:
    """A row's verdict and why.

    Args:
        row: with its numbers.
        above: upper end of the interval of the data's own value.
        doubt: why the estimator cannot be trusted at all; "" where it can.
        no_value: why this policy has no value; likewise.
        against: why the estimator that does not decide is against it; likewise.
    """
    if doubt or no_value:
        return UNKNOWN, doubt or no_value
    if row.beyond > TOO_FAR:
        return UNKNOWN, f"{row.beyond:.0%} of its steps are beyond the trust limit"
    between = f"{row.gain:+.3g} [{row.gain_low:+.3g}, {row.gain_high:+.3g}] against the data"
    if row.gain_high < 0:
        return REJECT, f"worse than the data: {between}"
    if against and row.gain < 0:
        return REJECT, f"{against}, and worse than the data: {between}"
    if row.gain_low > 0 and not row.beyond > BEYOND and not against:
        return DEPLOY, f"better than the data: {between}"
    if row.value > above:
        doubts = (
            [f"{row.beyond:.0%} of its steps beyond the trust limit"] if row.beyond > BEYOND else []
        )
        doubts += [against] if against else []
        doubts += ["its interval holds 0"] if row.gain_low <= 0 else []
        return TRY, f"{between}: {', '.join(doubts)}"
    return UNKNOWN, f"not clearly better than the data: {between}"


def deciding(
    found: Mapping[str, Estimate], log: Log, models: Models | None
) -> tuple[dict[str, Estimate], str]:
    """Estimates with the one that decides at first, and why that is not the first requested.

    It is `fqe` where what comes before it fails the check on the data's parts, or errs more than
    "nothing changes", and `fqe` itself passes that check. Its critics may value actions that the
    log never shows, so a policy is deployed only where the models do not contradict it.
    """
    name, first = next(iter(found.items()))
    doubt = _doubt(check_of(first, log), models if name == "models" else None)
    if doubt and name != "fqe" and "fqe" in found and check_of(found["fqe"], log).passed:
        return {"fqe": found["fqe"], **found}, f"Not by {name}: {doubt}."
    return dict(found), ""


def _doubt(check: Check, models: Models | None) -> str:
    """Why an estimator cannot be trusted at all; "" where it can."""
    if models is not None and models.wrong:
        return models.wrong
    off, allowed = f"{check.off:+.3g}", f"{check.allowed:.3g}"
    misjudged = f"the data's own parts are misjudged by {off}, allowed {allowed}"
    return "" if check.passed else misjudged


def table_of(
    log: Log,
    entries: Sequence[Entry],
    found: Mapping[str, Estimate],
    weighed: Mapping[str, tuple[np.ndarray, np.ndarray | None]],
    models: Models | None,
    level: float,
) -> tuple[list[Row], Check, tuple[float, float, float]]:
    """Rows with intervals and verdicts; the check; the data's own value, low, middle, high.

    The first of `found` decides.
    """
    name = next(iter(found))
    first, other = found[name], found.get("fqe" if name != "fqe" else "models")
    check = check_of(first, log)
    names = [policy for entry in entries for policy in entry.names]
    doubt = _doubt(check, models if name == "models" else None)
    ends = (1 - level) / 2, (1 + level) / 2
    below, above = (float(x) for x in np.quantile(first.data, ends))
    table = []
    for number, policy in enumerate(names):
        row = _row(policy, number, first, check, level)
        if other is not None and name == "fqe":
            row = row._replace(beyond=float(other.beyond[number]))
        elif other is not None:
            row = row._replace(fqe=float(other.value[number]))
        for kind, (values, sizes) in weighed.items():
            row = row._replace(**{"is_" if kind == "is" else kind: float(values[number])})
            if sizes is not None:
                row = row._replace(effective=float(sizes[number]))
        against = ""
        if other is not None and not (name == "fqe" and models and models.wrong):
            against = _against(other, number, ends[0], log if name == "fqe" else None)
        more: Any = {"doubt": doubt, "no_value": first.why[number], "against": against}
        verdict, why = verdict_of(row, above, **more)
        if other is not None and name != "fqe" and other.why[number]:
            why += f"; no fqe: {other.why[number]}"
        table.append(row._replace(verdict=verdict, why=why + _silent(row, weighed)))
    return table, check, (below, first.own, above)


def _row(policy: str, number: int, first: Estimate, check: Check, level: float) -> Row:
    """Value and gain with their intervals, `centre +- WIDTH z sd`."""
    draws, value, beyond = first.draws[number], float(first.value[number]), first.beyond[number]
    further = max(1.0, beyond / max(first.beyond_data, 0.01)) if np.isfinite(beyond) else 1.0
    more, z = check.spread**2 * further, WIDTH * NormalDist().inv_cdf((1 + level) / 2)
    each = [z * float(np.sqrt(x.var() + more)) for x in (draws, draws - first.data)]
    gain = value - first.own
    ends = (value - each[0], value + each[0], gain, gain - each[1], gain + each[1])
    return Row(policy, "", "", value, *ends, float(beyond), first.members[number])


def _against(other: Estimate, number: int, level: float, log: Log | None) -> str:
    """Why an estimator that does not decide is against a policy; "" where it is not.

    Args:
        log: that world models value, less their median error on the log's parts; None for critics,
            which count as they are.
    """
    name, off = ("fqe", 0.0) if log is None else ("models", check_of(other, log).off)
    if (log is None and "diverged" in other.why[number]) or (log and other.why[number]):
        return other.why[number]
    low, value = np.quantile(other.data, level), other.value[number] - off
    return f"{name} below the data ({value:.4g}, data {other.own:.4g})" if value < low else ""


def _silent(row: Row, weighed: Mapping[str, Any]) -> str:
    """The reason where importance sampling gives no value."""
    if not {"is", "dr"} & set(weighed):
        return ""
    if not row.effective:
        return "; no density for importance sampling"
    few = f"; importance sampling rests on {row.effective:.1f} episodes, fewer than {LEAST:g}"
    return few if row.effective < LEAST else ""


def headline(table: Sequence[Row]) -> str:
    """Of all policies: the best `low` of the best verdict."""
    by = {name: [row for row in table if row.verdict == name] for name in (DEPLOY, TRY, UNKNOWN)}
    order = {name: sorted(rows, key=lambda row: -row.low) for name, rows in by.items()}
    if order[DEPLOY]:
        return f"{DEPLOY} {order[DEPLOY][0].policy}"
    if order[TRY]:
        return f"{TRY}: {', '.join(row.policy for row in order[TRY])}"
    return UNKNOWN if order[UNKNOWN] else REJECT

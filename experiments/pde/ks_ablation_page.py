"""Tables, claims and picture of `ks_ablation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.colours import colour
from .ks_ablation_cells import BOTH, AblationConfig, Point, base_value
from .ks_refiner import SOURCE


def make_report(report: Report, config: AblationConfig, points: list[Point]) -> None:
    """Every sweep: a table and a panel."""
    base = {p.method: p for p in points if not p.setting.sweep}
    sweeps = list(dict.fromkeys(p.setting.sweep for p in points if p.setting.sweep))
    clocks = {}
    for sweep in sweeps:
        clocks[sweep] = _clocks(config, sweep, points, base)
        report.table(sweep, [_row(sweep, *found) for found in clocks[sweep]])
    _draw(report, clocks, base["mse"].times[0])
    for claim in _claims(config, points, base):
        report.claim(claim)
    report.note(
        f"Base: noise floor {config.refiner.min_noise_variance:g}, {config.refiner.steps} "
        f"refinements, step {base['mse'].dt:g}, {config.study.points} points, all "
        f"{config.study.train.trajectories} training trajectories, "
        f"{config.study.training.updates} updates; {config.study.test.trajectories} test ones."
    )


class Clocked(NamedTuple):
    """One method at one value of a sweep, and how long its rollouts last.

    Attributes:
        curve, each: `[seeds]`, T(0.8) of the mean curve and mean over trajectories.
    """

    method: str
    value: float
    point: Point
    curve: np.ndarray
    each: np.ndarray


def _clocks(
    config: AblationConfig, sweep: str, points: list[Point], base: dict[str, Point]
) -> list[Clocked]:
    """A sweep with the base in its place, by method and value."""
    found = [(p.method, p.setting.value, p) for p in points if p.setting.sweep == sweep]
    swept = [m for m in BOTH if any(m == method for method, _, _ in found)]
    found += [(m, base_value(config, sweep), base[m]) for m in swept]
    found.sort(key=lambda one: (swept.index(one[0]), one[1]))
    return [Clocked(*f, *f[2].times) for f in found]


def _row(sweep: str, method: str, value: float, p: Point, curve: Any, each: Any) -> dict:
    return {
        sweep: value, "method": method, "T(0.8), mean curve": summarize(curve),
        "T(0.8), per trajectory": summarize(each),
        "one-step MSE": summarize(p.found.one_step[:, -1]),
        "highest wavenumbers' error": summarize(p.tail),
    }  # fmt: skip


def _draw(report: Report, clocks: dict[str, list[Clocked]], mse: np.ndarray) -> None:
    made, axes = figure(2, -(-len(clocks) // 2), titles=tuple(clocks))
    for found, ax in zip(clocks.values(), axes, strict=False):
        values = sorted({f.value for f in found})
        methods = list(dict.fromkeys(f.method for f in found))
        for method in methods:
            mine = [f for f in found if f.method == method]
            at, shade = [f.value for f in mine], colour(method)
            ax.plot(at, [f.curve.mean() for f in mine], "o-", color=shade, label=method)
            for x, f in zip(at, mine, strict=True):
                ax.plot([x] * len(f.curve), f.curve, ".", color=shade, alpha=0.5)
        if "mse" not in methods:
            ax.axhline(mse.mean(), color=colour("mse"), linestyle="--", label="mse, base")
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{v:g}" for v in values])
        ax.minorticks_off()
        ax.set_ylim(bottom=0.0)
        ax.set_ylabel("T(0.8), mean curve")
    legend(made, axes)
    report.picture("sweeps", made, "High-correlation time over every setting; points are seeds.")


def _claims(config: AblationConfig, points: list[Point], base: dict[str, Point]) -> Iterator[Claim]:
    """Orders the paper's figures have; lengths depend on the budget."""
    tails = {p.setting.value: p.tail for p in points if p.setting.sweep == "noise floor"}
    if tails:
        highest = max(tails)
        yield Claim.at_least(
            "the noise floor sets the error of the highest wavenumbers", source=SOURCE,
            values=tails[highest] / base["refiner"].tail,
            threshold=3.0, expected=f"error at a floor of {highest:g} over that of the base",
        )  # fmt: skip
    times = {(p.setting.sweep, p.setting.value, p.method): p.times[0] for p in points}
    own = {m: p.times[0] for m, p in base.items()}
    for history in config.histories:
        yield Claim.at_most(
            f"a history of {history} shortens MSE training's rollouts", source=SOURCE,
            values=times["history", history, "mse"] / own["mse"], threshold=0.95,
            expected="T(0.8) over that with one frame",
        )  # fmt: skip
    if config.shares:
        least = min(config.shares)
        ratios = [
            t["refiner"] / t["mse"]
            for t in ({m: times["share of the data", least, m] for m in BOTH}, own)
        ]
        yield Claim.at_least(
            "refinement helps most with little data", source=SOURCE,
            values=ratios[0] / ratios[1], threshold=1.05,
            expected=f"refiner over MSE with {100 * least:g} % of the data, over that with all",
        )  # fmt: skip

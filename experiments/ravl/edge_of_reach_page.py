"""Tables, claims and pictures of `edge_of_reach_toy`."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from jaxrl_rollouts.offline.environments.plane import PLANE, optimal_return
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .edge_of_reach_cells import Cell, Config, Setting
from .edge_of_reach_pictures import draw_maps, draw_reach, draw_spread, draw_training

SOURCE = "Sims et al. 2024 (arXiv 2402.12527), simple environment"
COLUMNS = {
    "return, % of optimum": "percent",
    "estimated value": "estimated_value",
    "true value": "true_value",
    "spread within reach": "spread_within",
    "spread at the edge": "spread_edge",
    "mean - min within reach": "gap_within",
    "mean - min at the edge": "gap_edge",
}


def label(method: str, dynamics: str) -> str:
    """How a run is called in tables and legends."""
    return f"{method}, {dynamics} dynamics"


def make_report(
    report: Report, config: Config, setting: Setting, cells: Mapping[tuple[str, str], Cell]
) -> None:
    """Fill `report` with everything the run has to say."""
    last = {pair: cell.trained.history.last for pair, cell in cells.items()}
    for (method, dynamics), value in last.items():
        name = label(method, dynamics)
        report.number(f"return: {name}", value("percent"), "% of the optimum")
        report.number(f"estimated value: {name}", value("estimated_value"))
    report.table(
        "after training",
        [
            {"method": method, "dynamics": dynamics}
            | {column: summarize(value(metric)) for column, metric in COLUMNS.items()}
            | {"edge states in the buffer, %": summarize(100.0 * value("edge_share"))}
            for (method, dynamics), value in last.items()
        ],
    )
    starts = PLANE.observe(PLANE.reset(jax.random.key(config.seed), 4096))
    discount = config.agent.discount
    at_start = np.asarray(optimal_return(starts, discount=discount, horizon=None)).mean()
    best = 1.0 / (1.0 - discount)
    report.number("V* at the start states", float(at_start))
    report.number("highest V* anywhere", best)
    for claim in _claims(last, best):
        report.claim(claim)
    draw_reach(report, setting)
    draw_training(report, config, cells, float(at_start))
    draw_spread(report, config, cells)
    draw_maps(report, setting, cells)
    report.note(
        "With true dynamics the penalties of MOPO and MOBILE are zero: they are base, exactly, and "
        "are not trained a second time."
    )
    report.note(
        "Edge states: Chebyshev distance from the data in (k - 1, k]. The oracle patch replaces "
        "the bootstrapped value of those next states by V* (dynamic programming); nothing else "
        "differs from base. Estimated value: mean over critics at the start states; true value: "
        "measured discounted return of the same policy over 600 steps."
    )
    report.note(
        f"{config.epochs * config.rollouts.updates_per_epoch} updates per run, all seeds of a run "
        f"vmapped. MOPO's lambda is {config.methods.mopo_penalty}; true_dynamics sweeps it."
    )


def _claims(last: Mapping[tuple[str, str], object], best: float) -> list[Claim]:
    def of(method: str, metric: str, dynamics: str = "true") -> np.ndarray:
        return last[method, dynamics](metric)  # type: ignore[operator]

    def share(method: str) -> np.ndarray:
        return of(method, "spread_edge") / of(method, "spread_within")

    made = [
        Claim.at_most(
            "base fails with true dynamics", values=of("base", "percent"), threshold=50.0,
            source=SOURCE, expected="at most half of the optimal return",
        ),
        Claim.at_least(
            "base's values explode with true dynamics", values=of("base", "estimated_value"),
            threshold=1.5 * best, source=SOURCE,
            expected="promises at least 1.5 times what any policy can earn anywhere",
        ),
        Claim.at_least(
            "the oracle at edge states cures base", values=of("oracle patch", "percent"),
            threshold=95.0, source=SOURCE,
            expected="near-optimal return once edge states alone have their true value",
        ),
        Claim.between(
            "the patched critics are calibrated",
            values=of("oracle patch", "estimated_value") / of("oracle patch", "true_value"),
            low=0.85, high=1.15, source=SOURCE, expected="estimated over true value close to 1",
        ),
        Claim.at_least(
            "RAVL is near-optimal with true dynamics", values=of("ravl", "percent"),
            threshold=90.0, source=SOURCE, expected="at least 90 % of the optimal return",
        ),
        Claim.at_most(
            "RAVL's values do not explode", values=of("ravl", "estimated_value"),
            threshold=1.1 * best, source=SOURCE, expected="no more than a policy can earn",
        ),
        Claim.at_least(
            "RAVL's critics disagree at the edge", values=share("ravl"), threshold=2.0,
            source=SOURCE, expected="spread at the edge at least twice the spread within reach",
        ),
        Claim.at_least(
            "RAVL's minimum is lower at the edge than base's",
            values=of("ravl", "gap_edge") / of("base", "gap_edge"), threshold=1.0, source=SOURCE,
            expected="mean minus minimum over critics at the edge exceeds that of two critics",
        ),
        Claim.at_most(
            "edge states are rare in the buffer", values=100.0 * of("base", "edge_share"),
            threshold=5.0, source=SOURCE, expected="at most 5 % of the next states",
        ),
    ]  # fmt: skip
    if ("ravl", "learned") not in last:
        return made
    made += [
        Claim.at_least(
            "RAVL is near-optimal with learned dynamics", values=of("ravl", "percent", "learned"),
            threshold=90.0, source=SOURCE, expected="at least 90 % of the optimal return",
        ),
        Claim.at_least(
            "RAVL is better than base with learned dynamics",
            values=of("ravl", "percent", "learned") - of("base", "percent", "learned"),
            threshold=10.0, source=SOURCE, expected="by at least 10 points of the optimal return",
        ),
    ]  # fmt: skip
    return made

"""Whether methods that penalise model error get worse with better models, and RAVL does not.

One number w goes from the learned model (0) to the true step (1); penalties that come from the
model's error shrink with it and are zero at 1. On the plane of `edge_of_reach_toy`.
"""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.compare.claims import add_clock, claims, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS
from jaxrl_rollouts.offline.methods.model_based import Rollouts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm

from ..catalogue import LISTINGS
from .true_dynamics_cells import Config, turn_dial

SCALE = f"% of the optimal return over {MAX_EPISODE_STEPS} steps"


def run(config: Config, context: RunContext) -> Report:
    """Turn the dial, compare."""
    report, grid = Report.of(context, config.seeds), turn_dial(config, context)
    arms = {arm: grid.at(method=arm) for arm, _ in grid}
    for title, metric in (("score", "percent"), ("estimated value", "estimated_value")):
        rows = [
            {"method": arm, **{f"w = {w:g}": c[metric] for w, c in cells.items()}}
            for arm, cells in arms.items()
        ]
        report.table(f"{title} on plane", rows)
    named = {f"{arm} at w = {w:g}": cell for (arm, w), cell in grid.items()}
    add_clock(report, clock_rows(named), "clock on plane")
    for name, cell in named.items():
        report.number(f"plane: {name}", cell["percent"], SCALE)
    add_claims(report, grid, 1.0 / (1.0 - config.agent.discount))
    report.note(
        "w is the weight of the true step in every imagined next state; the reward is the "
        "environment's known function of it; penalties that come from the model shrink by 1 - w. "
        "At w = 1 MOPO (any lambda) and MOBILE are base exactly, and base's runs are shown."
    )
    report.note(
        "The claims on MOPO and MOBILE compare w = 1 with the method's best cell below it, lambda "
        "included, chosen by true return on the same runs: the best case for the method."
    )
    report.note(
        f"Score: {SCALE}; data: {config.rows:,} rows, rollouts of {config.rollouts.length} steps, "
        f"{config.epochs * config.rollouts.every:,} updates."
    )
    return report


def best_below_one(grid: Grid, method: str) -> Cell:
    """A method's best cell with w below 1."""
    cells = (cell for (arm, w), cell in grid.items() if arm.split()[0] == method and w < 1.0)
    return max(cells, key=lambda cell: float(np.nan_to_num(iqm(cell["percent"]), nan=-np.inf)))


def add_claims(report: Report, grid: Grid, limit: float) -> None:
    """With true dynamics against the best below; no policy is worth more than `limit`."""
    claim = claims(report, LISTINGS["true_dynamics"].source)
    base, ravl = grid["base", 1.0], grid["ravl", 1.0]
    # fmt: off
    for method in ("mopo", "mobile"):
        best = best_below_one(grid, method)
        arm, w = best.point.values()
        claim(f"plane: {method.upper()} is worse with true dynamics",
              grid[arm, 1.0]["percent"] - best["percent"], at_most=-10,
              cells=[grid[arm, 1.0], best],
              means="at least 10 points below its best with an imperfect model "
                    f"({arm} at w = {w:g})")
    best = best_below_one(grid, "ravl")
    claim("plane: RAVL does not get worse with true dynamics",
          ravl["percent"] - best["percent"], at_least=-10, cells=[ravl, best],
          means="at most 10 points below its best with an imperfect model "
                f"(w = {best.point['w']:g})")
    claim("plane: RAVL beats the penalties with true dynamics",
          ravl["percent"] - base["percent"], at_least=10, cells=[ravl, base],
          means="at least 10 points above base, MOPO and MOBILE (the same there)")
    claim("plane: base promises the impossible with true dynamics",
          base["estimated_value"], at_least=limit, cells=[base],
          means="more value at the start than any policy can earn anywhere")
    # fmt: on


PRESETS = {
    "smoke": Config(
        2, 0, (0.0, 1.0), (0.0, 1.0), 400, mopo_penalties=(1.0,), mobile_samples=1, epochs=2,
        evaluations=1, starts=4, batch_size=16, agent=SacConfig(hidden_dims=(16,)),
        ensemble=EnsembleConfig(2, 2, (16,), weight_decay=(2.5e-5,), max_epochs=1),
        rollouts=Rollouts(3, 50, every=3),
    ),
    # What fits into an hour on a CPU; six seeds: three on each of two cores.
    "cpu": Config(
        6, 0, (0.0, 0.5, 1.0), (0.0, 1.0), mopo_penalties=(0.5, 2.0), mobile_samples=1, epochs=120,
        ensemble=EnsembleConfig(5, 3, (64, 64), weight_decay=(2.5e-5,), max_epochs=20),
        agent=SacConfig(hidden_dims=(64, 64), tau=0.02), rollouts=Rollouts(7, 1000, every=500),
        batch_size=128, real_ratio=0.0,
    ),
    "paper": Config(seeds=10),
}  # fmt: skip
EXPERIMENT = LISTINGS["true_dynamics"].experiment(Config, PRESETS, run)

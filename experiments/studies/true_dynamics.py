"""Do methods that penalise model error get worse as the model gets better, and RAVL not?

One number w goes from the learned model (0) to the true step (1); penalties that come from the
model's error shrink with it and are zero at 1. On the plane of `edge_of_reach_toy` and on a
standard environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from jaxrl_rollouts.compare.claims import add_clock, claims, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.methods.model_based import Rollouts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm, summarize

from ..catalogue import LISTINGS
from .true_dynamics_cells import Config, DialConfig, Domain, method_of, open_domain, turn_dial

SOURCE = LISTINGS["true_dynamics"].source
Results = Mapping[str, tuple[Domain, Grid]]


def run(config: Config, context: RunContext) -> Report:
    """Turn the dial on both environments, compare."""
    report, results = Report.of(context, config.seeds), {}
    for index, part in enumerate((config.plane, config.standard)):
        if part is not None:
            key = jax.random.fold_in(jax.random.key(config.seed), index)
            open_key, key = jax.random.split(key)
            domain = open_domain(part, open_key)
            results[domain.env.name] = domain, turn_dial(config, domain, key, context)
    return make_report(report, results)


def make_report(report: Report, results: Results) -> Report:
    """Fill `report` with everything the run has to say."""
    for name, (domain, grid) in results.items():
        add_domain(report, name, domain, grid)
    report.note(
        "w is the weight of the true step in every imagined next state; reward and termination are "
        "the environment's known functions of it; penalties that come from the model shrink by "
        "1 - w. At w = 1 MOPO (any lambda) and MOBILE are base exactly, and base's runs are shown."
    )
    report.note(
        "The claims on MOPO and MOBILE compare w = 1 with the method's best cell below it, lambda "
        "included, chosen on the same runs: the best case for the method."
    )
    return report


def add_domain(report: Report, name: str, domain: Domain, grid: Grid) -> None:
    """Tables, numbers and claims of one environment."""
    arms, config = by_arm(grid), domain.config
    for metric in ("score", "estimated_value"):
        rows = [
            {"method": arm, **{f"w = {w:g}": summarize(c[metric]) for w, c in cells.items()}}
            for arm, cells in arms.items()
        ]
        report.table(f"{metric.replace('_', ' ')} on {name}", rows)
    at_one = {f"{arm} at w = {w:g}": cell for (arm, w), cell in grid.items()}
    add_clock(report, clock_rows(at_one), f"clock on {name}")
    for arm, cells in arms.items():
        for w, cell in cells.items():
            report.number(f"{name}: {arm} at w = {w:g}", cell["score"], domain.scale)
    if domain.edge:
        add_claims(report, name, domain, grid)
    control = "" if domain.edge else " A control, without an edge of reach: no claim is made of it."
    report.note(
        f"Score on {name}: {domain.scale}; {domain.env.version}; data: "
        f"{len(domain.data.rewards)} rows, rollouts of {config.rollouts.length} steps, "
        f"{config.epochs * config.rollouts.every} updates.{control}"
    )


def by_arm(grid: Grid) -> dict[str, Grid]:
    """The cells of every method and strength by w."""
    return {arm: grid.at(method=arm) for arm, _ in grid}


def best_below_one(grid: Grid, method: str) -> Cell:
    """A method's best cell with w below 1."""
    cells = (cell for (arm, w), cell in grid.items() if method_of(arm) == method and w < 1.0)
    return max(cells, key=lambda cell: float(np.nan_to_num(iqm(cell["score"]), nan=-np.inf)))


def add_claims(report: Report, name: str, domain: Domain, grid: Grid) -> None:
    """With true dynamics against the best below."""
    claim, base, ravl = claims(report, SOURCE), grid["base", 1.0], grid["ravl", 1.0]
    # fmt: off
    for method in ("mopo", "mobile"):
        best = best_below_one(grid, method)
        arm, w = best.point.values()
        claim(f"{name}: {method.upper()} is worse with true dynamics",
              grid[arm, 1.0]["score"] - best["score"], at_most=-10, cells=[grid[arm, 1.0], best],
              means="at least 10 points below its best with an imperfect model "
                    f"({arm} at w = {w:g})")
    best = best_below_one(grid, "ravl")
    claim(f"{name}: RAVL does not get worse with true dynamics",
          ravl["score"] - best["score"], at_least=-10, cells=[ravl, best],
          means="at most 10 points below its best with an imperfect model "
                f"(w = {best.point['w']:g})")
    claim(f"{name}: RAVL beats the penalties with true dynamics",
          ravl["score"] - base["score"], at_least=10, cells=[ravl, base],
          means="at least 10 points above base, MOPO and MOBILE (the same there)")
    claim(f"{name}: base promises the impossible with true dynamics",
          base["estimated_value"], at_least=domain.value_limit, cells=[base],
          means="more value at the start than any policy can earn anywhere")
    # fmt: on


# What fits into minutes on a CPU.
CPU_ENSEMBLE = EnsembleConfig(5, 3, (64, 64), weight_decay=(2.5e-5,), max_epochs=20)
CPU_ROLLOUTS = Rollouts(7, 1000, every=500)
# fmt: off
_TINY = DialConfig(
    rows=400, mopo_penalties=(1.0,), mobile_samples=1, epochs=2, evaluations=1, episodes=4,
    batch_size=16, ensemble=EnsembleConfig(2, 2, (16,), weight_decay=(2.5e-5,), max_epochs=1),
    agent=SacConfig(hidden_dims=(16,)),
    rollouts=Rollouts(3, 50, every=3),
)
_PLANE = DialConfig(
    mopo_penalties=(0.5, 2.0), mobile_samples=1, epochs=120, ensemble=CPU_ENSEMBLE,
    agent=SacConfig(hidden_dims=(64, 64), tau=0.02), rollouts=CPU_ROLLOUTS, batch_size=128,
    real_ratio=0.0,
)
_PENDULUM = replace(
    _PLANE, environment="gymnax/Pendulum-v1", rows=10_000, mopo_penalties=(1.0, 5.0), epochs=30,
    ensemble=replace(_PLANE.ensemble, max_epochs=100),
    agent=SacConfig(
        hidden_dims=(64, 64), tau=0.02, actor_lr=1e-3, critic_lr=1e-3, alpha_lr=1e-3
    ),
    rollouts=replace(_PLANE.rollouts, length=5), real_ratio=0.5,
)
# fmt: on

EXPERIMENT = LISTINGS["true_dynamics"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(2, 0, (0.0, 1.0), (0.0, 1.0), _TINY, None),
        # Six seeds: three on each of two cores.
        "cpu": Config(6, 0, (0.0, 0.5, 1.0), (0.0, 1.0), _PLANE, _PENDULUM),
        "paper": Config(seeds=10),
    },
    run=run,
)

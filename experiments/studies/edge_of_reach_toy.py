"""The edge-of-reach problem on a plane: seen, located by an oracle, and where RAVL cures it.

The data are single steps from a box, so that rollouts of k steps have a sharp edge: states that
are reached in exactly k steps, bootstrapped from and never updated. Dynamics are true: nothing but
the edge can be wrong, and penalties on the model's error (MOPO, MOBILE) are zero. Base fails; base
told the true value of those states, and of no others, does not. Whether RAVL's critics disagree
enough there depends on their number N, on their diversity eta, and on how much of what the policy
wants lies at the edge: a map over the three.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.compare.claims import add_clock, clock_rows
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.methods.model_based import Rollouts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from .edge_of_reach_toy_cells import HARD, Config, optimum, prepare, train_all
from .edge_of_reach_toy_page import COLUMNS, add_claims, draw_values


def run(config: Config, context: RunContext) -> Report:
    """Train everybody, compare, draw."""
    report, data = Report.of(context, config.seeds), prepare(config)
    grid, longest = train_all(config, data, context), config.horizons[-1]
    starts = PLANE.observe(PLANE.reset(jax.random.key(config.seed), 4096))
    best = 1.0 / (1.0 - config.agent.discount)
    report.number("V* at the start states", float(optimum(config, starts).mean()))
    report.number("highest V* anywhere", best)
    report.table("after training", grid.rows(COLUMNS))
    add_clock(report, clock_rows({f"{arm}, k {k}": cell for (arm, k), cell in grid.items()}))
    add_claims(report, grid, longest, best)
    draw_values(report, config, data, grid.at(k=longest))
    report.note(
        "Dynamics are true, so the penalties of MOPO and MOBILE are zero: they are base, exactly, "
        "and are not trained a second time."
    )
    report.note(
        f"Data: {config.rows:,} single steps from a box of half-width {config.half_width:g}. Edge "
        "states: Chebyshev distance from the box in (k - 1, k]. The oracle patch replaces the "
        "bootstrapped value of those next states by V*, which is known; nothing else differs from "
        "base. Estimated value: mean over critics at the start states; true value: measured "
        "discounted return of the same policy over 600 steps. Least critic at the edge: the mean "
        "over edge states of the minimum over critics, against the mean of V* there."
    )
    return report


EXPERIMENT = LISTINGS["edge_of_reach_toy"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2,
            rows=200,
            epochs=2,
            evaluations=2,
            starts=8,
            probes=64,
            agent=replace(HARD, hidden_dims=(16,)),
            horizons=(2, 4),
            ravl=((3, 1.0),),
            rollouts=Rollouts(batch_size=100, every=5),
            batch_size=32,
        ),
        "cpu": Config(
            seeds=6,
            epochs=80,
            evaluations=16,
            ravl=((10, 1.0),),
        ),
        "paper": Config(seeds=10, epochs=200),
    },
    run=run,
)

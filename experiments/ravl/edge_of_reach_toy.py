"""The edge-of-reach problem on a plane: seen, located by an oracle, and cured by RAVL.

Model rollouts of k steps start from data that stay around the origin; the goal is away. States
reached in exactly k steps are bootstrapped from and never updated. With true dynamics nothing but
that can be wrong: base fails, base told the true value of those states (and of no others) does
not, and RAVL does not. The same again with a learned model, where MOPO has an error to penalise.
"""

from __future__ import annotations

from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .edge_of_reach_toy_cells import Config, prepare, train_all
from .edge_of_reach_toy_page import SOURCE, make_report


def run(config: Config, context: RunContext) -> Report:
    """Train every run, compare, draw."""
    setting = prepare(config, context)
    grid = train_all(config, setting, context)
    return make_report(Report.of(context, config.seeds), config, setting, grid)


EXPERIMENT = Experiment(
    name="edge_of_reach_toy",
    summary="why model-based offline RL explodes with perfect dynamics, and how RAVL cures it",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, rows=600, learned=False, epochs=2, evaluations=2, starts=8, probes=64,
            ensemble=EnsembleConfig(2, 1, (16,), weight_decay=(2.5e-5,), max_epochs=1),
            agent=SacConfig(hidden=(16,)),
            rollouts=ModelBasedConfig(
                horizon=4, rollouts_per_epoch=100, updates_per_epoch=5, batch_size=32
            ),
        ),
        "cpu": Config(
            seeds=6,  # three on each of two cores
            epochs=200, evaluations=40,
            ensemble=EnsembleConfig(5, 3, (64, 64), weight_decay=(2.5e-5,), max_epochs=20),
            rollouts=ModelBasedConfig(
                horizon=7, rollouts_per_epoch=1000, updates_per_epoch=500, batch_size=128,
                real_share=0.0,
            ),
        ),
        "paper": Config(seeds=10, rows=30_000, epochs=200),
    },
    run=run,
)  # fmt: skip

"""How errors of a world model compound, with and without layer normalisation.

Models are fitted to one dataset and rolled along the logged actions of another, where their
inputs are not theirs. Layer normalisation bounds how far one step can go, so that long rollouts
stay finite; and the spread of the members says where the error is about to explode.
"""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .compounding_error_cells import Config, run_pair
from .compounding_error_page import SOURCE, add_pair, note_sizes


def run(config: Config, context: RunContext) -> Report:
    """All pairs: tables, claims, pictures."""
    report = Report.of(context, config.seeds)
    for pair in config.pairs:
        add_pair(report, pair, run_pair(config, pair, context))
    note_sizes(report, config)
    return report


# The architecture is the paper's; a quarter of an hour on two cores.
_CPU = Config(
    ensemble=replace(NEUBAY_ENSEMBLE, members=6, elites=5, max_epochs=12), seeds=2, rows=20_000
)
_TINY = replace(NEUBAY_ENSEMBLE, members=3, elites=2, hidden=(16,), max_epochs=1)
_SMOKE = Config(((PENDULUM, PENDULUM),), _TINY, length=20, trajectories=8, rows=500)

EXPERIMENT = Experiment(
    name="compounding_error",
    summary="open-loop error of world models over hundreds of steps, with and without layer norm",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": _CPU, "paper": Config()},
    run=run,
)

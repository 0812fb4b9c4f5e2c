"""How fast: updates, rollouts, seeds, and d3rlpy's SAC beside ours in the same run.

The peer lives in an environment of its own (its dependencies pin old ones):

    python -m venv peer && peer/bin/pip install torch==2.13.0 d3rlpy
    jaxrl-rollouts run speed --peer-python peer/bin/python

Compilation is timed apart. Every figure is the median of `repeats`; ours and the peer's take turns.
"""

from __future__ import annotations

from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, matmul_peak, note_load, show_seeds, start_report, time_seeds
from .speed_cells import Config, our_sac, time_environments, time_rollouts, time_updates
from .speed_page import show_updates


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = start_report(context, config, {})
    peak = matmul_peak()
    sizes = [(width, critics) for width in config.widths for critics in config.critics]
    updates = {size: time_updates(config, *size, context) for size in sizes}
    show_updates(report, config, updates, peak)
    title = f"SAC, {config.layers} x {config.seeds_width}"
    train = our_sac(config, config.seeds_width, 2).train
    show_seeds(report, title, time_seeds(context, title, train, config.seeds, config.repeats))
    report.table("rollout transitions per second", time_rollouts(config))
    rows, notes = time_environments(config)
    report.table("true environments, steps per second with a policy", rows)
    report.notes.extend(notes)
    note_load(report, "at the end")
    return report


SMOKE = Config(
    widths=(32,),
    critics=(2,),
    rows=2000,
    updates=20,
    repeats=2,
    seeds=(1, 2),
    seeds_width=32,
    horizons=(1, 5),
    rollout_rows=200,
    environments=("pendulum",),
    environment_copies=64,
)
EXPERIMENT = Experiment(
    name="speed",
    summary="benchmark: updates/s (and d3rlpy's), seeds side by side, rollout transitions/s",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": SMOKE, "cpu": Config()},
    run=run,
)

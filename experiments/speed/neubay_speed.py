"""How fast NEUBAY is: imagined transitions, gradient steps on tapes, members of the ensemble.

Collections are compared with a collector that loops over steps in Python, as the published one
does, and with one that also takes episodes one after the other; gradient steps with the same agent
with a GRU in torch (`peers/torch_recurrent.py`), in turns within one run. The peer lives in an
environment of its own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy
    jaxrl-rollouts run neubay_speed --torch-python torch/bin/python
"""

from __future__ import annotations

import jax

from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, note_load, start_report
from .neubay_speed_cells import Config, time_collections, time_learning, time_sizes
from .neubay_speed_page import note_meaning, show_collections, show_learning, show_sizes


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = start_report(context, config, {"torch_python": "torch"})
    sizes = zip(config.members, config.hidden, strict=True)
    show_collections(report, [time_collections(config, context, *size) for size in sizes])
    jax.clear_caches()
    show_sizes(report, *time_sizes(config, context))
    jax.clear_caches()
    show_learning(report, config, time_learning(config, context))
    note_meaning(report, config)
    note_load(report, "at the end")
    return report


SMOKE = Config(
    members=(2,),
    hidden=((8,),),
    rollouts=4,
    limit=6,
    row_by_row=2,
    sizes=(1, 2),
    width=8,
    layers=1,
    critics=2,
    tape=16,
    episode=3,
    updates=2,
    repeats=2,
)
EXPERIMENT = Experiment(
    name="neubay_speed",
    summary="benchmark: NEUBAY's imagined transitions and gradient steps, beside loops and torch",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": SMOKE, "cpu": Config(), "gpu": Config(limit=1000, updates=50, repeats=5)},
    run=run,
)

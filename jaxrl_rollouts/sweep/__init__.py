"""Many runs of the command line: a plan, Ray or SLURM, one report; and benchmarks of them."""

from __future__ import annotations

from ..plugins import deferred

SWEEP = deferred(
    "sweep",
    "Datasets x methods x settings x seeds on this machine, Ray or SLURM, into one report.",
    "jaxrl_rollouts.sweep.command:main",
)
TUNE = deferred(
    "tune",
    "Search settings of an experiment with Optuna; each trial is a run.",
    "jaxrl_rollouts.sweep.tune:main",
)
BENCH = deferred(
    "bench",
    "Fill a table of datasets x methods x seeds, and build its page.",
    "jaxrl_rollouts.sweep.bench:main",
)

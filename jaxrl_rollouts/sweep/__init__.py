"""Many runs of the command line: a plan, Ray or SLURM, one report; and benchmarks of them."""

from __future__ import annotations

from ..plugins import deferred

SWEEP = deferred(
    "sweep",
    "Datasets x methods x seeds on Ray or SLURM, into one report.",
    "jaxrl_rollouts.sweep.command:main",
)
BENCH = deferred(
    "bench",
    "Fill a table of datasets x methods x seeds, and build its page.",
    "jaxrl_rollouts.sweep.bench:main",
)

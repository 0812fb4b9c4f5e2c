"""How fast: updates, rollouts, seeds, and d3rlpy's SAC beside ours in the same run.

The peer lives in an environment of its own (its dependencies pin old ones):

    python -m venv peer && peer/bin/pip install torch==2.13.0 d3rlpy
    jaxrl-rollouts run speed --peer-python peer/bin/python

Compilation is timed apart. Every figure is the median of `repeats`; ours and the peer's take turns.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, matmul_peak, rounds, seeds_side_by_side
from .speed_cells import Config, peer_speed, sac_speed, update_operations
from .speed_rollouts import time_environments, time_rollouts


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = Report.of(context, 1)
    report.note(f"Load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    _updates(config, report, context)
    seeds_side_by_side(
        report, {n: sac_speed(config, config.seeds_width, 2, n) for n in config.seeds},
        config.repeats, title=f"SAC, {config.layers} x {config.seeds_width}", context=context,
    )  # fmt: skip
    time_rollouts(config, report)
    time_environments(config, report)
    report.note(f"Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    return report


def _updates(config: Config, report: Report, context: RunContext) -> None:
    rows, ratios = [], []
    peak = matmul_peak()
    for width in config.widths:
        for critics in config.critics:
            train = sac_speed(config, width, critics, 1)
            first, again = train(), train()
            ours: list[float] = []
            peers: list[dict[str, Any]] = []
            name = f"SAC, {config.layers} x {width}, {critics} critics"
            for _ in rounds(context, name, config.repeats):
                ours.append(config.updates / train().run_seconds)
                if config.peer_python:
                    peers.append(peer_speed(config, width, critics))
            row = {
                "nets": f"{config.layers} x {width}", "critics": critics,
                "updates/s": float(np.median(ours)), "compile s": first.compile_seconds,
                "second call compiles s": round(again.compile_seconds, 3),
                "% of matmul peak": 100.0 * update_operations(config, width, critics)
                * float(np.median(ours)) / peak,
            }  # fmt: skip
            if peers:
                theirs = np.array([p["updates_per_second"] for p in peers])
                row |= {
                    f"d3rlpy {peers[0]['d3rlpy']} updates/s": float(np.median(theirs)),
                    "ratio": float(np.median(np.array(ours) / theirs)),
                }
                ratios.append((row["nets"], critics, np.array(ours) / theirs))
                report.versions |= {"d3rlpy": peers[0]["d3rlpy"], "torch": peers[0]["torch"]}
            rows.append(row)
    report.table("gradient steps per second", rows)
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The column beside the "
        "rate is the share of that which one update's matrix products use; 100 % cannot be passed."
    )
    for nets, critics, values in ratios:
        report.claim(
            Claim.at_least(
                f"5 times d3rlpy's SAC, {nets}, {critics} critics", values=values, threshold=5.0,
                source=SOURCE, expected="updates per second against d3rlpy, same nets and batch",
                statistic="median",
            )
        )  # fmt: skip


EXPERIMENT = Experiment(
    name="speed",
    summary="benchmark: updates/s (and d3rlpy's), seeds side by side, rollout transitions/s",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            widths=(32,), critics=(2,), rows=2000, updates=20, repeats=2, seeds=(1, 2),
            seeds_width=32, horizons=(1, 5), rollout_rows=200, environments=("pendulum",),
            environment_copies=64,
        ),
        "cpu": Config(),
    },
    run=run,
)  # fmt: skip

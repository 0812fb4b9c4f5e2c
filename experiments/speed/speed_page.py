"""Tables and claims of `speed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxrl_rollouts.reports.report import Report

from ..kit.timing import Timing, claim_times
from .speed_cells import Config, update_operations


def show_updates(
    report: Report, config: Config, updates: Mapping[tuple[int, int], Timing], peak: float
) -> None:
    """Gradient steps per second by width and critics, beside d3rlpy's where it was timed."""
    rows = []
    for (width, critics), timing in updates.items():
        timing.tell(report)
        nets, rate = f"{config.layers} x {width}", timing.rates.median("ours")
        row: dict[str, Any] = {"nets": nets, "critics": critics, "updates/s": rate}
        used = update_operations(config, width, critics) * rate / peak
        row |= {**timing.columns, "% of matmul peak": 100.0 * used}
        if "d3rlpy" in timing.rates:
            theirs = timing.rates.median("d3rlpy")
            row[f"d3rlpy {timing.versions['d3rlpy']} updates/s"] = theirs
            name = f"5 times d3rlpy's SAC, {nets}, {critics} critics"
            means, turns = "updates per second against d3rlpy, same nets and batch", timing.rates
            row["ratio"] = claim_times(report, name, turns, "ours", times=5.0, means=means)
        rows.append(row)
    report.table("gradient steps per second", rows)
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The column beside the "
        "rate is the share of that which one update's matrix products use; 100 % cannot be passed."
    )

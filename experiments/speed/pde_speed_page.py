"""Tables, claims and pictures of `pde_speed`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxrl_rollouts.reports.report import Report

from ..kit.draw import picture
from ..kit.timing import Timing, claim_times
from .pde_speed_cells import Config, step_operations

KINDS = {"training": "train", "rollout": "roll"}
NETWORKS = {"torch": "our conditioned dilated ResNet", "apebench": "APEBench's network, Dil"}
TIMES = {"torch": 2.0, "apebench": 1.0}  # as fast as which ours is claimed to be


def show_against(
    report: Report, config: Config, name: str, timings: Mapping[int, Timing], peak: float
) -> None:
    """Two tables, by width, of training and of rollouts beside a peer; claims and a picture."""
    rows: dict[str, list[dict]] = {kind: [] for kind in KINDS}
    for width, timing in timings.items():
        timing.tell(report)
        operations = step_operations(config, width, plain=name == "apebench")
        for kind, asked in KINDS.items():
            rates = timing.rates.of(asked)
            ours, *others = rates
            used = operations[kind] * rates.median(ours) / peak
            row = {**timing.columns["both"], "ours": rates.median(ours), "% of peak": 100.0 * used}
            row |= {who: rates.median(who) for who in others}
            if others:
                claim = f"{kind}, width {width}: {TIMES[name]:g} times {name}"
                means = "steps per second against {best}: same network, batch and grid"
                times = TIMES[name]
                row["ratio"] = claim_times(report, claim, rates, ours, times=times, means=means)
            rows[kind].append(row | timing.columns[kind])
    for kind in KINDS:
        report.table(f"{NETWORKS[name]}: {kind} steps per second", rows[kind])
    if getattr(config, f"{name}_python"):
        draw_against(report, name, timings)


def draw_against(report: Report, name: str, timings: Mapping[int, Timing]) -> None:
    """Steps per second of everybody, training beside rollouts."""
    caption = "Higher is faster; medians, same network and batch."
    size = {"width": 3.6, "title": NETWORKS[name], "titles": tuple(KINDS), "legend": False}
    with picture(report, f"against_{name}", caption, **size) as axes:
        for ax, kind in zip(axes, KINDS.values(), strict=True):
            rates = [timing.rates.of(kind) for timing in timings.values()]
            everybody = list(dict.fromkeys(who for each in rates for who in each))
            thick = 0.8 / len(everybody)
            for i, who in enumerate(everybody):
                at = np.arange(len(rates)) + thick * (i - (len(everybody) - 1) / 2)
                heights = [each.median(who) if who in each else 0.0 for each in rates]
                bars = ax.bar(at, heights, 0.9 * thick, label=who)
                ax.bar_label(bars, fmt="%.3g", fontsize=7)
            ax.set_xticks(range(len(rates)), [f"width {width}" for width in timings])
        axes[0].set_ylabel("steps per second")
        axes[0].legend(fontsize=7)


def note_meaning(report: Report, config: Config, peak: float) -> None:
    """What the numbers are."""
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The columns beside the "
        "rates are the share of that which the convolutions use; 100 % cannot be passed."
    )
    report.note(
        "Training is a gradient step at batch "
        f"{config.batch} on {config.points} points, one seed, a new random batch each, Adam; ours "
        "and torch also clip and average the weights. torch is eager on all cores, eager on one "
        "thread and compiled, and the fastest is compared; nothing else may run beside it: its "
        "threads wait for each other and slow down out of proportion. Rollouts are "
        f"{config.fields} fields at once, ours spread over the cores, and a step is a step of all."
    )

"""How fast emulators are: gradient steps, rollouts and seeds, beside torch and three libraries.

Comparisons, each at an equal network, batch and grid, in turns within one run:

- torch: our conditioned dilated ResNet on one axis; ResNet, modern U-Net and FNO in the plane,
  all rebuilt there (`peers/torch_operators.py`);
- APEBench: its own `Dil` network, rebuilt here (`PlainResnet`), with its own trainer and rollout;
- neuraloperator: its `FNO`, on one axis and in the plane, with our weights.

The peers get our weights first, and what they make of a few fields is compared with ours: networks
that differ are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.compare import timing
from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.timing import Timing
from jaxrl_rollouts.pde.operators import FnoConfig, ResnetConfig, UnetConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from . import pde_speed_cells as cells
from .conv_forms import FormSizes, time_forms
from .goals import claim_times, show_seeds
from .pde_speed_cells import COMPARED, NEEDS, Case, Config, Networks, Work

KINDS = {"training": "train", "rollout": "roll"}
SHARE = 30.0  # percent of the matrix peak that training a ResNet should use


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    left_out = {f"{peer}_python": needs for peer, needs in NEEDS.items()}
    report = timing.start_report(context, config, left_out)
    peak = timing.matmul_peak()
    for compared in COMPARED:
        timings = [
            (case, cells.time_case(config, context, compared, case))
            for case in cells.cases(config, compared)
        ]
        show_against(report, config, compared, timings, peak)
    width = config.seeds_width
    train = cells.make_ours(cells.resnet_case(config, width, plain=False)).train
    title = f"dilated ResNet, width {width}, batch {config.line.batch}"
    show_seeds(report, context, title, train, config.seeds, repeats=config.repeats)
    forms = time_forms(context, config.forms)
    report.table("convolutions in the plane: CPU ms a training step", forms)
    note_meaning(report, config, peak)
    timing.note_load(report, "at the end")
    return report


def show_against(
    report: Report,
    config: Config,
    compared: str,
    timings: Sequence[tuple[Case, Timing]],
    peak: float,
) -> None:
    """Two tables, of training and of rollouts beside a peer; claims and a picture."""
    peer, _, title, goal = COMPARED[compared]
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for case, each in timings:
        each.tell(report)
        forward = cells.operations(case)
        # A gradient step is three passes: forward, gradients of inputs and of weights.
        operations = {"training": 3.0 * case.work.batch * forward}
        operations["rollout"] = case.work.fields * forward
        for kind, asked in KINDS.items():
            rates = each.rates.of(asked)
            ours, *others = rates
            median = rates.median(ours)
            row = {**each.columns["both"], "ours": median, "ms a step": 1e3 / median}
            row["% of peak"] = 100.0 * operations[kind] * median / peak
            row |= {who: rates.median(who) for who in others}
            if others:
                claim = f"{kind}, {case.name}: {goal:g} times {peer}"
                means = "steps per second against {best}: same network, batch and grid"
                row["ratio"] = claim_times(report, claim, rates, ours, times=goal, means=means)
            rows[kind].append(row | each.columns[kind])
        if compared == "torch":
            share = 100.0 * operations["training"] * each.rates["train", "ours"] / peak
            add_claim(
                report, f"training, {case.name}: {SHARE:g} % of the matrix peak", share,
                at_least=SHARE, means="of a large float32 product's operations per second",
                source=GOALS, statistic="median",
            )  # fmt: skip
    for kind in KINDS:
        report.table(f"{title}: {kind} steps per second", rows[kind])
    if getattr(config, f"{peer}_python"):
        draw_against(report, compared, {case.name: each for case, each in timings})


def draw_against(report: Report, compared: str, timings: Mapping[str, Timing]) -> None:
    """Everybody's steps per second, training beside rollouts; several networks over ours."""
    caption = "Higher is faster; medians, same network and batch."
    shares = compared in ("plane", "neuralop")  # networks, whose steps cost differently much
    if shares:
        caption = (
            "Steps per second over ours (1): higher is faster; medians, same network and batch."
        )
    size = {"width": 3.6 + 0.6 * (len(timings) > 2) * len(timings), "titles": tuple(KINDS)}
    size["title"] = COMPARED[compared].title
    with picture(report, f"against_{compared}", caption, **size) as axes:
        for ax, kind in zip(axes, KINDS.values(), strict=True):
            draw_bars(ax, {name: each.rates.of(kind) for name, each in timings.items()}, shares)
        axes[0].set_ylabel("steps per second" + (", ours 1" if shares else ""))


def draw_bars(ax: Axes, rates: Mapping[str, timing.Rates], shares: bool) -> None:
    """A group of bars for each network, a bar for everybody in it."""
    everybody = list(dict.fromkeys(who for each in rates.values() for who in each))
    thick = 0.8 / len(everybody)
    units = [each.median("ours") if shares else 1.0 for each in rates.values()]
    for i, who in enumerate(everybody):
        at = np.arange(len(rates)) + thick * (i - (len(everybody) - 1) / 2)
        heights = [
            each.median(who) / unit if who in each else 0.0
            for each, unit in zip(rates.values(), units, strict=True)
        ]
        bars = ax.bar(at, heights, 0.9 * thick, label=who)
        ax.bar_label(bars, fmt="%.2g" if shares else "%.3g", fontsize=6 if shares else 7)
    names = [name.replace(", ", ",\n") if len(rates) > 2 else name for name in rates]
    ax.set_xticks(range(len(rates)), names, fontsize=7 if len(rates) > 2 else None)


def note_meaning(report: Report, config: Config, peak: float) -> None:
    """What the numbers are."""
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The columns beside the "
        "rates are the share of that which matrix products and convolutions use, as the program "
        "has them; transforms are not counted. 100 % cannot be passed."
    )
    line, plane = config.line, config.plane
    report.note(
        f"Training is a gradient step at batch {line.batch} on {config.points} points "
        f"({plane.batch} in the plane), one seed, a new random batch each, Adam; ours "
        "and torch also clip and average the weights. torch is eager on all cores, eager on one "
        "thread and compiled, and the fastest is compared; nothing else may run beside it: its "
        "threads wait for each other and slow down out of proportion. Rollouts are "
        f"{line.fields} fields at once ({plane.fields} in the plane), ours spread over the cores, "
        "and a step is a step of all."
    )
    if config.neuralop_python:
        report.note(
            "neuraloperator's FNO is ours without what tells a network the index of a refinement "
            "(column theirs: its parameters): that is one number here, and a bias in theirs. A "
            "complex weight counts as two. No positional channels, no channel MLPs, lifted by one "
            "layer, projected over twice the width. Without channel MLPs their block applies its "
            "activation twice; here it is made to do so once. Its Adam is not the fused one, "
            "which torch lacks for complex weights."
        )


TINY = Work(batch=4, trajectories=8, frames=4, updates=10, fields=8, steps=5)
SMALL = Networks(
    points=(16,),
    resnet=ResnetConfig(width=8, blocks=1, dilations=(1, 2, 1)),
    unet=UnetConfig(hidden=8, multipliers=(1, 2), blocks=1),
    fno=FnoConfig(width=8, layers=2, modes=4),
    line_fno=FnoConfig(width=8, layers=2, modes=4),
)
SMOKE = Config(
    widths=(8,), blocks=1, dilation_factor=1, points=16, line=TINY, networks=SMALL, plane=TINY,
    forms=FormSizes(points=(8,), channels=4, steps=2, repeats=1),
    repeats=2, seeds=(1, 2), seeds_width=8, torch_compile=False,
)  # fmt: skip
PRESETS = {"smoke": SMOKE, "cpu": Config()}
EXPERIMENT = LISTINGS["pde_speed"].experiment(Config, PRESETS, run)

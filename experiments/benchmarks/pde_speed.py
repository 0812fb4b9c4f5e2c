"""How fast emulators are: gradient steps, rollouts and seeds, beside torch and three libraries.

Comparisons, each at an equal network, batch and grid, in turns within one run:

- torch: our conditioned dilated ResNet on one axis; ResNet and modern U-Net in the plane, all
  rebuilt there (`peers/torch_operators.py`);
- APEBench: its own `Dil` network, rebuilt here (`PlainResnet`), with its own trainer and rollout;
- neuraloperator: its `FNO`, on one axis and in the plane, with our weights.

The peers get our weights first, and what they make of a few fields is compared with ours: networks
that differ are an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.pde.operators import Fno, Resnet, Unet
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from . import pde_speed_cells as cells
from . import timing
from .pde_speed_cells import COMPARED, NEEDS, SPREAD, Case, Config, Networks, Work
from .timing import Timing

KINDS = {"training": "train", "rollout": "roll"}
SHARE = 30.0  # percent of the matrix peak that training a ResNet should use


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    left_out = {f"{peer}_python": needs for peer, needs in NEEDS.items()}
    report = timing.start_report(context, config, left_out)
    peak = timing.matmul_peak()
    for compared in config.tables:
        timings = [
            (case, cells.time_case(config, context, compared, case))
            for case in cells.cases(config, compared)
        ]
        show_against(report, config, compared, timings, peak)
    width = config.seeds_width
    train = cells.make_ours(cells.resnet_case(config, width, plain=False)).train
    title = f"dilated ResNet, width {width}, batch {config.line.batch}"
    timing.show_seeds(report, context, title, train, config.seeds, repeats=config.repeats, times=0)
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
            spread, ours = rates.pop(SPREAD, None), "ours"
            others = [who for who in rates if who != ours]
            median = rates.median(ours)
            row = {**each.columns["both"], "ours": median, "ms a step": 1e3 / median}
            row["% of peak"] = 100.0 * operations[kind] * median / peak
            row |= {who: rates.median(who) for who in others} | rates.cpu_columns()
            if others:
                claim = f"{kind}, {case.name}: {goal:g} times {peer}"
                means = "steps per second against {best}: same network, batch and grid"
                row["ratio"] = timing.claim_times(
                    report, claim, rates, ours, times=goal, means=means
                )
            if spread is not None:
                row[SPREAD] = float(np.median(spread))
            if spread is not None and others:
                row["ratio, batch over cores"] = rates.of_best(spread, others)
            rows[kind].append(row | each.columns[kind])
        if compared == "torch":
            share = 100.0 * operations["training"] * each.rates["train", "ours"] / peak
            add_claim(
                report,
                f"training, {case.name}: {SHARE:g} % of the matrix peak",
                share,
                at_least=SHARE,
                means="of a large float32 product's operations per second",
                source=GOALS,
                statistic="median",
            )
    for kind in KINDS:
        report.table(f"{title}: {kind} steps per second", rows[kind])


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
    resnet=Resnet(width=8, blocks=1, dilations=(1, 2, 1)),
    unet=Unet(hidden=8, multipliers=(1, 2), blocks=1),
    fno=Fno(width=8, layers=2, modes=4),
    line_fno=Fno(width=8, layers=2, modes=4),
)
SMOKE = Config(
    widths=(8,),
    blocks=1,
    dilation_factor=1,
    points=16,
    line=TINY,
    networks=SMALL,
    plane=TINY,
    repeats=2,
    seeds=(1, 2),
    seeds_width=8,
    torch_compile=False,
)
PRESETS = {"smoke": SMOKE, "cpu": Config()}
EXPERIMENT = LISTINGS["pde_speed"].experiment(Config, PRESETS, run)

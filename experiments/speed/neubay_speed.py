"""How fast NEUBAY is: imagined transitions, gradient steps on tapes, members of the ensemble.

Collections are compared with a collector that loops over steps in Python, as the published one
does, and with one that also takes episodes one after the other; gradient steps with the same agent
with a GRU in torch (`peers/torch_recurrent.py`), in turns within one run.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.timing import Rates, Timing, draw_growth, note_load, start_report
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import GOALS, LISTINGS
from .goals import claim_times
from .neubay_speed_cells import (
    ACTIONS,
    LOOPS,
    MEMORIES,
    STATES,
    Config,
    time_collections,
    time_learning,
    time_sizes,
)


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = start_report(context, config, {"torch_python": "torch"})
    sizes = zip(config.members, config.hidden, strict=True)
    rows = [collections_row(report, time_collections(config, context, *size)) for size in sizes]
    report.table("imagined transitions per second", rows)
    jax.clear_caches()
    show_sizes(report, *time_sizes(config, context))
    jax.clear_caches()
    show_learning(report, config, time_learning(config, context))
    note_meaning(report, config)
    note_load(report, "at the end")
    return report


def collections_row(report: Report, timing: Timing) -> dict[str, Any]:
    """Imagined transitions per second of an ensemble, and how many times a loop's."""
    rates, row = timing.rates, dict(timing.columns)
    row |= {f"{who}, transitions/s": rates.median(who) for who in rates}
    means = "imagined transitions per second, same networks"
    for loop in LOOPS:
        name = f"{row['ensemble']}: 20 times a {loop}"
        ratio = claim_times(report, name, rates, "compiled", [loop], times=20.0, means=means)
        row[f"x {loop}"] = ratio
    return row


def show_sizes(report: Report, rows: list[dict[str, Any]], seconds: Rates) -> None:
    """Table, claim and picture of a collection's time over the number of members."""
    sizes = list(seconds)
    middle = [seconds.median(members) for members in sizes]
    for row, taken in zip(rows, middle, strict=True):
        row |= {"seconds": taken, f"x {sizes[0]} members": taken / middle[0]}
    report.table("ensemble size: one collection", rows)
    if {20, 100} <= set(sizes):
        name, ratio = "100 members take at most 3 times the time of 20", seconds[100] / seconds[20]
        means = "seconds of a collection, same rollouts"
        add_claim(report, name, ratio, at_most=3.0, means=means, source=GOALS, statistic="median")
    caption = "Time of a collection over the number of members."
    size = {"width": 4.0, "title": "One collection", "legend": False}
    with picture(report, "members", caption, **size) as (ax,):
        draw_growth(ax, sizes, middle, "proportional", ("members", "seconds"))


def show_learning(report: Report, config: Config, timing: Timing) -> None:
    """Gradient steps per second, a row per agent."""
    timing.tell(report)
    rates, first, rows = timing.rates, timing.columns["first call s"], []
    for who in rates:
        steps = rates.median(who)
        row = {"agent": who, "parameters": timing.columns["parameters"][who], "steps/s": steps}
        row["tokens/s"] = steps * config.tape
        rows.append(row | ({"first call s": first[who]} if who in first else {}))
    report.table("gradient steps per second", rows)
    if torch := [who for who in rates if who.startswith("torch")]:
        for kind in MEMORIES:
            name = f"gradient steps, {kind}: as fast as torch's GRU"
            means = "steps per second against {best}, equal tokens"
            claim_times(report, name, rates, f"ours, {kind}", torch, times=1.0, means=means)


def note_meaning(report: Report, config: Config) -> None:
    """What the numbers are."""
    report.note(
        f"A gradient step is one of critic ({config.critics} heads), target, actor and "
        f"temperature on {config.tape} tokens; ours on a tape with start flags, torch's on a "
        f"padded batch of whole episodes of {config.episode}, nothing of it padding."
    )
    report.note(
        f"States of {STATES} and actions of {ACTIONS} numbers (hopper's). Nothing is trained and "
        "nothing cuts the rollouts: from a random moment of an episode to its time limit of "
        f"{config.limit}, {config.rollouts} at a time; the ensemble is asked for everything at "
        "every step, disagreement included. The looping collectors run the same compiled actor "
        "and ensemble, one step at a time."
    )


TINY: dict[str, Any] = {"rollouts": 4, "limit": 6, "row_by_row": 2, "updates": 2, "repeats": 2}
TINY |= {"width": 8, "layers": 1, "critics": 2, "tape": 16, "episode": 3}
SMOKE = Config(members=(2,), hidden=((8,),), sizes=(1, 2), **TINY)
PRESETS = {"smoke": SMOKE, "cpu": Config(), "gpu": Config(limit=1000, updates=50, repeats=5)}
EXPERIMENT = LISTINGS["neubay_speed"].experiment(Config, PRESETS, run)

"""Tables, claims and the picture of `neubay_speed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxrl_rollouts.reports.report import Report

from ..kit.claims import add_claim
from ..kit.draw import picture
from ..kit.timing import SOURCE, Rates, Timing, claim_times
from .neubay_speed_cells import ACTIONS, LOOPS, MEMORIES, STATES, Config


def show_collections(report: Report, timings: Iterable[Timing]) -> None:
    """Imagined transitions per second, a row per ensemble, and how many times a loop's."""
    rows = []
    for timing in timings:
        rates, row = timing.rates, dict(timing.columns)
        means = "imagined transitions per second, same networks"
        row |= {f"{who}, transitions/s": rates.median(who) for who in rates}
        for loop in LOOPS:
            name = f"{row['ensemble']}: 20 times a {loop}"
            ratio = claim_times(report, name, rates, "compiled", [loop], times=20.0, means=means)
            row[f"x {loop}"] = ratio
        rows.append(row)
    report.table("imagined transitions per second", rows)


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
        add_claim(report, name, ratio, at_most=3.0, means=means, source=SOURCE, statistic="median")
    caption = "Time of a collection over the number of members."
    size = {"width": 4.0, "title": "One collection", "legend": False}
    with picture(report, "members", caption, **size) as (ax,):
        proportional = middle[0] / sizes[0] * np.array(sizes)
        ax.plot(sizes, middle, "o-", label="measured")
        ax.plot(sizes, proportional, ":", color="black", label="proportional")
        ax.set_xlabel("members")
        ax.set_ylabel("seconds")
        ax.legend()


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

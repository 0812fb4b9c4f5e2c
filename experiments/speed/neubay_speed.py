"""How fast NEUBAY is: imagined transitions, gradient steps on tapes, members of the ensemble.

Collections are compared with a collector that loops over steps in Python, as the published one
does, and with one that also takes episodes one after the other; gradient steps with the same agent
with a GRU in torch (`peers/torch_recurrent.py`), in turns within one run. The peer lives in an
environment of its own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy
    jaxrl-rollouts run neubay_speed --torch-python torch/bin/python
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, timed
from .neubay_speed_learning import show_learning
from .neubay_speed_study import (
    ACTIONS,
    STATES,
    Config,
    compiled_collector,
    looping_collector,
    make_bench,
)


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = Report.of(context, 1)
    cores = os.cpu_count()
    report.note(f"Load average at the start: {os.getloadavg()[0]:.1f} on {cores} cores.")
    _collections(config, report)
    jax.clear_caches()
    _members(config, report)
    jax.clear_caches()
    show_learning(config, report, context)
    report.note(
        f"States of {STATES} and actions of {ACTIONS} numbers (hopper's). Nothing is trained and "
        "nothing cuts the rollouts: from a random moment of an episode to its time limit of "
        f"{config.limit}, {config.rollouts} at a time; the ensemble is asked for everything at "
        "every step, disagreement included. The looping collectors run the same compiled actor "
        "and ensemble, one step at a time."
    )
    report.note(f"Load average at the end: {os.getloadavg()[0]:.1f} on {cores} cores.")
    return report


def _rate(collect: Callable[[jax.Array], int], key: jax.Array) -> float:
    """Transitions per second of a collector that returns their number."""
    taken: list[int] = []
    seconds = timed(lambda: taken.append(collect(key)))
    return taken[0] / seconds


def _collections(config: Config, report: Report) -> None:
    rows = []
    for members, hidden in zip(config.members, config.hidden, strict=True):
        bench = make_bench(config, members, hidden)
        ours = compiled_collector(bench)
        loops = {
            "loop over steps": looping_collector(bench, config.rollouts),
            "loop over episodes and steps": _one_by_one(bench, config.row_by_row),
        }
        keys = jax.random.split(jax.random.key(0), config.repeats + 1)
        first = timed(lambda k=keys[0], f=ours: f(k))
        for loop in loops.values():
            loop(keys[0])
        rates: dict[str, list[float]] = {name: [] for name in ("compiled", *loops)}
        for key in keys[1:]:
            rates["compiled"].append(_rate(lambda k, f=ours: _taken(f(k)), key))
            for name, loop in loops.items():
                rates[name].append(_rate(loop, key))
        middle = {name: float(np.median(values)) for name, values in rates.items()}
        nets = f"{members} x {' x '.join(map(str, hidden))}"
        row: dict[str, Any] = {"ensemble": nets, "first call s": first}
        row |= {f"{name}, transitions/s": value for name, value in middle.items()}
        for name in loops:
            ratio = np.array(rates["compiled"]) / np.array(rates[name])
            row[f"x {name}"] = float(np.median(ratio))
            report.claim(
                Claim.at_least(
                    f"{nets}: 20 times a {name}", values=ratio, threshold=20.0, source=SOURCE,
                    statistic="median", expected="imagined transitions per second, same networks",
                )
            )  # fmt: skip
        rows.append(row)
    report.table("imagined transitions per second", rows)


def _taken(collected: Any) -> int:
    """Imagined transitions of a collection, once they are there."""
    return round(float(collected.looks.tokens * collected.looks.imagined_share))


def _one_by_one(bench: Any, episodes: int) -> Callable[[jax.Array], int]:
    alone = looping_collector(bench, 1)
    return lambda key: sum(alone(k) for k in jax.random.split(key, episodes))


def _members(config: Config, report: Report) -> None:
    """Ensembles of several sizes: seconds of a collection, and bytes."""
    rows, seconds = [], []
    collectors = []
    for members in config.sizes:
        bench = make_bench(config, members, config.hidden[-1])
        program = jax.jit(bench.neubay.imagine).lower(
            bench.state, jax.random.key(0), bench.data
        ).compile()  # fmt: skip
        collectors.append(lambda key, p=program, b=bench: p(b.state, key, b.data).lengths)
        elites = bench.data.world.elites
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(elites))
        found = program.memory_analysis()
        row: dict[str, Any] = {"members": members, "weights MB": weights / 1e6}
        if found is not None:
            row["working memory MB"] = found.temp_size_in_bytes / 1e6
        rows.append(row)
    keys = jax.random.split(jax.random.key(0), config.repeats + 1)
    for key in keys:
        seconds.append([timed(lambda k=key, c=collect: c(k)) for collect in collectors])
    table = np.array(seconds[1:])
    for row, middle in zip(rows, np.median(table, 0), strict=True):
        row["seconds"] = float(middle)
        row[f"x {config.sizes[0]} members"] = float(middle / np.median(table[:, 0]))
    report.table("ensemble size: one collection", rows)
    if {20, 100} <= set(config.sizes):
        small, large = (config.sizes.index(n) for n in (20, 100))
        report.claim(
            Claim.at_most(
                "100 members take at most 3 times the time of 20", threshold=3.0, source=SOURCE,
                values=table[:, large] / table[:, small], statistic="median",
                expected="seconds of a collection, same rollouts",
            )
        )  # fmt: skip
    made, (ax,) = figure(width=4.0, title="One collection")
    ax.plot(config.sizes, np.median(table, 0), "o-", label="measured")
    share = np.median(table[:, 0]) / config.sizes[0]
    ax.plot(config.sizes, share * np.array(config.sizes), ":", color="black", label="proportional")
    ax.set_xlabel("members")
    ax.set_ylabel("seconds")
    ax.legend()
    report.picture("members", made, "Time of a collection over the number of members.")


EXPERIMENT = Experiment(
    name="neubay_speed",
    summary="benchmark: NEUBAY's imagined transitions and gradient steps, beside loops and torch",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            members=(2,), hidden=((8,),), rollouts=4, limit=6, row_by_row=2, sizes=(1, 2), width=8,
            layers=1, critics=2, tape=16, episode=3, updates=2, repeats=2,
        ),
        "cpu": Config(),
        "gpu": Config(limit=1000, updates=50, repeats=5),
    },
    run=run,
)  # fmt: skip

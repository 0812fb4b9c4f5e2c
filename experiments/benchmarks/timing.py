"""Timing: a stopwatch, turns, ratios of speed, seeds side by side.

A benchmark times all programs in turns within one run (`in_turns`), so that other load
affects all of them, and compares round by round: `claim_times` takes the fastest of the others.

rates = in_turns(context, "updates", 5, {"ours": our_rate, "theirs": their_rate})
claim_times(report, "twice as fast", rates, "ours", times=2.0, means="against {best}")
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl_rollouts import loop
from jaxrl_rollouts.compare.claims import add_claim
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.progress import Progress
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.trees import equations

from ..catalogue import GOALS


class Turn(NamedTuple):
    """What one did in one round: work per second, CPU milliseconds (of all threads) per work."""

    rate: float
    cpu: float


class Rates(dict[Any, np.ndarray]):
    """Program, or `(task, program)` -> work per second `[repeats]`, each timed once per round.

    `cpu` has CPU milliseconds per work of those whose timers measure them.
    """

    def __init__(self, *given: Any, cpu: Mapping[Any, float] | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self.cpu = dict(cpu or {})

    def of(self, what: str) -> Rates:
        """Only this kind of work, by who does it."""
        cpu = {key[1]: value for key, value in self.cpu.items() if key[0] == what}
        return Rates({key[1]: values for key, values in self.items() if key[0] == what}, cpu=cpu)

    def median(self, who: Any) -> float:
        return float(np.median(self[who]))

    def of_best(self, rates: np.ndarray, others: Iterable[Any]) -> float:
        """Median of the rates over those of the fastest of the others, round by round."""
        return float(np.median(rates / self[max(others, key=self.median)]))

    def cpu_columns(self) -> dict[str, float]:
        """Columns of a table."""
        return {f"CPU ms, {who}": value for who, value in self.cpu.items()}


@dataclass(frozen=True)
class Timing:
    """What was timed in turns, at one size.

    Attributes:
        rates: rates of all programs.
        columns: further columns of its table row: parameters, seconds to compile.
        notes: notes on the rates for the reader.
        versions: versions of the peers.
    """

    rates: Rates
    columns: Mapping[str, Any] = field(default_factory=dict)
    notes: Iterable[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def tell(self, report: Report) -> None:
        """Put notes and versions into the report."""
        report.versions |= self.versions
        report.notes.extend(self.notes)


def timed(work: Callable[[], Any]) -> float:
    """Seconds until the result is there."""
    begin = time.perf_counter()
    result = work()
    if result is None:
        raise TypeError("timed work returned None, expected the arrays to wait for")
    jax.block_until_ready(result)
    return time.perf_counter() - begin


def clocked(count: int, work: Callable[[], float]) -> Callable[[], Turn]:
    """A timer of `count` pieces of work in this process, whose seconds `work` returns."""

    def turn() -> Turn:
        began = time.process_time()
        seconds = work()
        return Turn(count / seconds, 1e3 * (time.process_time() - began) / count)

    return turn


def rounds(context: RunContext, label: str, repeats: int) -> Iterator[int]:
    """Count to `repeats` and show how far that is; whoever is compared takes a turn in each."""
    with Progress(label, repeats, unit="rounds", enabled=context.progress) as progress:
        for index in range(repeats):
            yield index
            progress.advance(1)


def in_turns(
    context: RunContext, label: str, repeats: int, timers: Mapping[Any, Callable[[], float | Turn]]
) -> Rates:
    """What every timer returns (work per second, as a rule) in every round, `[repeats]` each."""
    values: dict[Any, list[float]] = {who: [] for who in timers}
    spent: dict[Any, list[float]] = {who: [] for who in timers}
    for _ in rounds(context, label, repeats):
        for who, timer in timers.items():
            taken = timer()
            rate = taken.rate if isinstance(taken, Turn) else taken
            values[who].append(rate)
            spent[who] += [taken.cpu] if isinstance(taken, Turn) else []
    cpu = {who: float(np.median(each)) for who, each in spent.items() if each}
    return Rates({who: np.array(taken) for who, taken in values.items()}, cpu=cpu)


def matmul_peak(size: int = 2048, repeats: int = 5) -> float:
    """Floating-point operations per second of one large float32 product: what there is to use."""
    square = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    timed(lambda: product(square, square))
    return 2.0 * size**3 / min(timed(lambda: product(square, square)) for _ in range(repeats))


def products(program: Any) -> float:
    """Operations of all matrix products and convolutions of a jaxpr; a loop's body counts once."""
    total = 0.0
    for line in equations(program):
        if line.primitive.name in ("dot_general", "conv_general_dilated"):
            (left, right), out = (v.aval for v in line.invars), line.outvars[0].aval
            if line.primitive.name == "dot_general":
                (over, _), _ = line.params["dimension_numbers"]
                summed = math.prod(left.shape[axis] for axis in over)
            else:
                kernel = line.params["dimension_numbers"].rhs_spec
                summed = right.size // right.shape[kernel[0]]
            # A complex product is four real ones.
            each = 8.0 if jnp.issubdtype(out.dtype, jnp.complexfloating) else 2.0
            total += each * summed * out.size
    return total


def compile_columns(train: Callable[[], loop.Trained]) -> dict[str, float]:
    """Seconds to compile at the first call, and at the second: nothing is compiled twice."""
    first, second = train().compile_seconds, train().compile_seconds
    return {"compile s": first, "second call compiles s": round(second, 3)}


def trainer(learner: Any, data: Any, mesh: Mesh | None = None) -> Callable[[int], loop.Trained]:
    """Number of seeds -> one iteration of a learner (`init`, `update`); each compiles once."""

    def train(seeds: int) -> loop.Trained:
        keys = jax.random.split(jax.random.key(1), seeds)
        return loop.train_loop(
            learner.update, learner.init, keys, data, iterations=1, stage="speed", mesh=mesh
        )

    return train


def start_report(context: RunContext, config: Any, peers: Mapping[str, str]) -> Report:
    """A benchmark's report with its first notes."""
    report = Report.of(context, 1)
    note_load(report, "at the start")
    for setting, names in peers.items():
        if not getattr(config, setting):
            were, their = ("were", "their") if " and " in names else ("was", "its")
            report.note(f"{names} {were} left out, and {their} claims: no {setting} was given.")
    return report


def note_load(report: Report, when: str) -> None:
    """Say how busy the machine is."""
    report.note(f"Load average {when}: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


def claim_times(
    report: Report, name: str, rates: Rates, ours: Any, *, times: float, means: str
) -> float:
    """Claim that ours does at least `times` the work per second of the fastest of the others.

    Returns:
        The median of ours over the fastest, round by round: a column of the row.
    """
    best = max((who for who in rates if who != ours), key=rates.median)
    ratio = rates[ours] / rates[best]
    means = means.format(best=best)
    add_claim(report, name, ratio, at_least=times, means=means, source=GOALS, statistic="median")
    return float(np.median(ratio))


def show_seeds(
    report: Report,
    context: RunContext,
    title: str,
    train: Callable[[int], loop.Trained],
    seeds: Sequence[int],
    *,
    repeats: int,
    times: float = 4.0,
) -> None:
    """Table of the time to train several seeds in one program, and a claim of `times` or less."""
    for n in seeds:
        train(n)  # compiles
    timers = {n: lambda n=n: train(n).run_seconds for n in seeds}
    taken = in_turns(context, f"{title}: seeds side by side", repeats, timers)
    ratio = Rates({n: taken[n] / taken[seeds[0]] for n in seeds})
    rows = [{"seeds": n, "seconds": taken.median(n), "x one seed": ratio.median(n)} for n in seeds]
    report.table("seeds side by side", rows)
    if not times:
        return
    name = f"{max(seeds)} seeds in {times:g} times the time of one"
    how: dict[str, Any] = {"means": "seeds over the cores", "source": GOALS, "statistic": "median"}
    add_claim(report, name, ratio[seeds[-1]], at_most=times, **how)

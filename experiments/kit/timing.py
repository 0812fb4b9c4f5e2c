"""What all benchmarks share: a stopwatch, what the machine could do, and seeds side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.progress import Progress
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

SOURCE = "the project's goals"


def timed(work: Callable[[], Any]) -> float:
    """Seconds until the result is there."""
    begin = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begin


def rounds(context: RunContext, label: str, repeats: int) -> Iterator[int]:
    """Count to `repeats` and show how far that is; whoever is compared takes a turn in each."""
    with Progress(label, repeats, unit="rounds", enabled=context.progress) as progress:
        for index in range(repeats):
            yield index
            progress.advance(1)


def matmul_peak(size: int = 2048, repeats: int = 5) -> float:
    """Floating-point operations per second of one large float32 product: what there is to use."""
    square = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    timed(lambda: product(square, square))
    return 2.0 * size**3 / min(timed(lambda: product(square, square)) for _ in range(repeats))


def seeds_side_by_side(
    report: Report,
    trains: Mapping[int, Callable[[], loop.Trained]],
    repeats: int,
    *,
    title: str,
    context: RunContext,
) -> None:
    """Table, claim and picture of the time to train several seeds against that of the first.

    Args:
        report: where they go.
        trains: number of seeds -> a function that trains them, compiled at its first call.
        repeats: of which medians are shown.
        title: what is trained.
        context: whether progress is shown.
    """
    for train in trains.values():
        train()
    turns = rounds(context, f"{title}: seeds side by side", repeats)
    seconds = np.array([[train().run_seconds for train in trains.values()] for _ in turns])
    relative = np.median(seconds / seconds[:, :1], 0)
    report.table(
        "seeds side by side",
        [
            {"seeds": n, "seconds": float(middle), "x one seed": float(times)}
            for n, middle, times in zip(trains, np.median(seconds, 0), relative, strict=True)
        ],
    )
    report.claim(
        Claim.at_most(
            f"{max(trains)} seeds in 4 times the time of one",
            values=seconds[:, -1] / seconds[:, 0], threshold=4.0, source=SOURCE,
            expected="seeds as a vmapped axis, spread over the cores", statistic="median",
        )
    )  # fmt: skip
    made, (ax,) = figure(1, 1, width=4.2, title=title)
    ax.plot(list(trains), relative, "o-", label="measured")
    ax.plot(list(trains), list(trains), ":", color="black", label="one after the other")
    ax.set_xlabel("seeds")
    ax.set_ylabel("time, in times of one seed")
    ax.legend()
    report.picture("seeds", made, "Time to train several seeds in one program.")

"""Cost curves: seconds and bytes of the same work at growing sizes, and where they are linear.

curve = measure(context, "gradient steps by seeds", build, (1, 4, 16, 64), repeats=5)
linear_range(curve.sizes, curve.time)  # (4, 64)

`build(size)` returns a `Cost`. Linear is a slope between 0.8 and 1.2 in log-log from one size to
the next: twice the size takes 1.7 to 2.3 times as much.
"""

from __future__ import annotations

import ctypes
import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes

from ..record.context import RunContext, poll
from ..trees import PyTree
from .timing import in_turns

LINEAR = (0.8, 1.2)


class Cost(NamedTuple):
    """Work of one size, ready to be timed.

    Attributes:
        call: does it once and returns what has to be there when it is done.
        bytes: that it needs while it goes on; see `of_program` and `of_host`.
        kept: bytes that live from one call to the next: states, or a file.
        compile_seconds: of its program.
    """

    call: Callable[[], Any]
    bytes: float
    kept: float
    compile_seconds: float = 0.0


class Curve(NamedTuple):
    """What one kind of work cost at every size.

    Attributes:
        sizes: ascending, `[sizes]`.
        seconds: of one call, `[sizes, repeats]`.
        bytes, kept, compile_seconds: as of a `Cost`, `[sizes]`.
        rise: of this process's resident memory in a call, `[sizes]`; NaN where nobody tells.
    """

    sizes: np.ndarray
    seconds: np.ndarray
    bytes: np.ndarray
    kept: np.ndarray
    compile_seconds: np.ndarray
    rise: np.ndarray

    @property
    def time(self) -> np.ndarray:
        """Medians, `[sizes]`."""
        return np.median(self.seconds, 1)

    def between(self, start: int, end: int, values: np.ndarray | None = None) -> np.ndarray:
        """Slope from one size to another: of every round's seconds, or of `values` `[sizes]`."""
        values = self.seconds if values is None else values
        first, last = (int(np.flatnonzero(self.sizes == size)[0]) for size in (start, end))
        return np.atleast_1d(np.log(values[last] / values[first]) / np.log(end / start))


def size_of(tree: PyTree) -> int:
    """Bytes of all leaves."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def of_program(
    function: Callable[[PyTree, PyTree], tuple[PyTree, Any]],
    state: PyTree,
    data: PyTree = (),
    *,
    devices: int = 1,
) -> Cost:
    """A compiled `(state, data) -> (state, result)`; its state is donated, as in `loop.train`.

    Bytes are those of `planned_bytes`; copies on all devices count.

    Args:
        function: the work.
        state: it begins with; gone after the first call.
        data: that stay.
        devices: over which state and data were spread.
    """
    begin = time.perf_counter()
    program = jax.jit(function, donate_argnums=0).lower(state, data).compile()
    seconds = time.perf_counter() - begin
    kept, states = size_of(state), [state]
    del state

    def call() -> Any:
        states[0], result = program(states[0], data)
        return states[0], result

    return Cost(call, devices * planned_bytes(program), kept, seconds)


def planned_bytes(program: jax.stages.Compiled) -> int:
    """What XLA plans for one device: arguments, results and temporary buffers at once, without the
    results that take the place of a donated argument."""
    plan: Any = program.memory_analysis()
    held = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return held - plan.alias_size_in_bytes


def of_host(call: Callable[[], Any], kept: float) -> Cost:
    """Work in numpy: bytes are the most that Python and numpy held during a call (tracemalloc)."""
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Cost(call, peak, kept)


def resident_rise(call: Callable[[], Any]) -> float:
    """Bytes by which this process grew at most during a call: results and temporary buffers.

    What it had freed and kept before is given back first, where the C library can (glibc). NaN
    where the system does not tell (Linux does), and with a GPU, whose memory is another.
    """
    if jax.default_backend() != "cpu":
        return math.nan
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
    except OSError:
        return math.nan
    before = _resident("VmRSS")
    result = jax.block_until_ready(call())
    rise = _resident("VmHWM") - before
    del result
    return float(max(rise, 0))


def _resident(key: str) -> int:
    """A line of the kernel's status of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def seconds_per_call(call: Callable[[], Any], least: float) -> float:
    """Of as many calls as take `least` seconds together."""
    calls, begin = 0, time.perf_counter()
    while True:
        jax.block_until_ready(call())
        calls, spent = calls + 1, time.perf_counter() - begin
        if spent >= least:
            return spent / calls


def measure(
    context: RunContext,
    label: str,
    build: Callable[[int], Cost],
    sizes: Sequence[int],
    *,
    repeats: int,
    least: float = 0.05,
) -> Curve:
    """Build the work at every size, then time all sizes in turns, after two calls that warm up.

    Args:
        context: of the run.
        label: what it is, for the progress bar.
        build: size -> `Cost`.
        sizes: ascending.
        repeats: rounds in which every size is timed once.
        least: seconds that a timing takes; short work is done several times.
    """
    costs, rises = [], []
    for size in sizes:
        poll(context, f"before {label} at {size}")
        costs.append(build(size))
        jax.block_until_ready(costs[-1].call())
        rises.append(resident_rise(costs[-1].call))
    timers = {
        n: partial(seconds_per_call, c.call, least) for n, c in zip(sizes, costs, strict=True)
    }
    taken = in_turns(context, label, repeats, timers)
    columns = (np.array(column, float) for column in list(zip(*costs, strict=True))[1:])
    seconds = np.stack([taken[n] for n in sizes])
    return Curve(np.array(sizes), seconds, *columns, rise=np.array(rises))


def slopes(sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`d log value / d log size` between neighbours, `[sizes - 1]`."""
    return np.diff(np.log(values)) / np.diff(np.log(sizes))


def linear_range(sizes: np.ndarray, values: np.ndarray) -> tuple[int, int] | None:
    """The widest span of sizes in which every slope is within `LINEAR`; None if no slope is."""
    best, start = None, 0
    for i, slope in enumerate(slopes(sizes, values)):
        if not LINEAR[0] <= slope <= LINEAR[1]:
            start = i + 1
        elif best is None or sizes[i + 1] / sizes[start] > sizes[best[1]] / sizes[best[0]]:
            best = start, i + 1
    return None if best is None else (int(sizes[best[0]]), int(sizes[best[1]]))


def tell(curve: Curve, axis: str, *, flatter: str, steeper: str) -> str:
    """Where seconds are linear, and for all other sizes the reason given, on one line.

    Args:
        curve: that was measured.
        axis: what its sizes count.
        flatter: why doubling the size costs less than twice.
        steeper: why it costs more.
    """
    span, steps = linear_range(curve.sizes, curve.time), slopes(curve.sizes, curve.time)
    parts = ["nowhere linear" if span is None else f"linear from {span[0]:,} to {span[1]:,} {axis}"]
    for kind, reason in (("flatter", flatter), ("steeper", steeper)):
        here = steps < LINEAR[0] if kind == "flatter" else steps > LINEAR[1]
        spans = [
            f"{curve.sizes[i]:,} to {curve.sizes[i + 1]:,} (slope {steps[i]:.2f})"
            for i in np.flatnonzero(here)
        ]
        if spans:
            parts.append(f"{kind} from {', '.join(spans)}: {reason}")
    return "; ".join(parts)


def draw_cost(ax: Axes, sizes: np.ndarray, values: np.ndarray, label: str) -> None:
    """A curve in log-log with the proportional line through its last point, dotted."""
    (line,) = ax.loglog(sizes, values, "o-", markersize=3, label=label)
    proportional = values[-1] * np.asarray(sizes) / sizes[-1]
    ax.loglog(sizes, proportional, ":", linewidth=0.8, color=line.get_color())

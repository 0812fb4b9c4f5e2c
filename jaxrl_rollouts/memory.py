"""Estimate of a training's peak memory before it begins, and the measured peak."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .foreign import free_memory
from .trees import PyTree

# What evaluations, checkpoints and other small programs leave behind, measured.
AROUND = 60e6


class Need(NamedTuple):
    """Bytes of main memory of this process.

    Attributes:
        before: memory in use already, including data and state on CPU devices.
        data: part of `before`: the data with their copies on the devices.
        state: part of `before`: the state of all seeds.
        work: temporary memory of the running program, and its output.
        copies: copies of the state during evaluation or writing.
        seen: peak memory of the process so far.
    """

    before: float
    data: float
    state: float
    work: float
    copies: float
    seen: float

    @property
    def total(self) -> float:
        """The most there will be, or was."""
        return max(self.expected, self.seen)

    @property
    def expected(self) -> float:
        """The most that this training will need, whatever was before."""
        return self.before + max(self.work, self.copies) + AROUND

    def __str__(self) -> str:
        other = self.before - self.data - self.state
        parts = {
            "data": self.data,
            "state": self.state,
            "work": max(self.work, self.copies),
            "Python and programs": other + AROUND,
        }
        listed = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in parts.items())
        return f"{self.total / 1e6:,.0f} MB of {available(self) / 1e6:,.0f} MB ({listed})"


def bytes_of(tree: PyTree) -> int:
    """Of all arrays of a tree on the CPU, copies on several devices counted as often."""
    size = 0
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            own = [s.data for s in leaf.addressable_shards if s.device.platform == "cpu"]
            size += sum(array.size * array.dtype.itemsize for array in own)
        else:
            size += np.asarray(leaf).nbytes
    return size


def program_bytes(program: Any) -> float:
    """What a compiled program takes besides its arguments, on all of its CPU devices."""
    stats = program.memory_analysis()
    devices = jax.tree.leaves(program.input_shardings)[0].device_set
    if stats is None or next(iter(devices)).platform != "cpu":
        return 0.0
    own = stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return float(len(devices) * max(own, 0))


def need(program: Any, state: PyTree, data: PyTree, *, copies: int = 0) -> Need:
    """What running a compiled program on its arguments will take.

    Args:
        program: `jax.jit(...).lower(...).compile()`.
        state, data: its arguments, as they lie on the devices.
        copies: copies of the state made between two runs.
    """
    size = bytes_of(state)
    return Need(
        resident(), bytes_of(data), size, program_bytes(program), copies * size, measured_peak()
    )


def resident() -> int:
    """Bytes of this process in main memory; the most it had where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return measured_peak()
    return pages * os.sysconf("SC_PAGE_SIZE")


def measured_peak() -> int:
    """The most main memory that this process had, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available(need: Need) -> float:
    """Bytes that the process has, or could still get."""
    return free_memory() + need.before


def lacking(need: Need) -> str:
    """A sentence where there is less memory than needed, else nothing."""
    if need.total <= available(need):
        return ""
    return "More than available: lower the seeds, the networks' widths, the batch, or the rows."

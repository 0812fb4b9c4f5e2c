"""The one training loop: chunks of compiled scan, and a pause between them.

A learner is two pure functions for one seed: `init(key, data) -> state` and `update(state, data)
-> (state, metrics)`. The loop maps both over seeds, scans the update `chunk` times inside one jit
with the state donated, and between chunks, and only there, logs, evaluates, checks for non-finite
numbers, checkpoints and listens for Ctrl-C. Data are shared by the seeds and never copied, or,
where `per_seed` says so, each seed has its own; neither kind is donated or written to checkpoints.
"""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from . import devices, memory, processes
from .brief import brief
from .chunks import Axes, Init, Update, beginning, compiled, placed, run_fed
from .errors import ConfigError
from .feeds import DataStream, closing
from .finite import OnDivergence, Seeds
from .record.about import seed_facts, warnings_of
from .record.context import RunContext, poll
from .record.history import History
from .stage import Checkpoints, Output, Reached, Spent
from .trees import PyTree


class Trained(NamedTuple):
    """What `train_loop` returns.

    Attributes:
        state: the final state, leading axis = seeds; spread over `mesh` if one was given
            that they fill.
        history: every record, also those from before a resume.
        compile_seconds: spent compiling, sessions before a resume included.
        run_seconds: spent in compiled chunks, likewise.
        wall_seconds: spent in all, compilation, evaluations and checkpoints included, likewise.
        diverged: the iteration at which a seed that was dropped diverged, by seed; its numbers in
            `state` and in `history` from there on are NaN.
    """

    state: PyTree
    history: History
    compile_seconds: float
    run_seconds: float
    wall_seconds: float
    diverged: Mapping[int, int] = MappingProxyType({})

    __repr__ = brief


def train_loop(
    update: Update,
    init: Init,
    keys: PyTree,
    data: PyTree | DataStream = (),
    *,
    per_seed: PyTree = False,
    iterations: int,
    stage: str,
    chunk: int = 1,
    unit: str = "steps",
    units_per_iteration: int = 1,
    evaluate: Callable[[PyTree, int], Mapping[str, Any]] | None = None,
    evaluate_every: int | None = None,
    evaluate_at: Collection[int] = (),
    finished: Callable[[Mapping[str, np.ndarray]], bool] | None = None,
    context: RunContext | None = None,
    save_every_seconds: float = 60.0,
    mesh: Mesh | None = None,
    batch_axis: tuple[str, int] | None = None,
    about: Any = None,
    on_divergence: OnDivergence = "raise",
) -> Trained:
    """Start every seed with `init` and apply `update` to it `iterations` times.

    Args:
        update: one iteration for one seed; may itself scan over many gradient steps. The same
            function object compiles once per process, however often `train_loop` is called with it.
        init: `(key, data) -> state` of one seed. Compiled once per process, like `update`.
        keys: `[seeds]` typed keys, consumed; or any tree with a leading seed axis that `init`
            takes as its first argument.
        data: argument of both; a `DataStream` where it is too large for the memory.
        per_seed: which parts of `data` have a leading seed axis and are seen by their own seed
            only: a prefix of `data` with True and False for leaves, as `in_axes` is for `vmap`.
        iterations: number of applications of `update`.
        stage: name of the stage; its checkpoints and history live in that folder of the run.
        chunk: iterations per compiled call, hence the grain of everything between chunks.
        unit, units_per_iteration: what the progress bar counts.
        evaluate: `(state, iteration) -> {name: [seeds] values}`, called on the host after every
            `evaluate_every` iterations and at the end. Must depend on its arguments only, or be
            `Remembering`.
        evaluate_every: a multiple of `chunk`; None evaluates at the end only.
        evaluate_at: iterations after which to evaluate besides (`evenly`), multiples of `chunk`.
        finished: stop early when this is true of the chunk's mean metrics.
        context: run folder, loggers, progress bar and stop flag; None runs silently in memory.
        save_every_seconds: least time between two checkpoints.
        mesh: devices to spread the seeds over; None takes those that the seeds can keep busy.
            Copies of the last seed fill the mesh where the number does not divide. Along
            `devices.MEMBER` the second axis of the state is spread, of those leaves that have
            one; along `devices.BATCH` and `devices.SPACE` the update itself states what is
            (`devices.split`).
        batch_axis: `(mesh axis, size)`: with several processes and one seed, spread that seed along
            this axis.
        about: settings of what is trained, a dataclass or a mapping of them by name. Kept with
            checkpoints, so that a training with other settings is not continued as this one.
        on_divergence: what a non-finite metric of a seed causes: "raise" ends the training;
            "drop" saves, warns and continues with the others, whose numbers do not change, and
            raises when none is left.

    Returns:
        A `Trained`. With a context, a stage that was completed before is loaded and not re-run,
        and one that was cut is continued from its newest checkpoint, bitwise on CPU.

    Raises:
        DivergenceError: a metric became NaN or infinite; names it, the iteration and the seed.
            With "drop" that of the last seed.
        Interrupted: the context's stop flag was raised; a checkpoint was written.
        ConfigError: `chunk`, `iterations` and evaluations do not fit each other, a part of the
            data that is per seed has not one row per seed, or `evaluate` has a metric's name.
        PeerError: another process of the run has ended.
        CheckpointError: the stage's folder holds a checkpoint of something else, or of a training
            with other settings or seeds.
    """
    began = time.perf_counter()
    schedule = _Schedule(iterations, chunk, evaluate_every, frozenset(evaluate_at))
    schedule.check()
    feed = data if isinstance(data, DataStream) else None
    data = jax.device_put(feed.known if feed else data)
    seeds, axes = len(jax.tree.leaves(keys)[0]), Axes.of(per_seed)
    _check_rows(data, per_seed, seeds)
    facts = warnings_of(about) | {f"{unit} of an iteration": units_per_iteration}
    # Which seeds these are is part of a checkpoint: another seed's training is not continued.
    # Read here, since the program that makes the first state consumes them.
    facts |= seed_facts(keys)
    state = beginning(init, axes)(keys, data)
    saved = Checkpoints(stage, context, evaluate, facts, save_every_seconds)
    reached = saved.newest(state)
    # Seeds that diverged before the interruption stay dropped after it.
    alive = Seeds(stage, seeds, on_divergence, reached.diverged)
    output = Output(stage, context, reached, iterations, unit, units_per_iteration)
    # Chosen anew in every session: checkpoints hold whole states, wherever they were trained.
    over = mesh or devices.mesh_for(seeds)
    if over is None and batch_axis and processes.several():
        over = devices.mesh_along(*batch_axis)
    calls = _Calls(update, data, feed, axes, schedule)
    reached = reached._replace(state=calls.place(reached.state, per_seed, over))
    whole = functools.partial(_whole, seeds=seeds, over=over, own=mesh)
    # An evaluation or a gathered state keeps a second copy alive beside the donated one.
    copies = 2 if evaluate or over else 1
    running = _Running(
        schedule, calls, alive, saved, output, evaluate, finished, whole, context, copies
    )
    # Watched: jax's error when another process has ended contains no hint.
    with output.progress, closing(feed), processes.watched("resume the run"):
        state, spent = running.run(reached, began - reached.spent.wall)
    state = alive.marked(whole(state)) if alive.diverged else whole(state)
    spent = spent._replace(wall=time.perf_counter() - began + reached.spent.wall)
    return Trained(state, output.history, *spent, MappingProxyType(alive.diverged))


@dataclass(frozen=True)
class _Running:
    """The chunks of a stage, and what is done between two of them."""

    schedule: _Schedule
    calls: _Calls
    alive: Seeds
    saved: Checkpoints
    output: Output
    evaluate: Callable[[PyTree, int], Mapping[str, Any]] | None
    finished: Callable[[Mapping[str, np.ndarray]], bool] | None
    whole: Callable[[PyTree], PyTree]
    context: RunContext | None
    copies: int  # of the state, while it is evaluated or written

    def run(self, reached: Reached, began: float) -> tuple[PyTree, Spent]:
        """State and times at the end; `began` is when the first session would have begun."""
        iteration, state, stopped, spent, *_ = reached
        alive, iterations, stage = self.alive, self.schedule.iterations, self.output.stage
        if self.context and iteration < iterations and not stopped:
            spent = spent.plus(compile=self._tell_need(iteration, state, self.context))
        asked, _ = _agreed(self.context)
        while iteration < iterations and not stopped:
            if asked:
                where = f"in stage {stage} after {iteration} of {iterations} iterations"
                poll(self.context, where)
            length = self.schedule.length(iteration)
            state, metrics, seconds = self.calls.run(state, length)
            means = alive.means(iteration, metrics, self.saved.folder)
            # Before the next chunk: a dropped seed's NaN would reach the others' reported means.
            state = alive.mended(state)
            iteration += length
            # A dropped seed counts as finished: its NaN would keep the others from stopping.
            stopped = bool(self.finished and self.finished(alive.filled(means)))
            last = stopped or iteration == iterations
            # On the host, between chunks: simulators need not be compiled.
            if self.evaluate and (last or self.schedule.due(iteration)):
                if self.saved.keeper:
                    self.saved.keeper.lost = alive.lost
                found = self.evaluate(self.whole(state), iteration)
                # One curve would be made of both, and the reader could not see it.
                if twice := sorted(found.keys() & means.keys()):
                    hint = "rename the metric of the update"
                    raise ConfigError("evaluate", twice, "names that no metric has", hint)
                means |= alive.masked(found)
            self.output.write(iteration, means, length)
            spent = spent.plus(**seconds)
            # Read once, so that a stopping run has saved.
            asked, late = _agreed(self.context, self.saved.due())
            if self.saved.folder and (last or asked or late or alive.newly):
                spent = spent._replace(wall=time.perf_counter() - began)
                bundle = Reached(iteration, self.whole(state), stopped, spent)
                self.saved.save(bundle, self.output.history, alive)
        return state, spent

    def _tell_need(self, iteration: int, state: PyTree, context: RunContext) -> float:
        """Put on record what a stage will take of the memory, and say it; seconds of compiling."""
        begin, stage = time.perf_counter(), self.output.stage
        program, data = self.calls.program(state, iteration)
        seconds = time.perf_counter() - begin
        need = context.needs[stage] = memory.need(program, state, data, copies=self.copies)
        if context.progress:
            print(f"{stage}: needs about {need}", file=sys.stderr, flush=True)
        if lacking := memory.lacking(need):
            warnings.warn(f"{stage}: needs about {need}. {lacking}", stacklevel=4)
        return seconds


class _Schedule(NamedTuple):
    """How many iterations there are, in a call, and between evaluations."""

    iterations: int
    chunk: int
    every: int | None
    at: frozenset[int]

    def check(self) -> None:
        if self.iterations < 1 or self.chunk < 1:
            found = (self.iterations, self.chunk)
            raise ConfigError("iterations, chunk", found, "both at least 1")
        if self.every is not None and self.every % self.chunk:
            raise ConfigError("evaluate_every", self.every, f"a multiple of chunk ({self.chunk})")
        if any(at % self.chunk for at in self.at):
            raise ConfigError("evaluate_at", sorted(self.at), f"multiples of chunk ({self.chunk})")

    def length(self, iteration: int) -> int:
        """Iterations of the next call: up to a multiple of `chunk`, whatever was done before."""
        # Counted from zero, not from here: a resumed run has the same programs and means.
        return min(self.chunk - iteration % self.chunk, self.iterations - iteration)

    def due(self, iteration: int) -> bool:
        """Whether to evaluate after it."""
        return iteration in self.at or bool(self.every and not iteration % self.every)


@dataclass
class _Calls:
    """Calls of the compiled update: how many iterations each has, and on which data."""

    update: Update
    data: PyTree
    feed: DataStream | None
    axes: Axes
    schedule: _Schedule

    def place(self, state: PyTree, per_seed: PyTree, over: Mesh | None) -> PyTree:
        """The state on its devices, and the data on theirs."""
        if self.feed:
            self.feed.begin(state, functools.partial(placed, over=over))
        if over is not None:
            state, self.data = devices.spread(state, self.data, per_seed, over)
        return state

    def program(self, state: PyTree, iteration: int) -> tuple[Any, PyTree]:
        """The first call's compiled program, and its data."""
        if self.feed:
            data = self.feed.look()
            return compiled(self.update, 1, Axes.of(True)).program(state, data), data
        chunk = compiled(self.update, self.schedule.length(iteration), self.axes)
        return chunk.program(state, self.data), self.data

    def run(self, state: PyTree, length: int) -> tuple[PyTree, dict[str, np.ndarray], dict]:
        """See `Chunk.run`."""
        if self.feed:
            return run_fed(self.update, length, state, self.feed)
        return compiled(self.update, length, self.axes).run(state, self.data)


def _whole(state: PyTree, *, seeds: int, over: Mesh | None, own: Mesh | None) -> PyTree:
    """The state in the caller's layout; on a mesh of its own it stays there."""
    kept = own is not None and devices.of_seeds(own) and seeds % own.size == 0
    kept = over is None or (kept and not processes.several())
    return state if kept else devices.gather(state, seeds)


def evenly(iterations: int, times: int) -> frozenset[int]:
    """Iterations at which to evaluate `times` times, evenly spread and rounded; the last is one.

    Fewer where there are fewer iterations.
    """
    return frozenset(max(round(k * iterations / times), 1) for k in range(1, times + 1))


def _agreed(context: RunContext | None, late: bool = False) -> tuple[bool, bool]:
    """Whether a stop was requested, and whether a checkpoint is due, in any process."""
    stop = context.stop if context else None
    asked, late = processes.agree(bool(stop and stop.requested), late)
    if asked and stop and not stop.requested:
        stop.request()
    return asked, late


def _check_rows(data: PyTree, per_seed: PyTree, seeds: int) -> None:
    """Raise unless every leaf that is per seed has `seeds` rows."""
    pairs = zip(
        jax.tree.leaves(jax.tree.broadcast(per_seed, data)), jax.tree.leaves(data), strict=True
    )
    shapes = {leaf.shape for own, leaf in pairs if own and leaf.shape[:1] != (seeds,)}
    if shapes:
        raise ConfigError("data per seed", sorted(shapes), f"a leading axis of {seeds} seeds")

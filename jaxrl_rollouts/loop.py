"""The one training loop: chunks of compiled scan, and a pause between them.

A learner is two pure functions for one seed: `init(key, data) -> state` and `update(state, data)
-> (state, metrics)`. The loop maps both over seeds, scans the update `chunk` times inside one jit
with the state donated, and between chunks, and only there, logs, evaluates, checks for non-finite
numbers, checkpoints and listens for Ctrl-C. Data are shared by the seeds and never copied, or,
where `per_seed` says so, each seed has its own; neither kind is donated or written to checkpoints.
"""

from __future__ import annotations

import functools
import json
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from . import devices, memory, processes
from .chunks import Axes, Chunk, Init, Update, beginning, compiled, placed, run_fed
from .errors import ConfigError
from .feeds import Feed, closing
from .finite import DIVERGED, OnDivergence, Seeds
from .record import checkpoint
from .record.about import ABOUT, check_facts, seed_facts, warnings_of
from .record.context import RunContext, poll
from .record.history import History
from .record.loggers import Progress
from .trees import PyTree

HISTORY = "history.jsonl"


@runtime_checkable
class Remembering(Protocol):
    """An `evaluate` that keeps something from one call to the next, which goes into checkpoints.

    Attributes:
        kept: arrays and numbers, of the same structure from `begin` on.
    """

    kept: PyTree

    def begin(self, state: PyTree) -> None:
        """Set `kept` to what it is before the first call; `state` is how training begins."""

    def __call__(self, state: PyTree, iteration: int) -> Mapping[str, Any]: ...


class Trained(NamedTuple):
    """What `train` returns.

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


def train(
    update: Update,
    init: Init,
    keys: PyTree,
    data: PyTree | Feed = (),
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
    alone: tuple[str, int] | None = None,
    about: Any = None,
    on_divergence: OnDivergence = "raise",
) -> Trained:
    """Start every seed with `init` and apply `update` to it `iterations` times.

    Args:
        update: one iteration for one seed; may itself scan over many gradient steps. The same
            function object compiles once per process, however often `train` is called with it.
        init: `(key, data) -> state` of one seed. Compiled once per process, like `update`.
        keys: `[seeds]` typed keys, consumed; or any tree with a leading seed axis that `init`
            takes as its first argument.
        data: what both are given; a `Feed` where it is too large for the memory.
        per_seed: which parts of `data` have a leading seed axis and are seen by their own seed
            only: a prefix of `data` with True and False for leaves, as `in_axes` is for `vmap`.
        iterations: how many times to apply `update`.
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
            one; along `devices.BATCH` the update says itself what is (`devices.split`).
        alone: `(mesh axis, size)`: with several processes and one seed, spread that seed along
            this axis.
        about: settings of what is trained, a dataclass or a mapping of them by name. Kept with
            checkpoints, so that a training with other settings is not continued as this one.
        on_divergence: of a seed with a metric that is not finite: "raise" ends the training;
            "drop" saves, warns and goes on with the others, whose numbers stay what they are, and
            raises when none is left.

    Returns:
        A `Trained`. With a context, a stage that was completed before is loaded and not re-run,
        and one that was cut is continued from its newest checkpoint, bitwise on CPU.

    Raises:
        DivergenceError: a metric became NaN or infinite; names it, the iteration and the seed.
            With "drop" that of the last seed.
        Interrupted: the context's stop flag was raised; a checkpoint was written.
        ConfigError: `chunk`, `iterations` and evaluations do not fit each other, or a part of
            the data that is per seed has not one row per seed.
        PeerError: another process of the run has ended.
        CheckpointError: the stage's folder holds a checkpoint of something else, or of a training
            with other settings or seeds.
    """
    began = time.perf_counter()
    _check_lengths(iterations, chunk, evaluate_every, evaluate_at)
    seeds, axes = len(jax.tree.leaves(keys)[0]), Axes.of(per_seed)
    feed = data if isinstance(data, Feed) else None
    data = jax.tree.map(jnp.asarray, feed.known if feed else data)
    facts = warnings_of(about) | {f"{unit} of an iteration": units_per_iteration}
    # Which seeds these are is part of a checkpoint: another seed's training is not continued.
    facts |= seed_facts(keys)  # before they are consumed
    _check_rows(data, per_seed, seeds)
    folder = context.folder.stage(stage) if context else None
    # `init` may return one buffer for two equal leaves; chunks donate each leaf, so copy first.
    state = jax.tree.map(jnp.copy, beginning(init, axes)(keys, data))
    keeper = evaluate if isinstance(evaluate, Remembering) else None
    iteration, state, stopped, spent, kept = _resumed(folder, state, keeper, facts)
    known = checkpoint.text(folder, iteration, DIVERGED) if folder and iteration else None
    # Seeds that diverged before the interruption stay dropped after it.
    alive = Seeds(stage, seeds, on_divergence, known)
    earlier = spent.wall
    output = _Output(stage, context, iteration, iterations, unit, units_per_iteration, kept)
    over = mesh or devices.mesh_for(seeds)  # checkpoints hold whole states, wherever trained
    if over is None and alone and processes.several():
        over = devices.mesh_along(*alone)
    if feed:
        feed.begin(state, functools.partial(placed, over=over))
    if over is not None:
        state, data = devices.spread(state, data, per_seed, over)

    def whole() -> PyTree:
        """The state as the caller knows it; on their own mesh it stays there."""
        kept = mesh is not None and devices.of_seeds(mesh) and seeds % mesh.size == 0
        kept = over is None or (kept and not processes.several())
        return state if kept else devices.gather(state, seeds)

    def to_do() -> int:
        """Iterations of the next call: up to a multiple of `chunk`, whatever was done before."""
        return min(chunk - iteration % chunk, iterations - iteration)

    def so_far() -> _Spent:
        return spent._replace(wall=earlier + time.perf_counter() - began)

    if context and iteration < iterations and not stopped:
        length = to_do()
        program = compiled(update, 1 if feed else length, Axes.of(True) if feed else axes)
        seen, copies = feed.look() if feed else data, 2 if evaluate or over else 1
        spent = spent.plus(compile=_tell_need(program, state, seen, stage, context, copies))
    saved_at, (asked, _) = time.monotonic(), _agreed(context)
    with output.progress, closing(feed), processes.watched("resume the run"):
        while iteration < iterations and not stopped:
            if asked:
                poll(context, f"in stage {stage} after {iteration} of {iterations} iterations")
            length = to_do()
            if feed:
                state, metrics, seconds = run_fed(update, length, state, feed)
            else:
                state, metrics, seconds = compiled(update, length, axes).run(state, data)
            means = alive.means(iteration, metrics, folder)
            # Before the next chunk: a dropped seed's NaN would reach the others' reported means.
            state = alive.mended(state)
            iteration += length
            # A dropped seed counts as finished: its NaN would keep the others from stopping.
            stopped = bool(finished and finished(alive.filled(means)))
            last = stopped or iteration == iterations
            due = iteration in evaluate_at or (evaluate_every and not iteration % evaluate_every)
            # On the host, between chunks: simulators need not be compiled.
            if evaluate and (last or due):
                means |= alive.masked(evaluate(whole(), iteration))
            output.write(iteration, means, length * units_per_iteration)
            spent = spent.plus(**seconds)
            # Looked at once, so that who stops has saved.
            asked, late = _agreed(context, time.monotonic() - saved_at >= save_every_seconds)
            if folder and (last or asked or late or alive.newly):
                bundle = _bundle(whole(), stopped, so_far(), keeper)
                # Inside the checkpoint: after any crash both are of the same iteration.
                texts = {HISTORY: output.history.text, ABOUT: json.dumps(facts, indent=1)}
                texts |= {DIVERGED: alive.text} if alive.diverged else {}
                checkpoint.save(folder, iteration, bundle, texts=texts)
                saved_at = time.monotonic()
    state = alive.marked(whole()) if alive.diverged else whole()
    return Trained(state, output.history, *so_far(), MappingProxyType(alive.diverged))


class _Output:
    """Output of a stage while it runs: its history, the loggers, the progress bar."""

    def __init__(
        self,
        stage: str,
        context: RunContext | None,
        done: int,
        of: int,
        unit: str,
        units: int,
        kept: str | None,
    ) -> None:
        path = context.folder.stage(stage) / HISTORY if context else None
        self.stage, self.loggers = stage, context.loggers if context else ()
        self.history = History(path, upto=done, kept=kept)
        for logger in self.loggers:
            logger.restore(stage, self.history.records)
        enabled = bool(context and context.progress)
        self.progress = Progress(
            stage, total=of * units, initial=done * units, unit=unit, enabled=enabled
        )

    def write(self, iteration: int, means: Mapping[str, np.ndarray], units: int) -> None:
        self.history.append(iteration, means)
        for logger in self.loggers:
            logger.log(self.stage, iteration, means)
        self.progress.advance(units, means)


def evenly(iterations: int, times: int) -> frozenset[int]:
    """Iterations at which to evaluate `times` times, evenly spread and rounded; the last is one.

    Fewer where there are fewer iterations.
    """
    return frozenset(max(round(k * iterations / times), 1) for k in range(1, times + 1))


def _check_lengths(
    iterations: int, chunk: int, evaluate_every: int | None, evaluate_at: Collection[int]
) -> None:
    if iterations < 1 or chunk < 1:
        raise ConfigError("iterations, chunk", (iterations, chunk), "both at least 1")
    if evaluate_every is not None and evaluate_every % chunk:
        raise ConfigError("evaluate_every", evaluate_every, f"a multiple of chunk ({chunk})")
    if any(at % chunk for at in evaluate_at):
        raise ConfigError("evaluate_at", sorted(evaluate_at), f"multiples of chunk ({chunk})")


def _resumed(
    folder: Path | None, state: PyTree, keeper: Remembering | None, facts: Mapping[str, Any]
) -> tuple[int, PyTree, bool, _Spent, str | None]:
    """Iteration, state, whether it had finished, what it cost and its history: the newest
    checkpoint's, of the same `facts`. `keeper` is given what is kept there."""
    if keeper:
        keeper.begin(state)
    like = _bundle(state, False, _Spent(), keeper)
    newest = checkpoint.load_newest(folder, like) if folder else None
    if folder is None or newest is None:
        return 0, state, False, _Spent(), None
    iteration, bundle = newest
    check_facts(folder, checkpoint.text(folder, iteration, ABOUT), facts)
    if keeper:
        keeper.kept = bundle["kept"]
    spent, kept = _Spent(**bundle["spent"]), checkpoint.text(folder, iteration, HISTORY)
    return iteration, bundle["state"], bool(bundle["finished"]), spent, kept


def _tell_need(
    chunk: Chunk, state: PyTree, data: PyTree, stage: str, context: RunContext, copies: int
) -> float:
    """Put on record what a stage will take of the memory, and say it; seconds of compiling."""
    begin = time.perf_counter()
    program = chunk.program(state, data)
    seconds = time.perf_counter() - begin
    need = context.needs[stage] = memory.need(program, state, data, copies=copies)
    if context.progress:
        print(f"{stage}: needs about {need}", file=sys.stderr, flush=True)
    if lacking := memory.lacking(need):
        warnings.warn(f"{stage}: needs about {need}. {lacking}", stacklevel=3)
    return seconds


def _agreed(context: RunContext | None, late: bool = False) -> tuple[bool, bool]:
    """Whether a stop was requested, and whether a checkpoint is due, in any process."""
    stop = context.stop if context else None
    asked, late = processes.agree(bool(stop and stop.requested), late)
    if asked and stop and not stop.requested:
        stop.request()
    return asked, late


class _Spent(NamedTuple):
    """Seconds so far; kept in the checkpoint so that a resumed run can say what it cost."""

    compile: float = 0.0
    run: float = 0.0
    wall: float = 0.0

    def plus(self, **seconds: float) -> _Spent:
        return self._replace(**{k: getattr(self, k) + v for k, v in seconds.items()})


def _bundle(
    state: PyTree, finished: bool, spent: _Spent, keeper: Remembering | None
) -> dict[str, Any]:
    bundle = {"state": state, "finished": int(finished), "spent": spent._asdict()}
    return bundle | ({"kept": keeper.kept} if keeper else {})


def _check_rows(data: PyTree, per_seed: PyTree, seeds: int) -> None:
    """Raise unless every leaf that is per seed has `seeds` rows."""
    pairs = zip(
        jax.tree.leaves(jax.tree.broadcast(per_seed, data)), jax.tree.leaves(data), strict=True
    )
    shapes = {leaf.shape for own, leaf in pairs if own and leaf.shape[:1] != (seeds,)}
    if shapes:
        raise ConfigError("data per seed", sorted(shapes), f"a leading axis of {seeds} seeds")

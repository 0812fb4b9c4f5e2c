"""Output of a training stage on disk and on screen while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from .finite import DIVERGED, Seeds
from .record import checkpoint
from .record.about import ABOUT, check_facts
from .record.context import RunContext
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
    # `[seeds]`, or False: those that diverged, in whose place another seed's state is shown. Of
    # them nothing more may be kept.
    lost: Any

    def begin(self, state: PyTree) -> None:
        """Set `kept` to what it is before the first call; `state` is how training begins."""

    def __call__(self, state: PyTree, iteration: int) -> Mapping[str, Any]: ...


class Spent(NamedTuple):
    """Seconds so far; kept in the checkpoint so that a resumed run can say what it cost."""

    compile: float = 0.0
    run: float = 0.0
    wall: float = 0.0

    def plus(self, **seconds: float) -> Spent:
        return self._replace(**{k: getattr(self, k) + v for k, v in seconds.items()})


class Reached(NamedTuple):
    """Progress of a stage: its beginning, or its newest checkpoint.

    Attributes:
        iteration: number of completed iterations.
        state: state of all seeds.
        stopped: whether it had ended early.
        spent: seconds of the sessions before.
        history, diverged: texts of the checkpoint; None at the beginning.
    """

    iteration: int
    state: PyTree
    stopped: bool = False
    spent: Spent = Spent()
    history: str | None = None
    diverged: str | None = None


class Checkpoints:
    """Checkpoints of a stage, with its history, its settings and what `evaluate` keeps.

    Args:
        stage: name of the stage.
        context: context of the run; None keeps nothing.
        evaluate: its `kept` is saved too, where it is `Remembering`.
        facts: settings; a checkpoint with others is refused.
        every: least seconds between two of them.
    """

    def __init__(
        self,
        stage: str,
        context: RunContext | None,
        evaluate: Any,
        facts: Mapping[str, Any],
        every: float,
    ) -> None:
        self.folder = context.folder.stage(stage) if context else None
        self.keeper = evaluate if isinstance(evaluate, Remembering) else None
        self.facts, self.every, self.saved_at = facts, every, time.monotonic()

    def newest(self, state: PyTree) -> Reached:
        """The newest checkpoint of the same settings; `state` itself without one."""
        if self.keeper:
            self.keeper.begin(state)
        found = None
        if self.folder is not None:
            found = checkpoint.load_newest(self.folder, self._bundle(state, False, Spent()))
        if self.folder is None or found is None:
            return Reached(0, state)
        iteration, bundle = found
        about, history, diverged = (
            checkpoint.text(self.folder, iteration, name) for name in (ABOUT, HISTORY, DIVERGED)
        )
        check_facts(self.folder, about, self.facts)
        if self.keeper:
            self.keeper.kept = bundle["kept"]
        spent, stopped = Spent(**bundle["spent"]), bool(bundle["finished"])
        return Reached(iteration, bundle["state"], stopped, spent, history, diverged)

    def due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.every

    def save(self, at: Reached, history: History, seeds: Seeds) -> None:
        """Write one of what is reached, if anything is written."""
        if self.folder is None:
            return
        # Inside the checkpoint: after any crash both are of the same iteration.
        texts = {HISTORY: history.text, ABOUT: json.dumps(self.facts, indent=1)}
        texts |= {DIVERGED: seeds.text} if seeds.diverged else {}
        bundle = self._bundle(at.state, at.stopped, at.spent)
        checkpoint.save(self.folder, at.iteration, bundle, texts=texts)
        self.saved_at = time.monotonic()

    def _bundle(self, state: PyTree, finished: bool, spent: Spent) -> dict[str, Any]:
        bundle = {"state": state, "finished": int(finished), "spent": spent._asdict()}
        return bundle | ({"kept": self.keeper.kept} if self.keeper else {})


class Output:
    """Output of a stage while it runs: its history, the loggers, the progress bar.

    Args:
        stage, context: as for `train_loop`.
        done: iterations reached.
        of: iterations in all.
        unit, units: what the progress bar counts, and how many an iteration has.
    """

    def __init__(
        self,
        stage: str,
        context: RunContext | None,
        done: Reached,
        of: int,
        unit: str,
        units: int,
    ) -> None:
        path = context.folder.stage(stage) / HISTORY if context else None
        self.stage, self.units = stage, units
        self.loggers = context.loggers if context else ()
        self.history = History(path, upto=done.iteration, kept=done.history)
        for logger in self.loggers:
            logger.restore(stage, self.history.records)
        enabled, initial = bool(context and context.progress), done.iteration * units
        self.progress = Progress(stage, of * units, initial=initial, unit=unit, enabled=enabled)

    def write(self, iteration: int, means: Mapping[str, np.ndarray], length: int) -> None:
        """Record the means over the last `length` iterations."""
        self.history.append(iteration, means)
        for logger in self.loggers:
            logger.log(self.stage, iteration, means)
        self.progress.advance(length * self.units, means)

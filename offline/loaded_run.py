"""A finished run of the command line or of a program, read back in Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.record.saved import find_folder
from jaxrl_rollouts.reports.report import Report, load_report

from .compare_command import flat
from .policy import Policy
from .saved_policies import BEST, FILE, LAST, SavedPolicy, read_policy


class LoadedRun(NamedTuple):
    """A finished run; see `load_run`.

    Attributes:
        folder: folder of the run.
        settings: all settings of a run of the command line, nested as `run.json` has them; empty
            for a run that a program opened.
        returns: `[seeds]`, undiscounted, in the true environment at the end of training; None
            without a simulator.
        history: every evaluation and every metric over training.
        last: the policies of all seeds at the end; `last.facts` has their dataset.
        best: those of each seed's best evaluation; None where no simulator evaluated them.
        report: tables and numbers of a run of the command line; None of others.
    """

    folder: Path
    settings: Mapping[str, Any]
    returns: np.ndarray | None
    history: History
    last: SavedPolicy
    best: SavedPolicy | None
    report: Report | None

    def __repr__(self) -> str:
        """Folder, method, dataset, returns and what was recorded; no parameters."""
        facts = self.last.facts
        head = f"{facts.get('method')} on {facts.get('dataset')}, {facts['seeds']} seeds"
        returns = None if self.returns is None else np.array2string(self.returns, precision=4)
        return f"LoadedRun({self.folder}: {head}, returns {returns}, {self.history})"

    def curve(self, name: str = "return") -> tuple[np.ndarray, np.ndarray]:
        """A metric over training: gradient steps `[looks]` and values `[looks, seeds]`.

        Of a run that a program opened, which has no settings, iterations of its loop in place of
        gradient steps.

        Raises:
            KeyError: a metric that was not recorded, with those that were.
        """
        at, values = self.history.curve(name)
        settings = flat(self.settings)
        # A fine-tuning counts steps in its simulator.
        steps = settings.get("method.steps", settings.get("steps"))
        last = self.history.records[-1].iteration
        return (at if steps is None else np.round(at * (steps / last)).astype(int)), values

    def policy(self, seed: int = 0, *, best: bool = False, **options: Any) -> Policy:
        """What acts, of one training seed: as `load_policy`, which takes the same options.

        Raises:
            CheckpointError: there is no such seed, or no policy of a best evaluation.
        """
        saved = self.last if not best else self.best
        return Policy(saved or read_policy(self.folder, best=best), seed, **options)


def load_run(run: str | Path) -> LoadedRun:
    """Read a finished run: returns, settings, history, policies, report. No data are read.

        run = offline.load_run("runs/pendulum-mixed-mopo-20261120-235905")
        run.returns                                  # [seeds]
        run.settings["method"]                       # as in run.json
        steps, returns = run.curve("return")         # [evaluations], [evaluations, seeds]
        action = run.policy(seed=0)(observation)

    Args:
        run: the folder of `run offline`, `finetune`, or of a program's `jr.Run.open`; of a run with
            several trainings, the folder of one of them.

    Raises:
        CheckpointError: no run, one that has trained nothing yet, or several trainings.
    """
    stage = find_folder(run, FILE, "policy", lambda found: found.name == LAST).parent
    places = (place for place in (stage, *stage.parents) if (place / "run.json").is_file())
    folder = next(places, stage)
    history = stage / "history.jsonl"
    last = read_policy(stage / LAST)
    returns = last.facts.get("returns")
    is_run, is_reported = ((folder / name).is_file() for name in ("run.json", "report.json"))
    return LoadedRun(
        folder,
        RunFolder.open(folder).config if is_run else {},
        None if returns is None else np.asarray(returns, float),
        History(kept=history.read_text("utf-8") if history.is_file() else "", upto=sys.maxsize),
        last,
        read_policy(stage / BEST) if (stage / BEST / FILE).is_file() else None,
        load_report(folder) if is_reported else None,
    )

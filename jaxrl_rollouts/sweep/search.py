"""The search of `tune`: trials proposed by Optuna, their runs, and the results reported to it.

A trial is a run, or an arm of a run of several; the study lies in `trials.db` beside the runs, so
the same command resumes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, NamedTuple

from ..record.interrupts import StopFlag
from .here import side_by_side
from .on_ray import Resources, environment
from .plan import Task
from .tasks import KilledError, finished_report, read_status, run_task
from .trials import ARM, RUN, STATE, TOGETHER, Trials, metric_of, numbers_of


class Search(NamedTuple):
    """A study of Optuna whose trials are runs in folders beside it.

    Attributes:
        optuna: the package.
        study: storage of trials and results.
        trials: the run of each trial.
        metric: number of a run's report that trials are compared by.
        code: code named in settings that runs may import.
    """

    optuna: Any
    study: Any
    trials: Trials
    metric: str
    code: Sequence[str]

    def done(self) -> int:
        """Trials that ended by themselves."""
        return sum(STATE in trial.user_attrs for trial in self.study.trials)

    def run(self, count: int, together: int, cpus: float) -> bool:
        """Run what is missing of `count` trials; whether it was stopped on request.

        Args:
            count: trials in all.
            together: trials that are arms of one program.
            cpus: cores of a trial.
        """
        self._again()
        at_once = max(side_by_side(cpus) // together, 1)
        variables = environment(Resources(cpus=cpus * together))
        waiting: dict[Future[None], list[Any]] = {}
        with StopFlag() as stop, ThreadPoolExecutor(at_once) as pool:

            def play(task: Task) -> None:
                with suppress(KilledError):
                    run_task(str(self.trials.folder), task, self.code, variables, stop)

            while not stop.requested or waiting:
                more = count - self.done() - sum(map(len, waiting.values()))
                if not stop.requested and more > 0 and len(waiting) < at_once:
                    proposed = self.next(min(together, more))
                    waiting[pool.submit(play, self.trials.task(proposed))] = proposed
                    continue
                if not waiting:
                    break
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    future.result()
                    self.record(waiting.pop(future), stop.requested)
            return stop.requested

    def _again(self) -> None:
        """Queue the settings of trials that a kill or a Ctrl-C cut, with those of their program."""
        states = self.optuna.trial.TrialState
        for trial in self.study.trials:
            if trial.state == states.RUNNING:
                self.study.tell(trial.number, state=states.FAIL)
                beside = {TOGETHER: trial.user_attrs.get(TOGETHER, 1)}
                self.study.enqueue_trial(trial.params, user_attrs=beside)

    def next(self, most: int) -> list[Any]:
        """The trials of the next program: those of one that was cut, or `most` new ones."""
        proposed, count = [], most
        while len(proposed) < count:
            trial = self.study.ask()
            count = trial.user_attrs.get(TOGETHER, most) if not proposed else count
            self.trials.settings(trial)  # sampled now: the next one is to lie elsewhere
            trial.set_user_attr(TOGETHER, count)
            proposed.append(trial)
        return proposed

    def record(self, proposed: Sequence[Any], stopped: bool) -> None:
        """Hand results to Optuna; what was stopped is begun again another time."""
        task = self.trials.task(proposed)
        place = self.trials.folder / task.name
        report, state = finished_report(place), read_status(place)
        if report is None and stopped:
            return
        fail = self.optuna.trial.TrialState.FAIL
        for number, trial in enumerate(proposed):
            arm, value, name = number if len(proposed) > 1 else None, math.nan, self.metric
            if report:
                numbers = numbers_of(report, arm)
                name = metric_of(self.metric, numbers)
                value = numbers[name].iqm
            trial.set_user_attr(STATE, state.state)
            trial.set_user_attr(RUN, task.name)
            trial.set_user_attr(ARM, arm)
            good = math.isfinite(value)
            self.study.tell(trial, value if good else None, state=None if good else fail)
            shown = f"{name} {value:.4g}" if good else state.last
            text = " ".join(f"{k}={v}" for k, v in self.trials.settings(trial).items())
            print(f"trial {self.done()}: {text}: {shown}", file=sys.stderr, flush=True)

"""Trials of `tune`: which run one is, what it measured, and the report on all.

A trial is a run of its own in a folder named by its settings, or an arm of a run of several. The
database keeps with each trial the number of arms in its program (`together`) and, once it ended,
its `run` and its `arm` in that run.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..cli.shown import option
from ..configs import unknown
from ..reports.report import Report
from ..reports.text import write_pages
from .plan import Task, folder_name
from .tasks import finished_report

PANELS = 6  # settings in the picture, at most
RETURN, GAIN = "return", "gain"  # what a run measures with a simulator, and without one
STATE, RUN, ARM, TOGETHER = "state", "run", "arm", "together"
ARMS = "arms"  # the option, and the table of the report


class Span(NamedTuple):
    """Where a setting is searched: between two numbers, or one of some values."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    values: tuple[str, ...] = ()


def text_of(value: float, span: Span) -> str:
    """A number as it is typed."""
    return str(round(value)) if span.whole else f"{value:.6g}"


def metric_of(metric: str, known: Mapping[str, Any]) -> str:
    """Name of the number that trials are compared by: `gain` where a run has no return.

    Raises:
        ConfigError: there is no such number.
    """
    name = GAIN if metric == RETURN and RETURN not in known and GAIN in known else metric
    if name not in known:
        raise unknown("--metric", name, known)
    return name


def numbers_of(report: Report, arm: int | None) -> dict[str, Any]:
    """What a run measured, or one arm of it; statistics over seeds by name."""
    if arm is None:
        return dict(report.numbers)
    return {name: x for name, x in report.tables[ARMS][arm].items() if hasattr(x, "iqm")}


class Trials(NamedTuple):
    """Runs of trials in a folder.

    Attributes:
        folder: folder of the study.
        words: command line of every run, the experiment first.
        space: settings by name, and where they are searched.
    """

    folder: Path
    words: tuple[str, ...]
    space: Mapping[str, Span]

    def settings(self, trial: Any) -> dict[str, str]:
        """Settings of a trial, as typed."""
        found = {}
        for name, span in self.space.items():
            if span.values:
                found[name] = trial.suggest_categorical(name, span.values)
            elif span.whole:
                low, high = round(span.low), round(span.high)
                found[name] = str(trial.suggest_int(name, low, high, log=span.log))
            else:
                value = trial.suggest_float(name, span.low, span.high, log=span.log)
                found[name] = text_of(value, span)
        return found

    def task(self, trials: Sequence[Any]) -> Task:
        """The run of one trial, or of several as its arms; equal settings have one folder."""
        points = [self.settings(trial) for trial in trials]
        if len(points) == 1:
            (point,) = points
            words = [word for name, value in point.items() for word in (option(name), value)]
            label = folder_name(f"{name.rpartition('.')[2]}={v}" for name, v in point.items())
            return Task(label, point, (*self.words, *words), str(Path.cwd()))
        texts = [",".join(f"{name}={value}" for name, value in point.items()) for point in points]
        label = f"{len(points)}-arms-{hashlib.sha256(' '.join(texts).encode()).hexdigest()[:12]}"
        words = (*self.words, option(ARMS), *texts)
        return Task(label, {ARMS: " ".join(texts)}, words, str(Path.cwd()))

    def report(self, study: Any, metric: str, minimise: bool, command: str) -> Report:
        """Trials with their settings and results, best first; saved in the folder."""
        ended = [trial for trial in study.trials if STATE in trial.user_attrs]
        sign = 1 if minimise else -1
        ended.sort(key=lambda t: math.inf if t.value is None else sign * t.value)
        read = functools.cache(lambda name: finished_report(self.folder / name))
        reports = [read(t.user_attrs.get(RUN) or self.task([t]).name) for t in ended]
        seeds = max((found.seeds for found in reports if found), default=0)
        whole = Report("tuning", "", {}, command, seeds)
        rows, shown = [], metric
        for trial, report in zip(ended, reports, strict=True):
            numbers = numbers_of(report, trial.user_attrs.get(ARM)) if report else {}
            name = shown = metric_of(metric, numbers) if report else shown
            row = {"trial": trial.number, **self.settings(trial), name: numbers.get(name)}
            rows.append(row | {STATE: trial.user_attrs[STATE]})
        whole.table("trials", rows)
        if ended and ended[0].value is not None:
            self._conclude(whole, ended, reports[0], shown)
        whole.save(self.folder)
        write_pages(whole, self.folder)
        return whole

    def _conclude(
        self, whole: Report, ended: Sequence[Any], best: Report | None, metric: str
    ) -> None:
        seed = (best.config.get("seed", 0) if best else 0) + 1
        whole.conclusion.append(
            f"Best of {len(ended)} trials: {metric} {ended[0].value:.4g}, which is optimistic. "
            f"Measure it with another seed: {self.task(ended[:1]).command} --seed {seed}"
        )
        if best and metric == GAIN:  # its verdict, and the check of the estimates
            whole.conclusion += best.conclusion
        self._draw(whole, [trial for trial in ended if trial.value is not None], metric)

    def _draw(self, report: Report, ended: Sequence[Any], metric: str) -> None:
        from ..compare.draw import picture

        names = list(self.space)[:PANELS]
        caption = "Every trial: its result over each setting."
        with picture(
            report, "trials", caption, titles=names, columns=2, legend=False, height=2.4
        ) as axes:
            for ax, name in zip(axes, names, strict=True):
                ax.plot([t.params[name] for t in ended], [t.value for t in ended], "o", alpha=0.6)
                ax.set(ylabel=metric, xscale="log" if self.space[name].log else "linear")

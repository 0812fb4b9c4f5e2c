"""`jaxrl-rollouts tune`: settings searched by Optuna's tree-structured Parzen estimator.

Each trial is a run of the command line, a `Task` in a folder named by its settings; the study lies
in `trials.db` beside them, so the same command goes on where it was.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from .. import plugins
from ..cli import parsing
from ..cli.options import PROG, check_options, parse_run
from ..cli.shown import option, options, shown
from ..config_json import to_json
from ..configs import number, positive, unknown
from ..errors import ConfigError, Interrupted, MissingExtraError
from ..foreign import code_in
from ..plugins import Experiment
from ..record.files import check_contents
from ..record.interrupts import StopFlag
from ..record.lock import FolderLock
from ..reports.report import Report
from ..reports.text import print_report, write_pages
from .command import split
from .here import side_by_side
from .on_ray import Resources, environment
from .plan import Task, folder_name
from .tasks import KilledError, finished_report, read_status, run_task

DESCRIPTION = (
    "Search settings: each trial is a run, the next settings are chosen from the results so far "
    "(Optuna's TPE). Other options are those of every run. The same command again goes on; more "
    "--trials add to those there are. The best of many trials is an optimistic number: the report "
    "ends with the command that measures it with another seed."
)
PANELS = 6  # settings in the picture, at most
RETURN, GAIN = "return", "gain"  # what a run measures with a simulator, and without one


@dataclass(frozen=True)
class TuneOptions:
    """Options of `tune` that are not options of its runs."""

    vary: tuple[str, ...] = ()
    """Settings and where to look: `penalty=0.1:10:log expectile=0.6:0.9 activation=relu,swish`."""
    trials: int = positive(20)
    """Runs in all."""
    metric: str = RETURN
    """Number of the run's report, its interquartile mean over seeds. Runs without a simulator have
    no return; they are compared by `gain`, the value that `choose` estimates less the data's."""
    minimise: bool = False
    """Look for the least, and not the largest."""
    cpus: float = number(1.0, above=0)
    """Cores of a trial; as many trials run side by side as there are cores for."""
    out: Path | None = None
    """Folder, by default runs/EXPERIMENT-tuning."""


class Span(NamedTuple):
    """Where a setting is searched: between two numbers, or one of some values."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    values: tuple[str, ...] = ()


def spans(texts: Sequence[str]) -> dict[str, Span]:
    """Of `penalty=0.1:10:log`, `layers=1:4`, `activation=relu,swish`.

    Raises:
        ConfigError: a text of another form, or no number above 0 where the logarithm is meant.
    """
    found: dict[str, Span] = {}
    expected = "penalty=0.1:10, penalty=0.1:10:log or activation=relu,swish"
    for text in texts:
        name, equals, rest = text.lstrip("-").replace("_", "-").partition("=")
        parts = rest.split(":")
        if not (name and equals and rest) or name in found or len(parts) > 3:
            raise ConfigError("--vary", text, expected)
        if len(parts) == 1:
            found[name] = Span(values=tuple(dict.fromkeys(rest.split(","))))
            continue
        try:
            low, high = (float(part) for part in parts[:2])
        except ValueError:
            raise ConfigError("--vary", text, expected) from None
        log = parts[2:] == ["log"]
        if (parts[2:] and not log) or not low < high or (log and low <= 0):
            raise ConfigError("--vary", text, f"{expected}; the lower end first, above 0 for log")
        whole = all(part.lstrip("+-").isdigit() for part in parts[:2])
        found[name] = Span(low, high, log, whole)
    return found


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `tune ...`; raises `UserError` for bad input."""
    arguments = list(arguments) or ["--help"]
    first = arguments[0]
    if first.startswith("-") and first not in ("-h", "--help"):
        raise ConfigError("tune", first, "the name of an experiment before any option")
    known = list(options(shown(TuneOptions())))
    ours, theirs = split(arguments[not first.startswith("-") :], known)
    name = f"{prog} EXPERIMENT"
    made = parsing.read(
        lambda: tyro.cli(TuneOptions, args=ours, prog=name, description=DESCRIPTION), ours, prog
    )
    check_options(made)
    tune(first, made, theirs, shlex.join([PROG, "tune", *arguments]))


def tune(name: str, asked: TuneOptions, given: Sequence[str], command: str) -> None:
    """Run the trials that are missing, and report on all.

    Raises:
        ConfigError: a setting is wrong, or the metric is no number of the report.
        MissingExtraError: Optuna is not installed.
        Interrupted: stopped on request; the same command goes on.
    """
    experiment = plugins.load_experiment(name)
    space = spans(asked.vary)
    if not space:
        raise ConfigError("--vary", "nothing", "a setting to search, penalty=0.1:10:log")
    space, code = _checked(experiment, space, given)
    optuna = _optuna()
    folder = (asked.out or Path("runs") / f"{name}-tuning").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    check_contents(folder)  # the database is changed in place
    with FolderLock(folder):
        study = optuna.create_study(
            storage=f"sqlite:///{folder / 'trials.db'}",
            study_name=f"{name} {asked.metric}",
            direction="minimize" if asked.minimise else "maximize",
            load_if_exists=True,
        )
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
        search = Search(optuna, study, folder, (name, *given), space, asked, code)
        stopped = search.run()
        report = search.report(command)
    print_report(report)
    print(f"report:  {folder / 'report.html'}")
    if stopped:
        raise Interrupted(f"stopped after {search.done()} trials; go on with: {command}")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("tuning", "optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _checked(
    experiment: Experiment, space: Mapping[str, Span], given: Sequence[str]
) -> tuple[dict[str, Span], list[str]]:
    """Try the ends of every span before anything runs; the spans, and the code settings name."""
    code: set[str] = set()
    made: dict[str, Span] = {}

    def parsed(name: str, text: str) -> Any:
        _, config, _ = parse_run(experiment, [*given, option(name), text])
        check_options(config)
        return config

    for name, span in space.items():
        for value in span.values or (span.low, span.high):
            text = str(value) if span.values else _text(float(value), span)
            code |= set(code_in(to_json(parsed(name, text))))
        made[name] = span
        if span.whole:  # 1:10 of a setting that may be 2.5
            with suppress(ConfigError):
                parsed(name, f"{span.low + 0.4 * (span.high - span.low) + 0.05:.6g}")
                made[name] = span._replace(whole=False)
    plugins.check_trusted("tune", sorted(code))
    return made, sorted(code)


def _text(value: float, span: Span) -> str:
    return str(round(value)) if span.whole else f"{value:.6g}"


class Search:
    """A study of Optuna's whose trials are runs in folders beside it."""

    def __init__(
        self,
        optuna: Any,
        study: Any,
        folder: Path,
        words: Sequence[str],
        space: Mapping[str, Span],
        asked: TuneOptions,
        code: Sequence[str],
    ) -> None:
        self.optuna, self.study, self.folder, self.words = optuna, study, folder, tuple(words)
        self.space, self.asked, self.code = space, asked, code
        self.metric = asked.metric

    def done(self) -> int:
        """Trials that ended by themselves."""
        return sum("state" in trial.user_attrs for trial in self.study.trials)

    def run(self) -> bool:
        """Run what is missing, several at once; whether it was stopped on request."""
        states = self.optuna.trial.TrialState
        for trial in self.study.trials:  # cut by a kill or a Ctrl-C: the same settings again
            if trial.state == states.RUNNING:
                self.study.tell(trial.number, state=states.FAIL)
                self.study.enqueue_trial(trial.params)
        at_once = side_by_side(self.asked.cpus)
        variables = environment(Resources(cpus=self.asked.cpus))
        waiting: dict[Future[None], Any] = {}
        with StopFlag() as stop, ThreadPoolExecutor(at_once) as pool:

            def play(task: Task) -> None:
                with suppress(KilledError):
                    run_task(str(self.folder), task, self.code, variables, stop)

            while not stop.requested or waiting:
                more = self.asked.trials - self.done() - len(waiting)
                if not stop.requested and more > 0 and len(waiting) < at_once:
                    trial = self.study.ask()
                    waiting[pool.submit(play, self.task(self.suggested(trial)))] = trial
                    continue
                if not waiting:
                    break
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    future.result()
                    self.record(waiting.pop(future), stop.requested)
            return stop.requested

    def suggested(self, trial: Any) -> dict[str, str]:
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
                found[name] = _text(value, span)
        return found

    def task(self, settings: Mapping[str, str]) -> Task:
        """The run of some settings; equal settings have one folder."""
        words = [word for name, value in settings.items() for word in (option(name), value)]
        label = folder_name(f"{name.rpartition('.')[2]}={v}" for name, v in settings.items())
        return Task(label, dict(settings), (*self.words, *words), str(Path.cwd()))

    def record(self, trial: Any, stopped: bool) -> None:
        """Hand a trial's result to Optuna; one that was stopped is begun again another time."""
        task = self.task(self.suggested(trial))
        place = self.folder / task.name
        report, state = finished_report(place), read_status(place)
        if report is None and stopped:
            return
        value = report.numbers[self.metric_of(report)].iqm if report else math.nan
        trial.set_user_attr("state", state.state)
        good = math.isfinite(value)
        fail = self.optuna.trial.TrialState.FAIL
        self.study.tell(trial, value if good else None, state=None if good else fail)
        shown_value = f"{self.metric} {value:.4g}" if good else state.last
        print(f"trial {self.done()}: {task.name}: {shown_value}", file=sys.stderr, flush=True)

    def metric_of(self, report: Report) -> str:
        """Name of the number that trials are compared by.

        Raises:
            ConfigError: the report has no such number.
        """
        known = report.numbers
        if self.metric == RETURN and RETURN not in known and GAIN in known:
            self.metric = GAIN
        if self.metric not in known:
            raise unknown("--metric", self.metric, known)
        return self.metric

    def report(self, command: str) -> Report:
        """Trials with their settings and results, best first; saved in the folder."""
        ended = [trial for trial in self.study.trials if "state" in trial.user_attrs]
        sign = 1 if self.asked.minimise else -1
        ended.sort(key=lambda t: math.inf if t.value is None else sign * t.value)
        runs = {trial.number: self.task(self.suggested(trial)) for trial in ended}
        reports = {n: finished_report(self.folder / task.name) for n, task in runs.items()}
        seeds = max((found.seeds for found in reports.values() if found), default=0)
        whole = Report("tuning", "", {}, command, seeds)
        rows = []
        for trial in ended:
            report, row = reports[trial.number], {"trial": trial.number, **runs[trial.number].point}
            name = self.metric_of(report) if report else self.metric
            row[name] = report.numbers[name] if report else None
            rows.append(row | {"state": trial.user_attrs["state"]})
        whole.table("trials", rows)
        if ended and ended[0].value is not None:
            task, best = runs[ended[0].number], reports[ended[0].number]
            seed = (best.config.get("seed", 0) if best else 0) + 1
            whole.conclusion.append(
                f"Best of {len(ended)} trials: {self.metric} {ended[0].value:.4g}, which is "
                f"optimistic. Measure it with another seed: {task.command} --seed {seed}"
            )
            if best and self.metric == GAIN:  # its verdict, and the check of the estimates
                whole.conclusion += best.conclusion
            self._draw(whole, [trial for trial in ended if trial.value is not None])
        whole.save(self.folder)
        write_pages(whole, self.folder)
        return whole

    def _draw(self, report: Report, ended: Sequence[Any]) -> None:
        from ..compare.draw import picture

        names = list(self.space)[:PANELS]
        caption = "Every trial: its result over each setting."
        with picture(
            report, "trials", caption, titles=names, columns=2, legend=False, height=2.4
        ) as axes:
            for ax, name in zip(axes, names, strict=True):
                ax.plot([t.params[name] for t in ended], [t.value for t in ended], "o", alpha=0.6)
                ax.set(ylabel=self.metric, xscale="log" if self.space[name].log else "linear")

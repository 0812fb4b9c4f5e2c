"""`jaxrl-rollouts tune`: settings searched by Optuna's tree-structured Parzen estimator.

What a trial is and how it is run: `search`.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .. import plugins
from ..cli import parsing
from ..cli.options import PROG, check_options, parse_run
from ..cli.shown import option, options, shown
from ..config_json import to_json
from ..configs import number, positive
from ..errors import ConfigError, Interrupted, MissingExtraError
from ..foreign import code_in
from ..plugins import Experiment
from ..record.files import check_contents
from ..record.lock import FolderLock
from ..reports.text import print_report
from .command import split
from .search import Search
from .trials import RETURN, Span, Trials, text_of

DESCRIPTION = (
    "Search settings: each trial is a run, the next settings are chosen from the results so far "
    "(Optuna's TPE). Other options are those of every run. The same command resumes; more "
    "--trials add to those there are. The best of many trials is an optimistic number: the report "
    "ends with the command that measures it with another seed."
)


@dataclass(frozen=True)
class TuneOptions:
    """Options of `tune` that are not options of its runs."""

    vary: tuple[str, ...] = ()
    """Settings and where to look: `penalty=0.1:10:log expectile=0.6:0.9 activation=relu,swish`."""
    trials: int = positive(20)
    """How many in all."""
    metric: str = RETURN
    """Number of the run's report, its interquartile mean over seeds. Runs without a simulator have
    no return; they are compared by `gain`, the value that `choose` estimates less the data's."""
    minimise: bool = False
    """Look for the least, and not the largest."""
    cpus: float = number(1.0, above=0)
    """Cores of a trial; as many trials run side by side as there are cores for."""
    parallel: int = positive(4)
    """Trials trained side by side in one program, as arms of it, where the experiment can do so:
    of `offline`, where --vary names coefficients of the method and nothing else. 1: never."""
    out: Path | None = None
    """Folder, by default runs/EXPERIMENT-tuning."""


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
        Interrupted: stopped on request; the same command resumes.
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
        # A trial that runs counts as a bad one: those beside it are tried elsewhere.
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), constant_liar=True)
        trials = Trials(folder, (name, *given), space)
        together = _together(experiment, asked, space, given)
        search = Search(optuna, study, trials, asked.metric, code)
        stopped = search.run(asked.trials, together, asked.cpus)
        report = trials.report(study, asked.metric, asked.minimise, command)
    print_report(report)
    print(f"report:  {folder / 'report.html'}")
    if stopped:
        raise Interrupted(f"stopped after {search.done()} trials; resume with: {command}")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("tuning", "optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
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
            text = str(value) if span.values else text_of(float(value), span)
            code |= set(code_in(to_json(parsed(name, text))))
        made[name] = span
        if span.whole:  # 1:10 of a setting that may be 2.5
            with suppress(ConfigError):
                parsed(name, f"{span.low + 0.4 * (span.high - span.low) + 0.05:.6g}")
                made[name] = span._replace(whole=False)
    plugins.check_trusted("tune", sorted(code))
    return made, sorted(code)


def _together(
    experiment: Experiment, asked: TuneOptions, space: Mapping[str, Span], given: Sequence[str]
) -> int:
    """How many trials are arms of one program; also printed."""
    _, config, _ = parse_run(experiment, given)
    known = experiment.sweepable(config)
    others = [name for name in space if name.replace("-", "_") not in known]
    if asked.parallel == 1:
        return 1
    note = f"up to {asked.parallel} trials are arms of one program"
    if others:
        note = f"{others[0]} cannot vary inside a program: each trial is a program of its own"
    print(f"note: {note}", file=sys.stderr)
    return 1 if others else asked.parallel

"""`jaxrl-rollouts compare RUN...`: finished runs in one table and one picture."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import Command

if TYPE_CHECKING:
    from jaxrl_rollouts.reports.report import Report

SETTINGS = 10  # columns of settings that differ, at most
# Settings that have columns of their own, or say nothing of what was trained.
SHOWN = ("dataset", "file", "episodes", "evaluations")
# Columns of a run's results, where it has them; others come after.
FIRST = ("dataset", "method", "return", "score", "true value", "estimated value", "imagined value")
# Under the table, where runs have such columns.
WORDS = {
    "true value": "discounted return",
    "estimated value": "of the critics at the start states",
    "imagined value": "of the last policies in their world models",
    "spread of members": "deviation of the imagined value over members of the world model",
    "time constants": "n tau (1 - discount) after n gradient steps; from 3 on values have settled",
}


def compare(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    episodes: int = 0,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Put finished runs side by side: results, time, and the settings that differ.

    Args:
        runs: folders of finished runs, of any experiment.
        episodes: also play the policies afresh, so many whole episodes of each training seed, all
            runs from the same start states where they play in the same environment.
        seed: seed of those episodes.
        out: also write table and picture to this .html file.
    """
    from jaxrl_rollouts.reports.text import print_report, report_html

    if len(runs) < 2:
        raise ConfigError("runs", " ".join(map(str, runs)) or "none", "at least two run folders")
    if out is not None and (out.suffix != ".html" or not out.parent.is_dir()):
        raise ConfigError("--out", str(out), "a file name that ends in .html, in a folder there is")
    report = compared(runs, episodes, seed)
    print_report(report)
    if out is not None:
        with tempfile.TemporaryDirectory() as folder:
            report.save(folder)
            out.write_text(report_html(report, Path(folder)), encoding="utf-8")
        print(f"table: {out}")


def compared(runs: Sequence[Path], episodes: int = 0, seed: int = 0) -> Report:
    """One report on several runs: a row for each, and a picture of their training.

    Args:
        runs: folders with a `report.json`.
        episodes: played afresh, of each training seed; 0 for none.
        seed: seed of those.

    Raises:
        CheckpointError: a folder holds no finished run, or no policy though `episodes` are set.
    """
    from jaxrl_rollouts.reports.report import Report, load_report

    reports = {name: load_report(run) for name, run in zip(labels(runs), runs, strict=True)}
    configs = {name: flat(report.config) for name, report in reports.items()}
    settings, more = differing(configs)
    fresh = f" --episodes {episodes} --seed {seed}" * bool(episodes)
    whole = Report(
        experiment="compare",
        preset=", ".join(dict.fromkeys(report.preset for report in reports.values())),
        config={},
        command="jaxrl-rollouts compare " + " ".join(map(str, runs)) + fresh,
        seeds=max(report.seeds for report in reports.values()),
        wall_seconds=sum(report.wall_seconds for report in reports.values()),
        compile_seconds=sum(report.compile_seconds for report in reports.values()),
    )
    rows = []
    for run, (name, report) in zip(runs, reports.items(), strict=True):
        row = {"run": name, **measured(report)}
        if episodes:
            row[f"return, {episodes} fresh episodes"] = _played(run, episodes, seed)
        row |= {"seeds": report.seeds, "minutes": report.wall_seconds / 60}
        # What was measured is written once: a fine-tuned run has a method, and no setting of one.
        rows.append(row | {key: x for key, x in settings[name].items() if key not in row})
    words = [f"{k.capitalize()}: {x}." for k, x in WORDS.items() if any(k in row for row in rows)]
    whole.table("runs", rows, " ".join(words))
    if more:
        whole.note(f"Settings that differ as well: {', '.join(more)}.")
    for name, report in reports.items():
        if report.conclusion:
            whole.note(f"{name}: {report.conclusion[0]}")
    # A fine-tuning counts steps in its simulator.
    steps = {n: found.get("method.steps", found.get("steps")) for n, found in configs.items()}
    _draw(whole, dict(zip(reports, runs, strict=True)), steps)
    return whole


def labels(runs: Sequence[Path]) -> list[str]:
    """Names of folders; with what is above them where two have the same.

    Raises:
        ConfigError: a run is named twice.
    """
    paths = [run.resolve() for run in runs]
    if len(set(paths)) < len(paths):
        twice = next(run for run in runs if paths.count(run.resolve()) > 1)
        raise ConfigError("runs", f"{twice} twice", "each run once")
    depth = 1
    while len({p.parts[-depth:] for p in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def measured(report: Report) -> dict[str, Any]:
    """Dataset and method, every number of a report, and what its row of results has besides."""
    last = report.tables.get("result", [{}])[-1]
    clock = report.tables.get("clock", [{}])[-1]
    found = {**last, **report.numbers}
    known: dict[str, Any] = {name: found.pop(name) for name in FIRST if name in found} | found
    late = clock.get("time constants")
    return known | ({} if late is None else {"time constants": late})


def flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings by dotted name. The name of a method or an agent is no part of it: `{"mopo": {}}`
    and `{"ravl": {}}` have the same settings where they share them."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and len(value) == 1 and _is_chosen(value):
            ((kind, own),) = value.items()
            leaves |= {name: kind} | flat(own, name)
        elif isinstance(value, Mapping):
            leaves |= flat(value, name)
        else:
            leaves[name] = value
    return leaves


def _is_chosen(value: Mapping[str, Any]) -> bool:
    return isinstance(next(iter(value.values())), Mapping)


def differing(runs: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Settings of every run that differ between those that have them, and names of the rest."""
    names = dict.fromkeys(name for found in runs.values() for name in found)
    apart = [
        name
        for name in names
        if name.partition(".")[0] not in SHOWN
        and len({repr(found[name]) for found in runs.values() if name in found}) > 1
    ]
    first, rest = apart[:SETTINGS], apart[SETTINGS:]
    return {run: {n: _text(found.get(n)) for n in first} for run, found in runs.items()}, rest


def _text(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _played(run: Path, episodes: int, seed: int) -> Any:
    """Mean returns `[seeds]` of a run's policies, in the environment of their training."""
    from .acting_commands import environment_of, finite, play
    from .saved_policies import read_policy

    saved = read_policy(run)
    played = play(saved, environment_of(saved, ""), finite(saved), episodes, seed)
    return played.returns.mean(1)


def _draw(report: Report, runs: Mapping[str, Path], steps: Mapping[str, int | None]) -> None:
    """Return, or else estimated value, while training: a line per run."""
    import numpy as np

    from jaxrl_rollouts.compare.draw import picture
    from jaxrl_rollouts.reports.pictures import curve_with_band
    from jaxrl_rollouts.sweep.table import evaluations

    curves = {name: list(evaluations(run, steps[name])) for name, run in runs.items()}
    known = {metric for found in curves.values() for _, metrics in found for metric in metrics}
    metric = next((m for m in ("return", "estimated_value") if m in known), None)
    if metric is None:
        return
    caption = "Lines: interquartile mean over seeds; bands: their spread."
    with picture(report, "training", caption, width=6.4) as (ax,):
        for name, found in curves.items():
            points = [(step, metrics[metric]) for step, metrics in found if metric in metrics]
            if points:
                at, values = zip(*points, strict=True)
                curve_with_band(ax, at, np.transpose(values), name)
        ax.set(xlabel="steps", ylabel=metric.replace("_", " "))


def _main(arguments: Sequence[str], prog: str) -> None:
    call(compare, arguments or ["--help"], prog)


COMPARE = Command("compare", "Compare finished runs in one table and one picture.", _main)

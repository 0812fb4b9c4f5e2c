"""One report on all runs of a sweep, made of theirs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..reports.report import Report
from ..reports.text import write_pages
from .plan import Plan, Task
from .tasks import DIVERGED, FINISHED, Status, finished_report, read_status, run_folder

PANELS = 6  # datasets in a picture, at most


def collect(folder: Path, plan: Plan) -> Report:
    """Collect the reports of a plan's tasks into one, and save it in the sweep's folder.

    Seeds of the same dataset and method stand together in a row. One that diverged is NaN there,
    since the mean of the others would hide it; other failures and what is not finished are counted.
    """
    found = {task.name: finished_report(folder / task.name) for task in plan.tasks}
    status = {task.name: _status(folder, task, found[task.name]) for task in plan.tasks}
    reports = [report for report in found.values() if report is not None]
    merged = Report(
        experiment=f"{plan.experiment}-sweep",
        preset=", ".join(sorted({report.preset for report in reports})),
        config={"tasks": [{"name": t.name, "command": t.command} for t in plan.tasks]},
        command="\n".join(plan.commands),
        seeds=0,
        versions=dict(reports[0].versions) if reports else {},
        wall_seconds=sum(report.wall_seconds for report in reports),
        compile_seconds=sum(report.compile_seconds for report in reports),
    )
    arms = arms_of(plan.tasks)
    rows = [arm_row(tasks, found, status) for tasks in arms]
    merged.seeds = max((_seeds(tasks, found) for tasks in arms), default=0)
    merged.table("result", rows)
    merged.table("tasks", [task_row(folder, t, found[t.name], status[t.name]) for t in plan.tasks])
    _draw(merged, arms, rows)
    for note in _notes(reports, status.values()):
        merged.note(note)
    merged.save(folder)
    write_pages(merged, folder)
    return merged


def _status(folder: Path, task: Task, report: Report | None) -> Status:
    status = read_status(folder / task.name)
    return Status(FINISHED, status.attempts) if report is not None else status


def arms_of(tasks: Iterable[Task]) -> list[list[Task]]:
    """Tasks that differ in nothing but the seed, together."""
    arms: dict[tuple, list[Task]] = {}
    for task in tasks:
        arms.setdefault(tuple(_arm(task).items()), []).append(task)
    return list(arms.values())


def _arm(task: Task) -> dict[str, Any]:
    return {axis: value for axis, value in task.point.items() if axis != "seed"}


def arm_row(
    tasks: Sequence[Task], found: Mapping[str, Report | None], status: Mapping[str, Status]
) -> dict[str, Any]:
    """Dataset and method, how many runs are finished, and every number over the seeds."""
    reports = [found[task.name] for task in tasks]
    names = dict.fromkeys(name for report in reports if report for name in report.numbers)
    row: dict[str, Any] = _arm(tasks[0])
    data = {r.tables["result"][0].get("return") for r in reports if r and r.tables.get("result")}
    if len(data) == 1 and isinstance(earned := data.pop(), float):
        row["return of the data"] = earned
    row["finished"] = f"{sum(report is not None for report in reports)} of {len(tasks)}"
    for name in names:
        units = {r.numbers[name].unit for r in reports if r is not None and name in r.numbers}
        known = [np.asarray(r.numbers[name].values) for r in reports if r and name in r.numbers]
        if len({values.shape[1:] for values in known}) > 1:
            continue  # of different tasks: no mean over seeds
        missing = [
            np.full((1, *known[0].shape[1:]), np.nan)
            for task in tasks
            if status[task.name].state == DIVERGED
        ]
        unit = f" [{units.pop()}]" if len(units) == 1 and "" not in units else ""
        row[name + unit] = np.concatenate([*known, *missing])
    return row


def task_row(folder: Path, task: Task, report: Report | None, status: Status) -> dict[str, Any]:
    """How a task went, and where its run is."""
    row: dict[str, Any] = {"task": task.name, "state": status.state, "attempts": status.attempts}
    row["seconds"] = round(report.wall_seconds, 1) if report else None
    held = sum(claim.holds for claim in report.claims) if report else 0
    row["claims that hold"] = f"{held} of {len(report.claims)}" if report else None
    run = run_folder(folder / task.name)
    row["run"] = os.path.relpath(run, folder) if run else None
    return row | {"last line": status.last or None}


def _seeds(tasks: Sequence[Task], found: Mapping[str, Report | None]) -> int:
    return sum(report.seeds for task in tasks if (report := found[task.name]) is not None)


def _draw(merged: Report, arms: Sequence[Sequence[Task]], rows: Sequence[Mapping]) -> None:
    """The first number of every method, a panel per dataset."""
    from ..compare.draw import picture
    from ..reports.pictures import intervals
    from ..reports.statistics import spread_name

    names = [name for name, value in merged_numbers(rows)]
    if not names:
        return
    name, panels = names[0], {}
    for tasks, row in zip(arms, rows, strict=True):
        if name in row:
            point = _arm(tasks[0])
            parts = [str(point.get("method", ""))]
            own = {k: v for k, v in point.items() if k not in ("dataset", "method")}
            parts += [f"{name.rpartition('.')[2]} {value}" for name, value in own.items()]
            label = " ".join(filter(None, parts)) or merged.experiment
            panels.setdefault(str(point.get("dataset", "")), {})[label] = row[name]
    titles = list(panels)[:PANELS]
    caption = f"Bars: {spread_name(merged.seeds)} of the interquartile mean; dots: seeds."
    with picture(
        merged, "result", caption, titles=titles, columns=2, legend=False, height=2.0
    ) as axes:
        for ax, title in zip(axes, titles, strict=True):
            intervals(ax, panels[title], xlabel=name)


def merged_numbers(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, np.ndarray]]:
    """The columns of arm rows that are numbers over seeds."""
    return [(k, v) for row in rows for k, v in row.items() if isinstance(v, np.ndarray)]


def _notes(reports: Sequence[Report], states: Iterable[Status]) -> list[str]:
    counted = Counter(status.state for status in states)
    shares = ", ".join(f"{count} {state}" for state, count in counted.most_common())
    notes = [f"Tasks: {shares}. Seconds are those of all of them, one after the other."]
    for key in ("jaxrl-rollouts", "jax", "cpu", "device"):
        values = {str(report.versions.get(key)) for report in reports}
        if len(values) > 1:
            notes.append(f"Runs differ in {key}: {', '.join(sorted(values))}.")
    return notes

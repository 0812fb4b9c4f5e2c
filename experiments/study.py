"""A study: one file that says what is asked, what is run and what would answer it.

python -m jaxrl_rollouts.experiments.study experiments/studies/ravl_mujoco.toml --out runs/ravl

Every arm is an ordinary run of the command line in a folder of its own (a task of `sweep`), so that
a study goes on where it was cut. What it leaves is a table, `NAME.csv`, a row for every number that
an evaluation recorded, and a page of that table: no number is typed by hand.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.config_json import read
from jaxrl_rollouts.record.provenance import current_versions
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.statistics import iqm
from jaxrl_rollouts.sweep.plan import Task, folder_name
from jaxrl_rollouts.sweep.tasks import finished_report, run_folder, run_task

LOOKS = 5  # the last evaluations, whose mean is read: returns swing
RECORDED = ("return", "discounted_return", "estimated_value")
COLUMNS: tuple[str, ...] = (
    "dataset",
    "sha256",
    "arm",
    "seed",
    "step",
    "metric",
    "value",
    "version",
)
Arm = Mapping[str, np.ndarray]  # metric -> [seeds, looks]

MEASURES: Mapping[str, Callable[[Arm], np.ndarray]] = {
    "return": lambda arm: late(arm, "return"),
    "true_value": lambda arm: late(arm, "discounted_return"),
    "overpromised": lambda arm: late(arm, "estimated_value") - late(arm, "discounted_return"),
    "promised_to_earned": lambda arm: (
        late(arm, "estimated_value") / np.maximum(late(arm, "discounted_return"), 1.0)
    ),
}


@dataclass(frozen=True)
class Question:
    """A claim: what is said, the measure that decides, and the bound.

    Attributes:
        says: in words.
        of: one of `MEASURES`.
        where: whose; of several arms of a method the one with the highest return.
        minus: whose is taken off.
        at_least, at_most: the bound.
        fixed: whether the bound was fixed `before` the runs or `after` (then it is exploratory).
    """

    says: str
    of: str
    where: Mapping[str, Any]
    minus: Mapping[str, Any] = field(default_factory=dict)
    at_least: float | None = None
    at_most: float | None = None
    fixed: str = "before"


@dataclass(frozen=True)
class Study:
    """A study's file; `axes` are options of the job, a method's own in a table of its name."""

    question: str
    paper: str
    job: str
    preset: str
    seeds: int
    axes: Mapping[str, Any]
    claims: tuple[Question, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def points(self) -> Iterator[dict[str, Any]]:
        """Every arm as options."""
        shared = {k: v for k, v in self.axes.items() if not isinstance(v, Mapping)}
        for values in itertools.product(*shared.values()):
            point = dict(zip(shared, values, strict=True))
            own = self.axes.get(point.get("method", ""), {})
            for more in itertools.product(*own.values()):
                yield point | dict(zip(own, more, strict=True))

    def tasks(self) -> Iterator[Task]:
        for point in self.points():
            said = {**self.options, **point, "preset": self.preset, "seeds": self.seeds}
            words = [w for k, v in said.items() for w in (f"--{k.replace('_', '-')}", str(v))]
            name = folder_name(point.values())
            yield Task(name, point, (self.job, *words, "--no-progress"), str(Path.cwd()))


def rows_of(folder: Path, task: Task) -> Iterator[dict[str, Any]]:
    """What the evaluations of an arm recorded, a row for every number."""
    run = run_folder(folder / task.name)
    if run is None:
        return
    facts = json.loads((run / "run.json").read_text())
    sha = next(iter(facts.get("data", {}).values()), {}).get("sha256", "")[:12]
    arm = " ".join(f"{k}={v}" for k, v in task.point.items() if k != "dataset")
    for history in sorted(run.glob("*/history.jsonl")):
        for record in map(json.loads, history.read_text().splitlines()):
            for metric in RECORDED:
                for seed, value in enumerate(record["metrics"].get(metric, [])):
                    yield {
                        "dataset": task.point["dataset"], "sha256": sha, "arm": arm, "seed": seed,
                        "step": record["iteration"], "metric": metric, "value": f"{value:.6g}",
                        "version": current_versions()["jaxrl-rollouts"],
                    }  # fmt: skip


def arms_of(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Arm]:
    """Curves `[seeds, looks]` by dataset and arm."""
    found: dict[tuple[str, str], dict[str, dict[tuple[int, int], float]]] = {}
    for row in rows:
        arm = found.setdefault((row["dataset"], row["arm"]), {})
        at = int(row["seed"]), int(row["step"])
        arm.setdefault(row["metric"], {})[at] = float(row["value"])
    return {
        key: {name: curve(points) for name, points in arm.items()} for key, arm in found.items()
    }


def curve(points: Mapping[tuple[int, int], float]) -> np.ndarray:
    seeds, steps = (sorted({at[i] for at in points}) for i in (0, 1))
    return np.array([[points[seed, step] for step in steps] for seed in seeds])


def late(arm: Arm, metric: str) -> np.ndarray:
    return arm[metric][:, -LOOKS:].mean(1)


def chosen(
    arms: Mapping[tuple[str, str], Arm], dataset: str, where: Mapping[str, Any]
) -> Arm | None:
    """The arm with all of these options; of several the one that earned most."""
    asked = {f"{k}={v}" for k, v in where.items()}
    fits = [a for (d, name), a in arms.items() if d == dataset and asked <= set(name.split())]
    return max(fits, key=lambda arm: iqm(late(arm, "return")), default=None)


def judged(study: Study, arms: Mapping[tuple[str, str], Arm]) -> Iterator[tuple[str, Claim, str]]:
    """Every claim on every dataset that has its arms."""
    for question, dataset in itertools.product(study.claims, dict.fromkeys(d for d, _ in arms)):
        ours, theirs = (chosen(arms, dataset, w) for w in (question.where, question.minus))
        if ours is None or (question.minus and theirs is None):
            continue
        values = MEASURES[question.of](ours)
        values = values - MEASURES[question.of](theirs) if question.minus and theirs else values
        bounds = question.at_least, question.at_most
        claim = Claim(question.says, study.paper, question.of, tuple(values.tolist()), *bounds)
        yield dataset, claim, question.fixed


def page(study: Study, arms: Mapping[tuple[str, str], Arm]) -> str:
    """Question, table, claims."""
    lines = [f"# {study.question}", "", f"{study.paper} · preset {study.preset}", ""]
    lines += ["| dataset | arm | return (n) | promised | true value |", "|---|---|--:|--:|--:|"]
    for (dataset, name), arm in arms.items():
        cells = [f"{iqm(late(arm, 'return')):.4g} ({len(arm['return'])})"]
        cells += [
            f"{iqm(late(arm, m)):.4g}" for m in ("estimated_value", "discounted_return") if m in arm
        ]
        lines.append(f"| {dataset} | {name} | {' | '.join(cells)} |")
    lines += ["", "| claim | dataset | measured | bound | verdict |", "|---|---|--:|--:|---|"]
    for dataset, claim, fixed in judged(study, arms):
        bound = f"at least {claim.low:g}" if claim.low is not None else f"at most {claim.high:g}"
        verdict = ("holds" if claim.holds else "fails") + (
            " (exploratory)" if fixed == "after" else ""
        )
        lines.append(f"| {claim.name} | {dataset} | {claim.measured:.4g} | {bound} | {verdict} |")
    return "\n".join(lines) + "\n"


def main(file: Path, out: Path) -> None:
    data = tomllib.loads(file.read_text("utf-8"))
    study, table = read(Study, data, str(file)), out / f"{file.stem}.csv"
    for task in study.tasks():
        if finished_report(out / task.name) is None:
            print(task.name, run_task(str(out.absolute()), task).state, flush=True)
    rows = [row for task in study.tasks() for row in rows_of(out, task)]
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    (out / f"{file.stem}.md").write_text(text := page(study, arms_of(rows)), "utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[3] if len(sys.argv) > 3 else "runs/study"))

"""A suite of two methods and two datasets, and finished runs of its cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_rollouts.reports.report import Report

TEXT = """
question = "Which method earns most?"
job = "offline"
seeds = 2
last = 2
reference = "bc"
datasets = ["d-one", "d-two"]

[options]
steps = 100

[methods.bc]
title = "BC"

[methods.mopo_wide]
title = "MOPO"
method = "mopo"
penalty = 5.0
"agent.hidden_dims" = [64, 64]
"""


def run_in(folder: Path, cell: Any, returns: list[list[float]], shift: float = 0.0) -> Path:
    """A finished run's folder, as the command line leaves it: `[evaluations][seeds]` returns."""
    run = folder / cell.task(Path()).name / "offline-1"
    (run / "stage").mkdir(parents=True)
    (run / "world").mkdir()
    (run / "world" / "history.jsonl").write_text('{"iteration": 3, "metrics": {"loss": [1.0]}}\n')
    lines = []
    for number, row in enumerate(returns, start=1):
        metrics = {
            "return": row,
            "discounted_return": [r / 10 for r in row],
            "estimated_value": [r / 10 + shift for r in row],
        }
        lines.append(json.dumps({"iteration": 2 * number, "metrics": metrics}))
    (run / "stage" / "history.jsonl").write_text("\n".join(lines) + "\n")
    facts = {"data": {"dataset": {"sha256": "ab" * 32}}, "versions": {"commit": "c" * 40}}
    (run / "run.json").write_text(json.dumps(facts))
    report = Report("offline", "small", {}, "jaxrl-rollouts run offline", len(returns[0]), {})
    report.wall_seconds = 61.0
    if cell.method != "bc" or len(returns) == 4:
        report.number("imagined value", np.array(returns[-1]) / 5)
    report.save(run)
    return run


def score(dataset: str, value: float) -> float | None:
    return value / 2 if dataset == "d-one" else None

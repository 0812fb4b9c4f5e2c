"""`tune` with trials as arms of one program: each is the run with its settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli.main import dispatch
from jaxrl_rollouts.reports.report import load_report
from jaxrl_rollouts.sweep import search
from jaxrl_rollouts.sweep.plan import Task
from jaxrl_rollouts.sweep.tasks import FINISHED, Status, run_folder, write_status
from jaxrl_rollouts.sweep.tune import TuneOptions, tune

GIVEN = "--method iql --preset smoke --hidden-dims 8 --steps 40 --evaluations 1".split()  # noqa: SIM905


def test_trials_side_by_side_are_single_runs(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("optuna")

    def run_task(root: str, task: Task, *_: Any, **__: Any) -> Status:
        folder = Path(root) / task.name
        dispatch(["run", *task.arguments, "--out", str(folder)])
        return write_status(folder, Status(FINISHED, 1))

    monkeypatch.setattr(search, "run_task", run_task)
    vary = ("expectile=0.55:0.95", "beta=0.5:10:log")
    tune("offline", TuneOptions(vary, 3, out=tmp_path / "tuning"), GIVEN, "tune")
    report = load_report(tmp_path / "tuning")
    rows = report.tables["trials"]
    assert len(rows) == 3 and len({row["return"].iqm for row in rows}) == 3
    for row in rows[:2]:
        alone = tmp_path / str(row["trial"])
        options = ["--expectile", row["expectile"], "--beta", row["beta"], "--out", str(alone)]
        dispatch(["run", "offline", *GIVEN, *options])
        single = load_report(run_folder(alone) or alone)
        assert row["return"].values == pytest.approx(single.numbers["return"].values, rel=1e-3)
    (arms,) = (load_report(run) for run in (tmp_path / "tuning").glob("3-arms-*/*/"))
    assert arms.seeds == 2 and [row["policies"] for row in arms.tables["arms"]] == [
        "0 to 1",
        "2 to 3",
        "4 to 5",
    ]

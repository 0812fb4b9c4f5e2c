"""`compare`: a row for every run, and the settings that differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.compare_command import compare, compared, differing, flat, labels
from jaxrl_rollouts.reports.report import Report


def finished(folder: Path, method: str, returns: tuple[float, ...], **own: object) -> Path:
    """A run's folder as far as `compare` reads it: report, and one evaluation of two."""
    settings = {"steps": 100, "agent": {"sac": {"lr": 0.1}}, **own}
    config = {"dataset": "logs.hdf5", "seed": 0, "method": {method: settings}}
    report = Report("offline", "small", config, "", len(returns), {"jax": "0"}, wall_seconds=120.0)
    report.number("return", returns)
    row = {"score": np.array(returns) / 10, "true value": np.array(returns) / 2}
    report.table("result", [{"dataset": "logs", "method": method, **row}])
    report.conclusion.append(f"Use it: {method}.")
    report.save(folder)
    stage = folder / "logs-agent"
    stage.mkdir()
    lines = [{"iteration": i, "metrics": {"return": [i * r for r in returns]}} for i in (1, 2)]
    (stage / "history.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
    return folder


def test_runs_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = finished(tmp_path / "a", "mopo", (10.0, 20.0), penalty=1.0)
    two = finished(tmp_path / "b", "mopo", (30.0, 50.0), penalty=5.0)
    report = compared([one, two])
    rows = report.tables["runs"]
    assert [row["run"] for row in rows] == ["a", "b"]
    assert [row["return"].iqm for row in rows] == [15.0, 40.0]
    assert [row["score"].iqm for row in rows] == [1.5, 4.0]
    assert [row["method.penalty"] for row in rows] == [1.0, 5.0]
    assert [row["minutes"] for row in rows] == [2.0, 2.0]
    assert "method.agent.lr" not in rows[0]
    assert report.explained["runs"] == "True value: discounted return.", "columns there are"
    (axes,) = report.pictures["training"].figure.axes
    steps, values = axes.lines[1].get_data()
    assert list(steps) == [50, 100] and list(values) == [40.0, 80.0]
    compare((one, two), out=tmp_path / "table.html")
    assert "Use it: mopo." in capsys.readouterr().out
    page = (tmp_path / "table.html").read_text("utf-8")
    assert "data:image/png" in page and "method.penalty" in page


def test_a_run_without_a_setting_keeps_what_was_measured(tmp_path: Path) -> None:
    """Of three runs two have a method among their settings; the third was fine-tuned."""
    runs = [finished(tmp_path / name, name, (1.0, 2.0)) for name in ("mopo", "iql", "tuned")]
    report = json.loads((runs[2] / "report.json").read_text("utf-8"))
    report = report | {"config": {"start": "runs/iql", "steps": 100}}
    del report["digest"]
    (runs[2] / "report.json").write_text(json.dumps(report), "utf-8")
    rows = compared(runs).tables["runs"]
    assert [row["method"] for row in rows] == ["mopo", "iql", "tuned"]
    assert "method.agent" not in rows[0], "the same in all that have it"


def test_settings_that_differ_are_those_that_several_have() -> None:
    runs = {
        "a": flat({"method": {"mopo": {"penalty": 1, "steps": 5, "agent": {"sac": {"lr": 1}}}}}),
        "b": flat({"method": {"iql": {"expectile": 0.7, "steps": 9, "agent": {"iql": {"lr": 1}}}}}),
    }
    found, more = differing(runs)
    assert found["a"] == {"method": "mopo", "method.steps": 5, "method.agent": "sac"}
    assert found["b"] == {"method": "iql", "method.steps": 9, "method.agent": "iql"}
    assert more == []


def test_equal_names_of_folders_have_what_is_above_them() -> None:
    assert labels([Path("/x/a/run"), Path("/x/b/run")]) == ["a/run", "b/run"]
    with pytest.raises(ConfigError, match="twice"):
        labels([Path("/x/a"), Path("/x/b/../a")])


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = finished(tmp_path / "a", "mopo", (10.0, 20.0))
    with pytest.raises(ConfigError, match="at least two"):
        compare((one,))
    with pytest.raises(CheckpointError, match="b"):
        compare((one, tmp_path / "b"))
    with pytest.raises(ConfigError, match="html"):
        compare((one, one), out=tmp_path / "x.txt")

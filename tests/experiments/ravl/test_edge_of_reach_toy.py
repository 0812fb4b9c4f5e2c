"""The edge of reach as an experiment: settings, and a run from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy import EXPERIMENT, RUNS, Config
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="evaluations"):
        check(Config(epochs=10, evaluations=3))
    with pytest.raises(ConfigError, match="rows"):
        check(Config(rows=0))
    for preset in EXPERIMENT.presets.values():
        check(preset)
    assert EXPERIMENT.preset("cpu").seeds >= 5


@pytest.mark.slow
def test_smoke_run_reports_and_redraws(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, EXPERIMENT.name, "smoke", config, "command")
    context = RunContext(folder, progress=False)
    report = EXPERIMENT.run(config, context)
    report.save(folder.path)
    loaded = load_report(folder.path)
    rows = loaded.tables["after training"]
    assert [(r["method"], r["dynamics"]) for r in rows] == [p for p in RUNS if p[1] == "true"]
    assert {"reach", "training", "spread", "q_maps"} == set(loaded.pictures)
    for picture in loaded.pictures.values():
        assert (folder.path / picture.file).stat().st_size > 5000
    failing = {c.name for c in loaded.claims if not c.holds}
    assert "RAVL is near-optimal with true dynamics" in failing  # ten updates teach nothing
    again = EXPERIMENT.run(config, context)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]
    assert again.wall_seconds == pytest.approx(report.wall_seconds)  # nothing was trained again

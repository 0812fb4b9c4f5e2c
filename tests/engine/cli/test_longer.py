"""`resume --longer`: what is trained is kept, and the folder is that of the longer run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts import plugins
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.cli.longer import advice, lengthen
from jaxrl_rollouts.config_json import to_json
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.main_job import EXPERIMENT
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import MEASURED, RunFolder
from jaxrl_rollouts.record.lock import FolderLock
from jaxrl_rollouts.reports.report import load_report


def begun(plugin: Path, *arguments: str) -> Path:
    cli.main(["run", "toy", "--no-progress", *arguments])
    (folder,) = (plugin / "runs").iterdir()
    return folder


def lengthened(experiment: plugins.Experiment, folder: RunFolder, times: int) -> Any:
    return lengthen(experiment, folder, folder.config_as(experiment.config_type), times)


def test_a_run_trains_on_and_is_the_longer_run_from_then_on(plugin: Path, capsys: Any) -> None:
    folder = begun(plugin, "--agent.rate", "0.5")
    cli.main(["resume", str(folder), "--no-progress", "--longer", "4"])
    assert "note: now with --steps 12\n" in capsys.readouterr().err
    report = load_report(folder)
    assert report.numbers["resumed"].mean == 3 and report.numbers["value"].mean == 12
    assert report.command == "jaxrl-rollouts run toy --preset cpu --agent.rate 0.5 --steps 12"
    # What was cut after that is the longer run, and twice as long is twice as long as that.
    cli.main(["resume", str(folder), "--no-progress"])
    assert load_report(folder).numbers["value"].mean == 12
    cli.main(["resume", str(folder), "--no-progress", "--longer", "2"])
    assert load_report(folder).numbers["value"].mean == 24


def test_the_command_of_a_longer_run_remakes_it(plugin: Path) -> None:
    folder = begun(plugin, "--preset", "smoke")
    cli.main(["resume", str(folder), "--no-progress", "--longer", "5"])
    words = load_report(folder).command.split()[1:]
    cli.main([*words, "--no-progress", "--out", "again"])
    (again,) = (plugin / "again").iterdir()
    opened = RunFolder.open(folder)
    assert RunFolder.open(again).config == opened.config
    # A preset that this version no longer has cannot be begun from: the folder itself can.
    record = json.loads((folder / "run.json").read_text())
    del record["digest"]
    (folder / "run.json").write_text(json.dumps(record | {"preset": "gone"}))
    experiment = plugins.load_experiment("toy")
    changed, _ = lengthened(experiment, RunFolder.open(folder), 2)
    assert changed.command == f"jaxrl-rollouts run toy --config {folder}"


def test_what_cannot_be_longer_says_so_and_stays(plugin: Path, capsys: Any) -> None:
    folder = begun(plugin)
    before = (folder / "run.json").read_bytes()
    experiment, opened = plugins.load_experiment("toy"), RunFolder.open(folder)
    with pytest.raises(ConfigError, match="--longer: found 3, expected none: a longer toy"):
        lengthened(replace(experiment, longer=""), opened, 3)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["resume", str(folder), "--longer", "0"])
    assert stopped.value.code == 2
    assert "--longer: found 0, expected at least 1" in capsys.readouterr().err
    with FolderLock(folder), pytest.raises(CheckpointError):
        lengthened(experiment, opened, 3)
    assert (folder / "run.json").read_bytes() == before
    same, config = lengthened(experiment, opened, 1)
    assert same == opened and to_json(config) == opened.config


def test_data_and_loggers_stay_and_measurements_are_forgotten(plugin: Path) -> None:
    folder = begun(plugin, "--logger", "jsonl,csv")
    opened = RunFolder.open(folder)
    opened.hold("mine", sha256="abc")
    context = RunContext(opened, False, ())
    for name in (MEASURED, "rows"):
        remember(context, "count", name, lambda: {"x": np.zeros(1)})
    changed, _ = lengthened(plugins.load_experiment("toy"), opened, 2)
    assert changed == RunFolder.open(folder) and changed.loggers == ("jsonl", "csv")
    assert changed.data == {"mine": {"sha256": "abc"}}
    # The cell's own follow from its training, other arrays do not.
    found = remember(replace(context, folder=changed), "count", MEASURED, lambda: {"x": np.ones(1)})
    assert found["x"] == 1
    assert remember(context, "count", "rows", lambda: {"x": np.ones(1)})["x"] == 0


@pytest.mark.parametrize(("steps", "times"), [("1", 3), ("2", 2), ("3", None)])
def test_an_early_claim_says_how_to_go_on(
    plugin: Path, capsys: Any, steps: str, times: int | None
) -> None:
    folder = begun(plugin, "--loud", "--steps", steps)
    last = capsys.readouterr().out.splitlines()[-1]
    path = folder.relative_to(plugin)
    line = f"not converged: jaxrl-rollouts resume {path} --longer {times} trains on from here"
    assert (last == line) == (times is not None)
    experiment, opened = plugins.load_experiment("toy"), RunFolder.open(folder)
    config, report = opened.config_as(experiment.config_type), load_report(folder)
    assert advice(replace(experiment, longer=""), config, report, opened) == ""


def test_what_cannot_go_on_is_not_advised_to(plugin: Path) -> None:
    """Where a rate falls to zero over the steps it is another training, not a longer one."""
    folder = begun(plugin, "--loud", "--steps", "1")
    report = load_report(folder)
    for preset, line in (("small", " --longer 3 trains on"), ("paper", "; run it anew with more")):
        found = advice(EXPERIMENT, EXPERIMENT.preset(preset), report, RunFolder.open(folder))
        assert found.startswith("not converged: ") and line in found

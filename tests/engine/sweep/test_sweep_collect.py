"""One report out of the runs of a sweep, and what is shown while they run."""

from __future__ import annotations

import io
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from jaxrl_rollouts.errors import ConfigError, MissingExtraError, UserError
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.sweep import command
from jaxrl_rollouts.sweep.collect import collect
from jaxrl_rollouts.sweep.on_ray import Resources, environment, run_on_ray
from jaxrl_rollouts.sweep.plan import Plan, Task, write_plan
from jaxrl_rollouts.sweep.tasks import RUNNING, Status, write_status
from jaxrl_rollouts.sweep.watch import Watch

POINTS = [(method, seed) for method in ("plain", "bold") for seed in (0, 1, 2)]
TASKS = tuple(
    Task(f"{method}-{seed}", {"method": method, "seed": seed}, ("swept",), "/")
    for method, seed in POINTS
)
PLAN = Plan("swept", ("sweep swept --seeds 0 1 2",), TASKS)


def finish(folder: Path, task: Task, value: float, jax: str = "0.9") -> None:
    """A finished run: its record and its report."""
    run = folder / task.name / "swept-cpu-1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    report = Report("swept", "cpu", {}, "", 1, versions={"jax": jax}, wall_seconds=2.0)
    report.number("return", [value], "points")
    report.claim(Claim.of("good", values=[value], at_least=2, source="here", expected="two"))
    report.save(run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two of three runs of one method finished and one failed; one of the other diverged."""
    for task, value in zip(TASKS, (1.0, 2.0, None, 4.0), strict=False):
        if value is not None:
            finish(tmp_path, task, value, jax="0.9" if value < 4 else "0.8")
    for task, status in (
        (TASKS[2], Status("failed", 2, "error: no | file")),
        (TASKS[4], Status("diverged", 1, "error: metric loss is nan")),
    ):
        (tmp_path / task.name).mkdir()
        write_status(tmp_path / task.name, status)
    write_plan(tmp_path, PLAN)
    return tmp_path


def test_seeds_stand_together_and_what_is_missing_is_named(folder: Path) -> None:
    collect(folder, PLAN)
    report = load_report(folder)
    assert (report.experiment, report.preset, report.seeds) == ("swept-sweep", "cpu", 2)
    assert (report.wall_seconds, report.command) == (6.0, PLAN.commands[0])
    plain, bold = report.tables["result"]
    assert (plain["method"], plain["finished"], bold["finished"]) == ("plain", "2 of 3", "1 of 3")
    assert plain["return [points]"].values == (1.0, 2.0)
    assert np.isnan(bold["return [points]"].iqm)  # the mean of those that did not diverge hides it
    rows = {row["task"]: row for row in report.tables["tasks"]}
    assert (
        rows["plain-1"]["state"] == "finished" and rows["plain-1"]["claims that hold"] == "1 of 1"
    )
    assert rows["plain-0"]["claims that hold"] == "0 of 1" and rows["plain-0"]["seconds"] == 2.0
    assert rows["plain-0"]["run"] == "plain-0/swept-cpu-1"
    assert rows["plain-2"]["last line"] == "error: no | file" and rows["plain-2"]["attempts"] == 2
    assert rows["bold-2"]["state"] == "waiting" and rows["bold-2"]["run"] is None
    assert "3 finished, 1 failed, 1 diverged, 1 waiting" in report.notes[0]
    assert report.notes[1] == "Runs differ in jax: 0.8, 0.9."
    assert (folder / "result.png").is_file() and "no \\| file" in (folder / "report.md").read_text()


def test_the_command_collects_and_publishes(folder: Path, capsys: Any) -> None:
    command.main(["collect", str(folder), "--publish", str(folder / "results")], "sweep")
    assert load_report(folder / "results" / "swept-sweep").seeds == 2
    assert "plain-2" in capsys.readouterr().out


def test_a_sweep_of_which_nothing_is_finished_has_a_report(tmp_path: Path) -> None:
    collect(tmp_path, PLAN)
    report = load_report(tmp_path)
    assert [row["finished"] for row in report.tables["result"]] == ["0 of 3", "0 of 3"]
    assert not report.pictures and "6 waiting" in report.notes[0]


def test_a_damaged_report_is_a_run_that_is_not_finished(folder: Path) -> None:
    (folder / "plain-0" / "swept-cpu-1" / "report.json").write_text("{")
    assert collect(folder, PLAN).tables["result"][0]["finished"] == "1 of 3"


def test_changes_are_lines_and_on_a_terminal_a_table(folder: Path) -> None:
    stream = io.StringIO()
    watch = Watch(folder, TASKS, stream=stream)
    watch()
    assert stream.getvalue() == ""
    (folder / "bold-2").mkdir()
    write_status(folder / "bold-2", Status(RUNNING, 2))
    (folder / "bold-2" / "log.txt").write_text("policy: 40% [red]" + 300 * "." + "\n")
    watch()
    counted = "0 of 6 finished, 1 running, 3 waiting, 1 failed, 1 diverged"
    assert stream.getvalue() == f"{counted}  bold-2: running (attempt 2)\n"
    console = Console(file=io.StringIO(), width=120)
    console.print(watch.table())
    shown = console.file.getvalue()
    assert "bold-2 " in shown and " running " in shown and "policy: 40% [red]" in shown
    assert "metric loss is nan" in shown
    assert "bold-0" not in shown  # it waits


def test_a_run_gets_its_share_of_the_machine(monkeypatch: Any) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", "/data")
    variables = environment(Resources(cpus=2.5, gpus=0.5))
    flags = "--xla_dump_to=x --xla_force_host_platform_device_count=2"
    assert (variables["XLA_FLAGS"], variables["JAXRL_ROLLOUTS_DATA"]) == (flags, "/data")
    assert variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    monkeypatch.setenv("XLA_FLAGS", flags.replace("=2", "=7"))
    variables = environment(Resources(gpus=1))
    assert variables["XLA_FLAGS"].endswith("=7")
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in variables


def test_a_task_is_asked_for_by_its_number(folder: Path, capsys: Any) -> None:
    with pytest.raises(ConfigError, match="number: found 7, expected one from 1 to 6"):
        command.main(["task", str(folder), "7"], "sweep")
    command.main(["task", str(folder), "1"], "sweep")
    assert capsys.readouterr().out == "plain-0: finished\n"


def test_without_ray_its_extra_is_named(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl-rollouts\[sweep\]'"):
        run_on_ray(tmp_path, TASKS, [], Resources(), lambda: None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("offline --retrie 1", "option: found '--retrie', expected .*did you mean --retries"),
        ("offline --retries -1", "--retries: found -1, expected at least 0"),
        ("--seeds 1", "sweep: found '--seeds', expected the name of an experiment before"),
        ("ofline --seeds 1", "did you mean offline"),
    ],
)
def test_mistyped_commands_are_one_line(words: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        command.main(words.split(), "sweep")


def test_nobody_at_an_address_is_said_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UserError, match=rf"Ray \({address}\): .*refused"):
        run_on_ray(tmp_path, TASKS, [], Resources(address), lambda: None)

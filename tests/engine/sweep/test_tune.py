"""`tune`: spans of settings, trials as runs, a known optimum, and going on where it was cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.sweep import search as module
from jaxrl_rollouts.sweep import tune as command
from jaxrl_rollouts.sweep.plan import Task
from jaxrl_rollouts.sweep.tasks import FAILED, FINISHED, Status, write_status
from jaxrl_rollouts.sweep.trials import Span, metric_of
from jaxrl_rollouts.sweep.tune import TuneOptions, spans, tune


@dataclass(frozen=True)
class Config:
    """A hill.

    Attributes:
        x: where.
        layers: how many.
        kind: of hill.
        seed: of the noise there is none of.
    """

    x: float = 0.0
    layers: int = 1
    kind: str = "steep"
    seed: int = 3


HILL = Experiment(
    "hill", "A hill.", "", Config, {"cpu": Config()}, lambda config, context: None,
    choices={"kind": ("steep", "flat")}, arms="test_tune:sweepable",
)  # fmt: skip


def sweepable(config: Config) -> tuple[str, ...]:
    """What may vary inside a program."""
    return ("x", "seed")


def together(folder: Path, task: Task) -> Status:
    """A run whose arms are places on the steep hill's ridge."""
    places = [float(text.removeprefix("x=")) for text in task.point["arms"].split()]
    run = RunFolder.create(folder, "hill", "cpu", Config(), "")
    report = Report("hill", "cpu", run.config, "", 2, versions={})
    heights = {x: 5 - (x - 2) ** 2 for x in places}
    rows = [{"arm": f"x={x}", "height": np.array([h, h])} for x, h in heights.items()]
    report.table("arms", rows)
    report.save(run.path)
    return write_status(folder, Status(FINISHED, 1))


@pytest.fixture
def runs(monkeypatch: Any) -> list[Task]:
    """Runs that measure the hill: 5 - (x - 2)^2 - |layers - 3|, less 4 on the flat one."""
    pytest.importorskip("optuna")
    played: list[Task] = []

    def run_task(root: str, task: Task, *_: Any, **__: Any) -> Status:
        played.append(task)
        folder = Path(root) / task.name
        if "arms" in task.point:
            return together(folder, task)
        x, layers = float(task.point["x"]), int(task.point.get("layers", 3))
        if x > 3.9:
            folder.mkdir(exist_ok=True)
            return write_status(folder, Status(FAILED, 1, "error: fell off"))
        config = Config(x, layers, str(task.point.get("kind", "steep")))
        run = RunFolder.create(folder, "hill", "cpu", config, "")
        report = Report("hill", "cpu", run.config, "", 1, versions={})
        height = 5 - (x - 2) ** 2 - abs(layers - 3) - 4 * (config.kind == "flat")
        report.number("height", [height])
        report.save(run.path)
        return write_status(folder, Status(FINISHED, 1))

    monkeypatch.setattr(module, "run_task", run_task)
    monkeypatch.setattr(command.plugins, "load_experiment", lambda name: HILL)
    return played


def killed_in_the_second_run(asked: TuneOptions, runs: list[Task], monkeypatch: Any) -> None:
    whole = module.run_task

    def killed(root: str, task: Task, *given: Any, **more: Any) -> Status:
        if len(runs) == 1:
            runs.append(task)
            raise OSError("the machine is gone")
        return whole(root, task, *given, **more)

    monkeypatch.setattr(module, "run_task", killed)
    with pytest.raises(OSError, match="the machine is gone"):
        tune("hill", asked, [], "tune hill")


def test_trials_approach_a_known_optimum_and_more_of_them_go_on(
    tmp_path: Path, runs: list[Task], capsys: Any
) -> None:
    vary = ("x=-4:4", "layers=1:5", "kind=steep,flat")
    asked = TuneOptions(vary=vary, trials=30, metric="height", cpus=64, out=tmp_path)
    tune("hill", asked, ["--seed", "7"], "tune hill")
    report = load_report(tmp_path)
    rows = report.tables["trials"]
    assert len(rows) == 30
    heights = [row["height"].iqm for row in rows if row["height"] is not None]
    assert heights == sorted(heights, reverse=True) and heights[0] > 4.5
    assert rows[0]["layers"] == "3" and rows[0]["kind"] == "steep"
    assert any("." in str(row["x"]) for row in rows), "x is no whole number"
    best = f"--seed 7 --x {rows[0]['x']} --layers 3 --kind steep --seed 4"
    assert report.conclusion[0].startswith("Best of 30 trials: height ")
    assert report.conclusion[0].endswith(best)
    assert (tmp_path / "trials.png").exists()
    before = len(runs)
    tune("hill", asked, ["--seed", "7"], "tune hill")
    assert len(runs) == before
    more = TuneOptions(vary=vary, trials=33, metric="height", cpus=64, out=tmp_path)
    tune("hill", more, ["--seed", "7"], "tune hill")
    assert len(load_report(tmp_path).tables["trials"]) == 33


def test_a_trial_that_was_cut_is_run_again(
    tmp_path: Path, runs: list[Task], monkeypatch: Any
) -> None:
    asked = TuneOptions(vary=("x=0:1", "layers=1:2", "kind=steep,flat"), trials=3, metric="height",
                        cpus=64, out=tmp_path)  # fmt: skip
    killed_in_the_second_run(asked, runs, monkeypatch)
    tune("hill", asked, [], "tune hill")
    assert runs[1].name == runs[2].name
    assert len(load_report(tmp_path).tables["trials"]) == 3


def test_trials_are_arms_of_one_program(tmp_path: Path, runs: list[Task], capsys: Any) -> None:
    """Ten trials in three programs; the same command runs none, one more trial one."""
    asked = TuneOptions(vary=("x=-4:4",), trials=10, metric="height", out=tmp_path)
    tune("hill", asked, ["--seed", "7"], "tune hill")
    assert "4 trials are arms of one program" in capsys.readouterr().err
    assert [len(task.point["arms"].split()) for task in runs] == [4, 4, 2]
    assert runs[0].arguments[:4] == ("hill", "--seed", "7", "--arms")
    report = load_report(tmp_path)
    rows = report.tables["trials"]
    assert len({row["x"] for row in rows}) == len(rows) == 10
    for row in rows:
        assert row["height"].iqm == pytest.approx(5 - (float(row["x"]) - 2) ** 2)
    assert f"--x {rows[0]['x']} --seed" in report.conclusion[0]
    tune("hill", asked, ["--seed", "7"], "tune hill")
    assert len(runs) == 3
    tune("hill", replace(asked, trials=11, parallel=2), ["--seed", "7"], "tune hill")
    assert len(runs) == 4 and len(load_report(tmp_path).tables["trials"]) == 11


def test_a_program_that_was_cut_goes_on_with_the_same_arms(
    tmp_path: Path, runs: list[Task], monkeypatch: Any
) -> None:
    asked = TuneOptions(vary=("x=-4:4",), trials=6, metric="height", out=tmp_path)
    killed_in_the_second_run(asked, runs, monkeypatch)
    tune("hill", replace(asked, trials=9), [], "tune hill")
    assert runs[1] == runs[2] and len(runs[1].point["arms"].split()) == 2
    assert len(load_report(tmp_path).tables["trials"]) == 9


def test_what_is_no_arm_is_a_program_of_its_own(
    tmp_path: Path, runs: list[Task], capsys: Any
) -> None:
    vary = ("x=0:1", "layers=1:2", "kind=steep,flat")
    tune("hill", TuneOptions(vary=vary, trials=2, metric="height", out=tmp_path), [], "tune hill")
    assert "layers cannot vary inside a program" in capsys.readouterr().err
    assert [len(task.point) for task in runs] == [3, 3]


def test_a_failed_trial_is_counted_and_not_the_best(tmp_path: Path, runs: list[Task]) -> None:
    asked = TuneOptions(vary=("x=3.95,1", "layers=3,3", "kind=steep"), trials=6, metric="height",
                        cpus=64, out=tmp_path)  # fmt: skip
    tune("hill", asked, [], "tune hill")
    rows = load_report(tmp_path).tables["trials"]
    assert rows[0]["x"] == "1" and rows[-1]["height"] is None and rows[-1]["state"] == "failed"


def test_runs_without_a_simulator_are_compared_by_their_gain(
    tmp_path: Path, runs: list[Task], monkeypatch: Any
) -> None:
    whole = module.run_task

    def without_return(root: str, task: Task, *given: Any, **more: Any) -> Status:
        status = whole(root, task, *given, **more)
        (place,) = (path.parent for path in (Path(root) / task.name).glob("*/report.json"))
        report = load_report(place)
        report.numbers["gain"] = report.numbers.pop("height")
        report.conclusion = [f"Without a simulator: verdict on {task.point['x']}."]
        report.save(place)
        return status

    monkeypatch.setattr(module, "run_task", without_return)
    vary = ("x=0:3.5", "layers=3,3", "kind=steep")
    tune("hill", TuneOptions(vary, 5, cpus=64, out=tmp_path), [], "tune hill")
    report = load_report(tmp_path)
    rows = report.tables["trials"]
    gains = [row["gain"].iqm for row in rows]
    assert len(gains) == 5 and gains == sorted(gains, reverse=True)
    assert report.conclusion[0].startswith(f"Best of 5 trials: gain {gains[0]:.4g}")
    assert report.conclusion[1] == f"Without a simulator: verdict on {rows[0]['x']}."


def test_what_cannot_be_tuned_is_refused(tmp_path: Path, runs: list[Task]) -> None:
    def refused(*vary: str, metric: str = "height", trials: int = 1) -> str:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(ConfigError) as caught:
            tune("hill", TuneOptions(vary=vary, trials=trials, metric=metric, out=out), [], "tune")
        return str(caught.value)

    assert "a setting to search" in refused()
    assert "--y" in refused("y=0:1")
    assert "--kind" in refused("kind=steep,round")
    known = refused("x=0:1", "layers=1:2", "kind=steep", metric="hight")
    assert "--metric: found 'hight'" in known and "height" in known


def test_runs_without_a_return_are_compared_by_their_gain() -> None:
    assert metric_of("return", {"return": 1, "gain": 2}) == "return"
    assert metric_of("return", {"gain": 2}) == "gain"
    with pytest.raises(ConfigError, match="--metric: found 'return'"):
        metric_of("return", {"value": 1})


def test_a_database_that_is_a_link_is_refused(tmp_path: Path, runs: list[Task]) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trials.db").symlink_to(tmp_path / "precious")
    asked = TuneOptions(("x=0:4",), 1, metric="height", out=tmp_path / "out")
    with pytest.raises(DataError, match=r"trials\.db: file: found a link to .*precious"):
        tune("hill", asked, [], "tune hill")
    assert (tmp_path / "precious").read_text() == "kept" and not runs


def test_spans_are_read() -> None:
    assert spans(["a.b=0.1:10:log", "layers=1:4", "kind=x,y"]) == {
        "a.b": Span(0.1, 10.0, log=True),
        "layers": Span(1.0, 4.0, whole=True),
        "kind": Span(values=("x", "y")),
    }
    for text in ("a", "a=", "a=2:1", "a=0:1:log", "a=1:2:lin", "a=x:y", "a=1:2:log:3"):
        with pytest.raises(ConfigError, match="--vary"):
            spans([text])

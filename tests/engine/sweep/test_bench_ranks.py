"""Suites of other jobs: options by group, metrics of a report's tables, baselines, ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.sweep import bench
from jaxrl_rollouts.sweep.ranks_page import page, ranks, ratio
from jaxrl_rollouts.sweep.suite import Suite, read_suite
from jaxrl_rollouts.sweep.table import Curves, curves_of, has_cell, read_table, rows_of, write_table

TEXT = """
question = "Which is best?"
job = "pde_train"
dataset_option = "file"
method_option = ""
seeds = 2
reference = "fno"
datasets = ["a", "b", "c"]

[groups]
line = ["a", "b"]
plane = ["c"]

[minimise]
error = "VRMSE of a step"

[maximise]
time = "T(0.8)"

[recorded]
parameters = "parameters"

[options]
steps = 100

[options.line]
batch = 32

[options.plane]
batch = 8

[methods.linear]
title = "Linear"
arm = "linear"
on = ["line"]

[methods.fno]
title = "FNO"
network = "fno"

[methods.fno.line]
"network.width" = 24

[methods.fno.a]
"network.width" = 12

[methods.drift]
network = "drift"
on = ["plane"]
"""


def test_options_of_groups_and_of_a_dataset_stand_above_those_of_all(suite: Suite) -> None:
    commands = {(c.dataset, c.method): c.task(Path()).command for c in suite.cells()}
    assert list(commands) == [("a", "fno"), ("b", "fno"), ("c", "fno"), ("c", "drift")]
    begin = "jaxrl-rollouts run pde_train --file"
    assert commands["b", "fno"] == (
        f"{begin} b --seeds 2 --steps 100 --batch 32 --network fno --network.width 24 --no-progress"
    )
    assert "--network.width 12 " in commands["a", "fno"]
    assert commands["c", "drift"] == (
        f"{begin} c --seeds 2 --steps 100 --batch 8 --network drift --no-progress"
    )
    settings = {c.settings for c in suite.cells()}
    assert len(settings) == 4
    assert [arm for arm, _ in suite.arms("a")] == ["linear"] and not list(suite.arms("c"))


def test_switches_are_options_that_the_command_line_takes(suite: Suite) -> None:
    switches = {"remat": True, "network": "drift", "network.mix": False, "network.dims": [8, 16]}
    own = replace(suite, methods={"drift": {"objective": "mse", **switches}}, reference="")
    words = own.cell("c", "drift").task(Path()).arguments[1:]
    assert {"--remat", "--network.no-mix"} <= {*words}
    config = parse_run(load_experiment("pde_train"), words)[1]
    assert config.remat and not config.network.mix and config.network.dims == (8, 16)


def test_a_group_that_does_not_exist_is_named(file: Path) -> None:
    file.write_text(TEXT.replace("[methods.fno.line]", "[methods.fno.lime]"))
    with pytest.raises(ConfigError, match="lime.*expected one of line, plane, a, b, c"):
        read_suite(file)


def ran(folder: Path, cell: Any, errors: list[float], linear: float, parameters: int) -> Path:
    """A finished run as `pde train` leaves it, with a baseline in its table."""
    run = folder / cell.task(Path()).name / "pde-1"
    run.mkdir(parents=True)
    facts = {"data": {"x": {"sha256": "ab" * 32}}, "versions": {"commit": "c" * 40}}
    (run / "run.json").write_text(json.dumps(facts))
    report = Report("pde_train", "cpu", {}, "x", len(errors), {})
    report.wall_seconds = 90.0
    rows = [
        {"": "mse", "VRMSE of a step": np.array(errors), "T(0.8)": 1 / np.array(errors)},
        {"": "linear", "VRMSE of a step": np.full(2, linear), "T(0.8)": np.full(2, 1 / linear)},
    ]
    report.table("errors", rows)
    report.number("parameters", parameters)
    report.save(run)
    return run.parent


def test_rows_are_read_of_the_reports_tables(suite: Suite, tmp_path: Path) -> None:
    cell = suite.cell("a", "fno")
    rows = rows_of(ran(tmp_path, cell, [0.1, 0.2], 0.5, 70), cell, lambda *_: None, suite)
    found = {(r["method"], r["metric"], r["seed"]): r["value"] for r in rows}
    assert found["fno", "error", "1"] == "0.2" and found["fno", "time", "0"] == "10"
    assert found["linear", "error", "0"] == "0.5" and found["fno", "parameters", "0"] == "70"
    assert len(rows) == 2 * 2 * 2 + 1
    assert {(r["method"], r["seconds"], r["step"]) for r in rows} == {
        ("fno", "90", "100"), ("linear", "0", "100"),
    }  # fmt: skip
    write_table(tmp_path / "t.csv", rows)
    table = read_table(tmp_path / "t.csv")
    assert has_cell(table, cell) and has_cell(table, suite.cell("a", "linear"))
    assert curves_of(table, suite)["a", "fno"].seconds == 90.0


def test_a_method_reads_its_own_row(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT + '\n[methods.cut]\nrow = "linear"\nnetwork = "fno"\non = ["line"]\n')
    suite = read_suite(file)
    cell = suite.cell("a", "cut")
    assert "row" not in cell.options
    rows = rows_of(ran(tmp_path, cell, [0.1, 0.2], 0.5, 70), cell, lambda *_: None, suite)
    found = {(r["method"], r["metric"], r["seed"]): r["value"] for r in rows}
    assert found["cut", "error", "1"] == "0.5" and found["cut", "parameters", "0"] == "70"


EQUAL = """
[methods.unet]
network = "unet"

[seconds]
datasets = ["a", "c"]
note = "On one core."

[seconds.cost.line]
fno = 0.03
unet = 0.06

[seconds.cost.plane]
fno = 0.03
drift = 0.02
"""


def test_equal_seconds_are_other_steps(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT + EQUAL)
    suite = read_suite(file)
    assert suite.columns[-2:] == ("drift@seconds", "unet@seconds")
    steps = {(c.dataset, c.method): c.options["steps"] for c in suite.cells()}
    # 100 steps of 0.03 s are 50 of 0.06 s, and 150 of 0.02 s; in whole multiples of 20.
    assert steps["a", "unet@seconds"] == 40 and steps["c", "drift@seconds"] == 160
    assert steps["a", "unet"] == steps["a", "fno"] == 100
    assert ("c", "unet@seconds") not in steps and ("b", "unet@seconds") not in steps
    cell = suite.cell("a", "unet@seconds")
    whole = {**suite.methods, "unet": {**suite.methods["unet"], "parts": suite.seeds}}
    parts = replace(suite, methods=whole).cells(["a"], ["unet@seconds"])
    assert [part.first for part in parts] == [*range(suite.seeds)]
    assert cell.settings != suite.cell("a", "unet").settings and cell.options["network"] == "unet"
    rows = rows_of(ran(tmp_path, cell, [0.1, 0.2], 0.5, 70), cell, lambda *_: None, suite)
    # Baselines are rows of the runs with the suite's own steps.
    assert {(r["method"], r["step"]) for r in rows} == {("unet@seconds", "40")}
    found = cells_of({("a", "fno"): [0.125, 0.3], ("a", "unet@seconds"): [0.1, 0.1]})
    text = page(suite, "tiny", found)
    assert "2 of 11 cells" in text
    assert "| FNO | 100 | 0.125–0.3 |  | 2.0 |  |" in text
    assert "| unet | 40 | 0.1 |  | 1.0 |  |" in text and "1 of 2 problems. On one core." in text


def test_costs_that_cannot_be(file: Path) -> None:
    for old, new, match in (
        ("cost.plane", "cost.plain", "plain.*expected one of line, plane"),
        ("fno = 0.03\ndrift", "drift", "cost.plane.*fno"),
        ("unet = 0.06", "unet = 0.0", "above 0"),
        ("unet = 0.06", "net = 0.06", "net.*expected one of linear, fno, drift, unet"),
    ):
        file.write_text(TEXT + EQUAL.replace(old, new))
        with pytest.raises(ConfigError, match=match):
            read_suite(file)
    with pytest.raises(ConfigError, match="unet@seconds.*with its cost"):
        file.write_text(TEXT + EQUAL)
        read_suite(file).cell("b", "unet@seconds")


def cells_of(values: dict[tuple[str, str], list[float]]) -> dict[tuple[str, str], Curves]:
    def curves(errors: list[float]) -> Curves:
        columns = {"error": np.array(errors)[:, None], "time": 1 / np.array(errors)[:, None]}
        columns["parameters"] = np.full((1, 1), 70_400.0)
        return Curves(columns, 90.0, "ab" * 6, "s", "c")

    return {key: curves(errors) for key, errors in values.items()}


def test_ranks_and_ratios(suite: Suite) -> None:
    found = cells_of({("a", "linear"): [0.4, 0.4], ("a", "fno"): [0.1, 0.3], ("b", "fno"): [1, 1]})
    # The lowest mean error is the best, and the longest mean time.
    assert ranks(suite, found, "a", "error") == {"fno": 1.0, "linear": 2.0}
    # What is shown only has no rank, though it has the lowest error.
    own = {**suite.methods, "theirs": {"arm": "theirs", "ranked": False}}
    shown = replace(suite, methods=own)
    beside = found | cells_of({("a", "theirs"): [0.01, 0.01]})
    assert ranks(shown, beside, "a", "error") == {"fno": 1.0, "linear": 2.0}
    assert "theirs" in page(shown, "s", beside) and list(shown.cells()) == list(suite.cells())
    assert ranks(suite, found, "a", "time") == {"fno": 1.0, "linear": 2.0}
    # Not every method was measured on b.
    assert ranks(suite, found, "b", "error") == {}
    equal = cells_of({("a", "linear"): [0.2, 0.2], ("a", "fno"): [0.1, 0.3]})
    assert ranks(suite, equal, "a", "error") == {"fno": 1.5, "linear": 1.5}
    lost = cells_of({("a", "linear"): [9.0, 9.0], ("a", "fno"): [0.1, np.nan]})
    assert ranks(suite, lost, "a", "error")["fno"] == 2.0
    both = found | cells_of({("b", "linear"): [8, 8]})
    assert ratio(suite, both, ["a", "b"], "linear") == pytest.approx(np.sqrt(2 * 8))
    assert np.isnan(ratio(suite, found, ["a", "b"], "linear"))


def test_the_page(suite: Suite, file: Path, tmp_path: Path) -> None:
    found = cells_of({("a", "linear"): [0.4, 0.4], ("a", "fno"): [0.125, 0.3]})
    text = page(suite, "tiny", found)
    assert text.startswith("# Which is best?") and "2 of 6 cells" in text
    assert "| FNO | 0.125–0.3 |  |  |" in text and "| Linear | 0.4 |  |  |" in text
    assert "1 of 2 (line), 0 of 1 (plane)" in text
    # Rank, ratio to the reference (both cells of a group), weights, minutes.
    assert "| FNO | 1.0 |  | 70k | 1.5 |" in text
    assert page(suite, "tiny", {}).count("\n| ") > 0
    told = replace(suite, data="Solved by x.", verdict="FNO leads", notes=("Why: y.",))
    start = f"# FNO leads\n\n**Question.** {suite.question}\n\nSolved by x.\n\n2 of 6 cells"
    text = page(told, "tiny", found)
    assert text.startswith(start) and "\nWhy: y.\n\n## Over problems" in text
    bench.table(str(file), table=tmp_path / "none.csv", page=tmp_path / "p.md")
    assert "0 of 6 cells" in (tmp_path / "p.md").read_text()
    bench.status(str(file), table=tmp_path / "none.csv")

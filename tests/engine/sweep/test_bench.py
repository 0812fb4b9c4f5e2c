"""Benchmarks: cells from a suite, rows from runs, the table, its page and its statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError, UserError
from jaxrl_rollouts.offline.agents.bc import BcConfig, make_bc
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.saved_policies import save_policy
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.sweep import bench, bench_page, here, tasks
from jaxrl_rollouts.sweep.bench_page import draw_profile, improvement, page, whole
from jaxrl_rollouts.sweep.suite import Suite, digest, read_suite
from jaxrl_rollouts.sweep.table import (
    curves_of,
    final,
    has_cell,
    merged,
    read_table,
    result,
    rows_of,
    write_table,
)

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


def test_a_cell_is_one_run_with_all_seeds(suite: Suite) -> None:
    cells = list(suite.cells())
    assert [(c.dataset, c.method) for c in cells] == [
        ("d-one", "bc"), ("d-two", "bc"), ("d-one", "mopo_wide"), ("d-two", "mopo_wide"),
    ]  # fmt: skip
    task = cells[2].task(Path("/anywhere"))
    assert task.command == (
        "jaxrl-rollouts run offline --dataset d-one --method mopo --seeds 2 --steps 100 "
        "--penalty 5.0 --agent.hidden-dims 64 64 --no-progress"
    )
    assert task.name == f"d-one-mopo_wide-{cells[2].settings}"
    # A method or dataset that the suite does not list takes the shared options only.
    (mine,) = suite.cells(["mine.hdf5"], ["my_package:Mine"])
    assert mine.task(Path()).arguments[1:5] == (
        "--dataset", "mine.hdf5", "--method", "my_package:Mine",
    )  # fmt: skip
    assert suite.title("my_package:Mine") == "my_package:Mine"


def test_settings_tell_cells_apart(suite: Suite) -> None:
    first, other = suite.cell("d-one", "mopo_wide"), suite.cell("d-two", "mopo_wide")
    assert first.settings == other.settings != suite.cell("d-one", "bc").settings
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('reference = "bc"', 'reference = "bd"', "expected one of bc, mopo_wide"),
        ('datasets = ["d-one", "d-two"]', "datasets = []", "at least one of each"),
        ("seeds = 2", "seeds = 0", "seeds"),
        ("last = 2", "lost = 2", "last"),
    ],
)
def test_a_wrong_suite_is_named(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        read_suite(file)


def test_what_is_no_suite(file: Path, tmp_path: Path) -> None:
    for text in ("question = ", "a = " + "[" * 100_000, "a = 1\na = 2"):
        file.write_text(text)
        with pytest.raises(DataError, match="TOML"):
            read_suite(file)
    with pytest.raises(ConfigError, match="expected a suite's TOML file"):
        bench.find_suite(str(tmp_path / "none"))


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


def test_rows_of_a_run(suite: Suite, tmp_path: Path) -> None:
    cell = suite.cell("d-one", "bc")
    folder = tmp_path / cell.task(Path()).name
    assert rows_of(folder, cell, score) == []
    run_in(tmp_path, cell, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    rows = rows_of(folder, cell, score)
    assert len(rows) == 4 * 2 * 4 + 2  # evaluations, seeds, metrics; the imagined values
    assert {row["sha256"] for row in rows} == {"ab" * 6}
    assert {(row["seconds"], row["commit"]) for row in rows} == {("61", "c" * 12)}
    last = {(r["metric"], r["seed"]): r["value"] for r in rows if r["step"] == "100"}
    assert last["return", "1"] == "8" and last["score", "1"] == "4"
    assert last["true_value", "0"] == "0.7" and last["estimated_value", "0"] == "0.7"
    assert (last["imagined_value", "0"], last["imagined_value", "1"]) == ("1.4", "1.6")
    assert {row["step"] for row in rows} == {"25", "50", "75", "100"}
    table = tmp_path / "t.csv"
    write_table(table, rows)
    assert has_cell(read_table(table), cell) and not has_cell(rows, suite.cell("d-two", "bc"))
    again = merged(read_table(table), rows)
    write_table(tmp_path / "u.csv", reversed(again))
    assert table.read_bytes() == (tmp_path / "u.csv").read_bytes()
    curves = curves_of(read_table(table), suite)["d-one", "bc"]
    np.testing.assert_allclose(final(curves, "return", 2), [6.0, 7.0])
    np.testing.assert_allclose(result(curves, 2), [3.0, 3.5])


def test_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("dataset,value\na,1\n")
    with pytest.raises(DataError, match="columns: found dataset, value"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",0,", ",zero,", "line [0-9]+: found invalid literal"),
        (",return,", ",return,x", "line [0-9]+: found could not convert"),
        ("d-one", "d\udcff", "file: found 'utf-8' codec"),
        ("d-one", "d\x00", "found|expected"),
    ],
)
def test_a_damaged_table_is_one_line(filled: Path, old: str, new: str, says: str) -> None:
    text = filled.read_text().replace(old, new)
    filled.write_bytes(text.encode(errors="surrogateescape"))
    if "\x00" in new:
        read_table(filled)  # a name like any other
        return
    with pytest.raises(DataError, match=says) as caught:
        read_table(filled)
    assert "\n" not in str(caught.value)
    filled.unlink()
    filled.mkdir()
    with pytest.raises(DataError, match="found a folder"):
        read_table(filled)


def test_a_page_takes_the_place_of_a_link(file: Path, filled: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    for name in ("page.md", "page-profile.png"):
        (tmp_path / name).symlink_to(precious)
    bench.table(str(file), table=filled, page=tmp_path / "page.md")
    assert precious.read_text() == "kept" and "MOPO" in (tmp_path / "page.md").read_text()


@pytest.fixture
def filled(suite: Suite, tmp_path: Path) -> Path:
    rows = []
    for method, base in (("bc", 10.0), ("mopo_wide", 20.0)):
        for dataset in suite.datasets:
            cell = suite.cell(dataset, method)
            shift = 0.0 if method == "bc" else 3.0
            run_in(tmp_path, cell, [[0.0, 0.0], [base, base + 2], [base, base + 2]], shift)
            rows += rows_of(tmp_path / cell.task(Path()).name, cell, score)
    write_table(tmp_path / "tiny.csv", rows)
    return tmp_path / "tiny.csv"


def test_the_page(suite: Suite, filled: Path, tmp_path: Path) -> None:
    cells = curves_of(read_table(filled), suite)
    text = page(suite, "tiny", cells, "p.png")
    assert "4 of 4 cells" in text and "| method | d-one | d-two |" in text
    # Scores on d-one, returns on d-two, with the range of two seeds.
    assert "| BC | 5.5 [5.0, 6.0] | 11.0 [10.0, 12.0] |" in text
    assert "| MOPO | 10.5 [10.0, 11.0] | 21.0 [20.0, 22.0] |" in text
    concluded = replace(suite, verdict="BC loses", notes=("Why: c.",))
    title, *_, rest = page(concluded, "tiny", cells).partition("**Question.** ")
    assert title == "# BC loses\n\n" and rest.startswith(suite.question) and "\nWhy: c.\n" in rest
    assert "range of 2 seeds" in text and "P(better than BC)" in text
    assert "estimated / imagined / true" in text and "| method | d-one | d-two | minutes |" in text
    assert "| MOPO | 5.1 / 4.2 / 2.1 | 5.1 / 4.2 / 2.1 | 1 |" in text
    assert "| BC | 1.1 / – / 1.1 | 1.1 / – / 1.1 | 1 |" in text
    table = read_table(filled)
    some = [row for row in table if (row["dataset"], row["method"]) != ("d-two", "mopo_wide")]
    text = page(suite, "tiny", curves_of(some, suite))
    assert "3 of 4 cells" in text and "| MOPO | 10.5 [10.0, 11.0] |  |" in text
    assert "| BC | 8.0 |" in text and "| MOPO |" not in text.partition("Over all")[2].split("##")[0]
    # Of a group, the mean over its datasets: 10.5 on d-one alone.
    grouped = replace(suite, groups={"first": ("d-one",), "second": ("d-two",)})
    first, second = page(grouped, "tiny", curves_of(some, suite)).split("## Over ")[1:3]
    assert (
        first.startswith("first")
        and "| MOPO | 10.5 |" in first
        and "MOPO" not in second.partition("##")[0]
    )
    assert draw_profile(tmp_path / "p.png", suite, cells) and (tmp_path / "p.png").stat().st_size
    assert not draw_profile(tmp_path / "q.png", suite, {})


def test_a_users_table_stands_beside_ours(
    file: Path, suite: Suite, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method and a dataset that no suite lists: rows, columns and the profile have them."""
    rows = []
    for dataset in (*suite.datasets, "mine.hdf5"):
        cell = suite.cell(dataset, "my_package:Mine")
        run_in(tmp_path, cell, [[0.0, 0.0], [30.0, 32.0], [30.0, 32.0]])
        rows += rows_of(tmp_path / cell.task(Path()).name, cell, score)
    write_table(tmp_path / "mine.csv", rows)
    before = filled.read_bytes()
    monkeypatch.chdir(tmp_path)
    command = ["table", str(file), "--table", str(filled), "--page", "page.md", "--beside"]
    bench.main([*command, "mine.csv"], "bench")
    text = Path("page.md").read_text()
    assert "| method | d-one | d-two | mine.hdf5 |" in text
    assert "| BC | 5.5 [5.0, 6.0] | 11.0 [10.0, 12.0] |  |" in text
    ours = "| my_package:Mine | 15.5 [15.0, 16.0] | 31.0 [30.0, 32.0] | 31.0 [30.0, 32.0] |"
    assert ours in text and "| my_package:Mine | 23.0 |" in text
    assert filled.read_bytes() == before
    with pytest.raises(ConfigError, match="--beside: found 'his.csv'"):
        bench.main([*command, "his.csv"], "bench")


def test_a_method_has_its_colour_in_the_profile(
    suite: Suite, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = {}
    monkeypatch.setattr(bench_page, "save_png", lambda figure, path: drawn.update(made=figure))
    assert draw_profile(tmp_path / "p.png", suite, curves_of(read_table(filled), suite))
    lines = {line.get_label(): line.get_color() for line in drawn["made"].axes[0].get_lines()}
    assert lines == {"BC": "#222222", "MOPO": "#E69F00"}
    share = drawn["made"].axes[0].get_lines()[0].get_ydata()
    assert share[0] == 1.0 and share[-1] == 0.0


def test_a_suite_of_the_checkout_is_found_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.find_suite("mini").resolve() == Path(__file__).parents[3].resolve() / (
        "experiments/suites/mini.toml"
    )


def test_the_probability_of_improvement() -> None:
    ours, theirs = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 5.0], [0.0, 6.0]])
    # First dataset: 1>0, 3>2, 3>0 of four pairs; second: two ties of four.
    assert improvement(ours, theirs) == pytest.approx((3 / 4 + 1 / 4) / 2)


def test_a_method_counts_as_a_whole_or_not_at_all(suite: Suite, filled: Path) -> None:
    cells = curves_of(read_table(filled), suite)
    values = whole(suite, suite.datasets, "bc", cells)
    np.testing.assert_allclose(values, [[5.0, 10.0], [6.0, 12.0]])
    del cells["d-two", "bc"]
    assert whole(suite, suite.datasets, "bc", cells) is None


def test_the_command_runs_what_is_missing(
    file: Path, suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Finished runs enter the table; a cell that fails is named, and the others stay."""
    ran = []

    def run_task(root: str, task: Any, *_: Any, **__: Any) -> Any:
        ran.append(task.point)
        cell = suite.cell(task.point["dataset"], task.point["method"])
        state = tasks.FAILED
        if task.point != {"dataset": "d-two", "method": "mopo_wide"}:
            run_in(Path(root), cell, [[1.0, 2.0], [3.0, 4.0]])
            state = tasks.FINISHED
        (Path(root) / task.name).mkdir(exist_ok=True)
        return tasks.write_status(Path(root) / task.name, tasks.Status(state, 1))

    monkeypatch.setattr(here, "run_task", run_task)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="1 cells did not finish, d-two-mopo_wide"):
        bench.main(["run", str(file), "--out", str(tmp_path / "runs")], "bench")
    assert len(ran) == 4
    rows = read_table(tmp_path / "tiny.csv")
    assert sum(has_cell(rows, cell) for cell in suite.cells()) == 3
    with pytest.raises(UserError, match="did not finish"):
        bench.main(["run", str(file), "--out", str(tmp_path / "runs")], "bench")
    assert len(ran) == 5, "cells that the table has are skipped"
    capsys.readouterr()
    bench.main(["status", str(file)], "bench")
    out = capsys.readouterr().out
    assert "3 of 4 cells" in out
    bench.main(["table", str(file)], "bench")
    assert "Which method earns most?" in (tmp_path / "tiny.md").read_text()
    bench.main(["run", str(file), "--slurm", str(tmp_path / "go.sh")], "bench")
    assert "--array=1\n" in (tmp_path / "go.sh").read_text()


def test_policies_of_finished_cells_are_kept(
    file: Path, suite: Suite, tmp_path: Path, capsys: Any
) -> None:
    """All seeds act as before, and the policy that was chosen by its return is left out."""
    config = BcConfig(hidden_dims=(4,))
    actors = jax.vmap(make_bc(config, 3, 2).init)(jax.random.split(jax.random.key(1), 2)).actor
    cell = suite.cell("d-one", "bc")
    name = cell.task(Path()).name
    run = run_in(tmp_path / "runs" / "tiny", cell, [[1.0, 2.0]])
    for folder in ("policy", "policy-best"):
        save_policy(run / "stage" / folder, config, actors, sizes=(3, 2))
    command = ["keep", str(file), "--out", str(tmp_path / "runs")]
    bench.main(command, "bench")
    kept = tmp_path / "tiny" / name
    assert sorted(p.name for p in kept.iterdir()) == ["params.safetensors", "policy.json"]
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for seed in range(2):
        before, after = (load_policy(place, seed) for place in (run / "stage" / "policy", kept))
        np.testing.assert_array_equal(before(observations), after(observations))
    capsys.readouterr()
    bench.main(command, "bench")
    assert "0 cells' policies are new" in capsys.readouterr().out

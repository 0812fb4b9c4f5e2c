"""Benchmarks: cells from a suite, rows from runs, the table, the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers_bench import TEXT, run_in, score

from jaxrl_rollouts.errors import ConfigError, DataError, UserError
from jaxrl_rollouts.offline.agents.bc import BcConfig, make_bc
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.saved_policies import save_policy
from jaxrl_rollouts.sweep import bench, here, tasks
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
        ("penalty = 5.0", "parts = 3", "mopo_wide.parts: found 3, expected a divisor of 2"),
        ("penalty = 5.0", "parts = 0", "mopo_wide.parts: found 0"),
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


def test_a_cell_in_parts_fills_with_one_after_the_other(
    file: Path, tmp_path: Path, capsys: Any
) -> None:
    """Each part has its share of the seeds and a random seed of its own; the settings are those of
    the whole cell, whose rows stay valid."""
    whole = read_suite(file).cell("d-one", "mopo_wide")
    file.write_text(TEXT.replace("penalty = 5.0", "penalty = 5.0\nparts = 2"))
    suite, table = read_suite(file), tmp_path / "tiny.csv"
    first, second = suite.cells(["d-one"], ["mopo_wide"])
    assert first.settings == second.settings == whole.settings
    assert len({cell.task(Path()).name for cell in (whole, first, second)}) == 3
    for part, of in enumerate((first, second)):
        command = of.task(Path()).command
        assert "--seeds 1 " in command and f" --seed {part} " in command
    kept: list = []
    for part, value, few in ((second, 7.0, "1 "), (first, 5.0, "x ")):
        run_in(tmp_path, part, [[value], [value + 2]])
        new = rows_of(tmp_path / part.task(Path()).name, part, score)
        kept = merged(kept, new)
        write_table(table, kept)
        assert [has_cell(kept, p) for p in (first, second)] == [part is first, True]
        bench.main(["status", str(file)], "bench")
        out = capsys.readouterr().out
        assert few in out.split("d-one")[1] and f"{int(part is first)} of 4 cells" in out
        bench.main(["table", str(file)], "bench")
        page = (tmp_path / "tiny.md").read_text()
        assert ("| MOPO | 4.0 (n = 1) |" in page) == (part is second)
    curves = curves_of(read_table(table), suite)["d-one", "mopo_wide"]
    np.testing.assert_allclose(curves.metrics["return"], [[5.0, 7.0], [7.0, 9.0]])
    assert curves.seconds == 2 * 61.0 and has_cell(kept, whole)


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


def test_a_suite_of_the_checkout_is_found_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.find_suite("mini").resolve() == Path(__file__).parents[3].resolve() / (
        "experiments/suites/mini.toml"
    )


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

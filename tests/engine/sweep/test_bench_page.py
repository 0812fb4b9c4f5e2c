"""A benchmark's page: scores, aggregates, values, the profile, and a user's own table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers_bench import TEXT as TEXT
from helpers_bench import run_in, score

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.sweep import bench, bench_page
from jaxrl_rollouts.sweep.bench_page import draw_profile, improvement, page, whole
from jaxrl_rollouts.sweep.suite import Suite
from jaxrl_rollouts.sweep.table import curves_of, read_table, rows_of, write_table


def test_a_page_takes_the_place_of_a_link(file: Path, filled: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    for name in ("page.md", "page-profile.png"):
        (tmp_path / name).symlink_to(precious)
    bench.table(str(file), table=filled, page=tmp_path / "page.md")
    assert precious.read_text() == "kept" and "MOPO" in (tmp_path / "page.md").read_text()


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
    assert "estimated/imagined/true" in text and "| method | d-one | d-two | minutes |" in text
    assert "| MOPO | 5.1/4.2/2.1 | 5.1/4.2/2.1 | 1 |" in text
    assert "| BC | 1.1/–/1.1 | 1.1/–/1.1 | 1 |" in text
    table = read_table(filled)
    some = [row for row in table if (row["dataset"], row["method"]) != ("d-two", "mopo_wide")]
    text = page(suite, "tiny", curves_of(some, suite))
    assert "3 of 4 cells" in text and "| MOPO | 10.5 [10.0, 11.0] |  |" in text
    assert "| BC | 8.0 |" in text and "| MOPO |" not in text.partition("Over all")[2].split("##")[0]
    # Of a group, the mean over its datasets: 10.5 on d-one alone.
    grouped = replace(suite, groups={"first": ("d-one",), "second": ("d-two",)})
    first, second = page(grouped, "tiny", curves_of(some, suite), "p.png").split("## Over ")[1:3]
    assert "](p.png)" in first and "](p.png)" not in second  # `draw_profile` has the first group
    assert (
        first.startswith("first")
        and "| MOPO | 10.5 |" in first
        and "MOPO" not in second.partition("##")[0]
    )
    assert draw_profile(tmp_path / "p.png", suite, cells) and (tmp_path / "p.png").stat().st_size
    assert not draw_profile(tmp_path / "q.png", suite, {})
    # An option of all runs that a method has otherwise is named, once it has a cell.
    shorter = {**suite.methods, "mopo_wide": {**suite.methods["mopo_wide"], "steps": 50}}
    other = page(replace(suite, methods=shorter), "tiny", cells)
    assert "Every run: steps 100; 2 seeds. MOPO: steps 50." in other and "steps 50" not in text
    empty = page(suite, "tiny", {})
    assert "0 of 4 cells" in empty and "Training data" in text and "Training data" not in empty


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


def test_the_probability_of_improvement() -> None:
    ours, theirs = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 5.0], [0.0, 6.0]])
    # First dataset: 1>0, 3>2, 3>0 of four pairs; second: two ties of four.
    assert improvement(ours, theirs) == pytest.approx((3 / 4 + 1 / 4) / 2)


def test_a_method_counts_as_a_whole_or_not_at_all(suite: Suite, filled: Path) -> None:
    cells = curves_of(read_table(filled), suite)
    values = whole(suite, suite.datasets, "bc", cells)
    assert values is not None
    np.testing.assert_allclose(values, [[5.0, 10.0], [6.0, 12.0]])
    del cells["d-two", "bc"]
    assert whole(suite, suite.datasets, "bc", cells) is None

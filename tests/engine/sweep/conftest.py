"""A small suite of `bench`: that of a test module's `TEXT`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_bench import run_in, score

from jaxrl_rollouts.sweep.suite import Suite, read_suite
from jaxrl_rollouts.sweep.table import rows_of, write_table


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(request.module.TEXT)
    return path


@pytest.fixture
def suite(file: Path) -> Suite:
    return read_suite(file)


@pytest.fixture
def filled(suite: Suite, tmp_path: Path) -> Path:
    """A table file with every cell."""
    rows = []
    for method, base in (("bc", 10.0), ("mopo_wide", 20.0)):
        for dataset in suite.datasets:
            cell = suite.cell(dataset, method)
            shift = 0.0 if method == "bc" else 3.0
            run_in(tmp_path, cell, [[0.0, 0.0], [base, base + 2], [base, base + 2]], shift)
            rows += rows_of(tmp_path / cell.task(Path()).name, cell, score)
    write_table(tmp_path / "tiny.csv", rows)
    return tmp_path / "tiny.csv"

"""A small suite of `bench`: that of a test module's `TEXT`."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl_rollouts.sweep.suite import Suite, read_suite


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(request.module.TEXT)
    return path


@pytest.fixture
def suite(file: Path) -> Suite:
    return read_suite(file)

"""What was measured is read back, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder


@dataclass(frozen=True)
class Config:
    seeds: int = 1


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.create(tmp_path, "e", "smoke", Config(), "command"))


def test_arrays_are_measured_once(context: RunContext) -> None:
    calls = []

    def measure() -> dict:
        calls.append(1)
        return {"error": [[1.0, 2.0]], "seconds": 3.0}

    first = remember(context, "stage", "measured", measure)
    again = remember(context, "stage", "measured", measure)
    assert len(calls) == 1
    for arrays in (first, again):
        np.testing.assert_array_equal(arrays["error"], [[1.0, 2.0]])
        assert arrays["seconds"].shape == () and set(arrays) == {"error", "seconds"}
    remember(context, "other", "measured", measure)
    remember(None, "stage", "measured", measure)
    assert len(calls) == 3


def test_what_cannot_be_written_leaves_nothing(context: RunContext) -> None:
    with pytest.raises(TypeError, match="objects"):
        remember(context, "stage", "measured", lambda: {"objects": np.array([None])})
    assert not (context.folder.path / "stage" / "measured.npz").exists()
    kept = remember(context, "stage", "measured", lambda: {"number": 1.0})
    assert kept["number"] == 1.0

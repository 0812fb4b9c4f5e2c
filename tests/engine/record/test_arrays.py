"""What was measured is read back, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag


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


@pytest.mark.parametrize("damage", ["flip", "truncate", "no digest"])
def test_what_is_damaged_is_measured_again(context: RunContext, damage: str) -> None:
    remember(context, "stage", "measured", lambda: {"error": np.arange(99.0)})
    path = context.folder.path / "stage" / "measured.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "no digest":
        path.with_name("measured.npz.sha256").unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:50])
    with pytest.warns(UserWarning, match="measured.npz: damaged or not finished, measured again"):
        again = remember(context, "stage", "measured", lambda: {"error": np.arange(98.0)})
    assert len(again["error"]) == 98
    assert len(remember(context, "stage", "measured", dict)["error"]) == 98
    assert sorted(p.name for p in path.parent.iterdir()) == ["measured.npz", "measured.npz.sha256"]


def test_who_asked_to_stop_waits_for_no_measurement(context: RunContext) -> None:
    stop = StopFlag()
    stop.request()
    asked = replace(context, stop=stop)
    with pytest.raises(Interrupted, match=f"stage: measured; .*resume {context.folder.path}"):
        remember(asked, "stage", "measured", lambda: pytest.fail("measured"))


def test_what_cannot_be_written_leaves_nothing(context: RunContext) -> None:
    with pytest.raises(TypeError, match="objects"):
        remember(context, "stage", "measured", lambda: {"objects": np.array([None])})
    assert not (context.folder.path / "stage" / "measured.npz").exists()
    kept = remember(context, "stage", "measured", lambda: {"number": 1.0})
    assert kept["number"] == 1.0

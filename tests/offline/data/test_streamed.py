"""Rows left on the disk: the same dataset, the same agents, the same refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers_data as given
import jax
import numpy as np
import pytest
from helpers_train import train

from jaxrl_rollouts import scaler
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.data import Dataset, load, streamed

PLAN = ((70, given.TERMINATED), (80, given.TRUNCATED), (65, given.TERMINATED), (40, "unfinished"))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "rows"))
    blocks = streamed.blocks
    monkeypatch.setattr(streamed, "blocks", lambda count: blocks(count, 64))


def arrays(stored: bool = True) -> dict[str, np.ndarray]:
    made = given.raw_arrays(given.make(PLAN))
    if not stored:
        del made["next_observations"]
    return made | {"observations": made["observations"].astype(np.float64)}


def both(path: Path, **options: Any) -> tuple[Dataset, Dataset]:
    return load(path, **options), load(path, stream="always", **options)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("options", [{}, {"action_low": -2, "action_high": [1.5, 2], "clip": True}])
def test_rows_on_disk_are_the_rows_in_memory(stored: bool, options: dict, tmp_path: Path) -> None:
    path = given.write_raw(tmp_path / "a.hdf5", arrays(stored))
    memory, disk = both(path, **options)
    assert memory.rows_file is None and disk.rows_file is not None
    for one, other in zip(memory.transitions, disk.transitions, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert memory.attributes == disk.attributes and memory.sha256 == disk.sha256
    np.testing.assert_array_equal(memory.action_high, disk.action_high)
    made = disk.rows_file.stat().st_mtime_ns
    again = load(path, stream="always", **options)
    assert again.rows_file == disk.rows_file and made == again.rows_file.stat().st_mtime_ns


def test_a_last_block_may_have_no_row_with_a_successor(tmp_path: Path) -> None:
    plan = ((64, given.TERMINATED), (1, given.TRUNCATED))
    made = given.raw_arrays(given.make(plan))
    del made["next_observations"]
    memory, disk = both(given.write_raw(tmp_path / "a.hdf5", made))
    assert len(memory) == len(disk) == 64
    for one, other in zip(memory.transitions, disk.transitions, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_agent_learns_the_same_from_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaler, "BLOCK", 100)  # bc normalises
    path = given.write_raw(tmp_path / "a.hdf5", arrays())
    sizes: dict[str, Any] = {"hidden_dims": (8,), "batch_size": 16, "per_iteration": 4, "seeds": 3}
    memory, disk = (
        train(dataset, "bc", environment="none", steps=20, **sizes) for dataset in both(path)
    )
    for one, other in zip(*(jax.tree.leaves(o.actors) for o in (memory, disk)), strict=True):
        np.testing.assert_array_equal(one, other)
    for name, view in (("rebrac", {}), ("ravl", {}), ("bc", {"reward": "minus_one"})):
        with pytest.raises(ConfigError, match="rows on disk"):
            train(load(path, stream="always"), name, environment="none", steps=20, **view)


@pytest.mark.parametrize(
    ("key", "row", "value", "message"),
    [
        ("observations", 130, np.nan, r"observations: found NaN .* row 2 \(counted from row 128\)"),
        ("actions", 66, 3.0, r"actions: found magnitude 3 in row 2 .*counted from row 64"),
        ("terminals", 3, 0.5, r"terminals: found 0.5 in row 3"),
    ],
)
def test_bad_rows_are_refused_where_they_are(
    key: str, row: int, value: float, message: str, tmp_path: Path
) -> None:
    made = arrays()
    made[key] = made[key].astype(np.float64)
    made[key][row] = value
    path = given.write_raw(tmp_path / "a.hdf5", made)
    with pytest.raises(DataError, match=message):
        load(path, stream="always")
    assert not list((tmp_path / "rows").glob("*"))


def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    for key, values, message in (
        ("rewards", np.zeros(5, np.float32), "rewards: found 5 rows, expected 255 rows"),
        ("actions", np.zeros(255, np.float32), "actions: found shape"),
        ("observations", np.ones((255, 3)), "one and the same all episode"),
    ):
        path = given.write_raw(tmp_path / "a.hdf5", arrays() | {key: values})
        with pytest.raises(DataError, match=message):
            load(path, stream="always")

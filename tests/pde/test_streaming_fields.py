"""Fields left on the disk: emulators learn what they learn from fields in memory, to the bit."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.pde import streaming
from jaxrl_rollouts.pde.files import read, write_well
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.generate import Solved
from jaxrl_rollouts.pde.streaming import deviation
from jaxrl_rollouts.pde.training import Training

NET = tiny()


@pytest.mark.slow
def test_an_emulator_learns_the_same_from_a_file_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "rows"))
    monkeypatch.setattr(streaming, "_AT_ONCE", 4 * 10 * 2 * 8 * 2)  # two trajectories
    rng = np.random.default_rng(0)
    values = rng.normal((100, -1), (30, 0.1), (7, 10, 8, 2)).swapaxes(2, 3)
    path = tmp_path / "well.hdf5"
    write_well(path, [Solved(values, *np.full((2, 7), 8.0), np.arange(7.0))], channels=("u", "v"))
    found = read(path)
    assert found.layout == "The Well"
    config = Training(batch=3, warmup=2)
    options = {"network": NET, "history": 2, "every": 2, "updates": 6, "seeds": 3}
    memory, disk = (
        fit("mse", found, training=config, stream=stream, **options)
        for stream in ("never", "always")
    )
    assert memory.emulator.units == disk.emulator.units
    assert memory.emulator.objective == disk.emulator.objective
    for one, other in zip(*(jax.tree.leaves(f.params) for f in (memory, disk)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(list((tmp_path / "rows").glob("*.npy"))) == 1


def test_deviation_is_that_of_all_parts_together() -> None:
    values = np.random.default_rng(1).normal(50, 3, (9, 4, 2, 5)).astype(np.float32)
    parts = (values[part] for part in (slice(0, 2), slice(2, 3), slice(3, 9)))
    mean, std = deviation(parts, (0, 1, 3))
    np.testing.assert_allclose(mean, values.mean((0, 1, 3), np.float64), rtol=1e-12)
    np.testing.assert_allclose(std, values.std((0, 1, 3), dtype=np.float64), rtol=1e-10)

"""Studies of emulators: bands, times and medians on known arrays; sizes and updates are matched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.studies.operators import EXPERIMENT as OPERATORS
from jaxrl_rollouts.experiments.studies.operators import one_step, rolled
from jaxrl_rollouts.experiments.studies.operators_cells import (
    MIXERS,
    PARTS,
    parameters,
    updates_of,
)
from jaxrl_rollouts.experiments.studies.refiner import bands, pearson, where_first_off

CPU = OPERATORS.preset("cpu")


def test_where_a_spectrum_first_fails() -> None:
    late = np.array([[9.0, 1.0, 1.9, 2.0, 5.0], [1.0, 1.0, 0.4, 3.0, 1.0], [1.0] * 5])
    np.testing.assert_array_equal(where_first_off(late), [3, 2, 4])
    assert bands(64)["20 and above"] == slice(20, 33) and list(bands(32)) == ["1-7", "12-19"]
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert pearson(np.ones(3), np.array([1.0, 2.0, 3.0])) == 0.0


def test_mixers_have_as_many_parameters_within_five_percent() -> None:
    sizes = {name: parameters(CPU.arm(name), CPU.train.points) for name in (*MIXERS, "fno")}
    assert all(abs(size / sizes["drift"] - 1) <= 0.05 for size in sizes.values())
    with pytest.raises(ConfigError, match="conv"):
        check(replace(CPU, conv=replace(CPU.conv, dims=(40, 80))))
    for part, change in PARTS.items():
        assert CPU.arm(part) == replace(CPU.drift, **change)


def test_as_many_seconds_are_updates_in_the_ratio_of_speeds() -> None:
    def cells(attention: float) -> Grid:
        rates = {"drift": np.array([9.0, 10.0, 30.0]), "attention": np.full(3, attention)}
        made = {("updates", k): Cell(extra={"speed": v}) for k, v in rates.items()}
        return Grid(("matching", "arm"), made)

    ratio = np.median(7.3 / np.array([9.0, 10.0, 30.0]))
    want = 20 * round(ratio * CPU.training.steps / 20)
    assert updates_of(CPU, "attention", cells(7.3)) == want
    assert updates_of(CPU, "attention", cells(1e-6)) == 20


def test_measures_are_medians_of_a_starts_own_trajectories() -> None:
    """Two seeds, four test trajectories, of which the last two are asked for."""
    l1 = np.arange(2 * 4 * 3, dtype=float).reshape(2, 4, 3)
    steps = np.arange(2 * 5 * 4, dtype=float).reshape(2, 5, 4)
    cell = Cell(extra={"one_step_l1": l1, "relative_l1": steps}, seeds=2)
    rows = slice(2, 4)
    np.testing.assert_allclose(one_step(cell, rows), [850.0, 2050.0])
    np.testing.assert_allclose(rolled(cell, rows, 2), [650.0, 2650.0])
    lost = replace(cell, diverged=True)
    assert np.isnan(one_step(lost, rows)).all() and one_step(lost, rows).shape == (2,)

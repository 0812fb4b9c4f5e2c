"""`diffusion.fit`: its units and what it takes for rows."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.diffusion.fitted import fit_units
from jaxrl_rollouts.errors import DataError


def test_constant_columns_and_large_offsets_come_back() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=500), np.full(500, 5.1), 1e9 + rng.normal(size=500)])
    small = diffusion.ResidualMlp(width=16, blocks=1)
    model = diffusion.fit(rows, small, updates=20, batch=32)
    drawn = model.sample(64)
    assert drawn.dtype == np.float64 and (drawn[:, 1] == 5.1).all()
    # float32 has steps of 64 there, while the rows deviate by 1
    assert np.abs(drawn[:, 2] - 1e9).max() < 20 and len(np.unique(drawn[:, 2])) == 64
    single = diffusion.fit(rows.astype(np.float32), small, updates=2, batch=32).sample(4)
    assert single.dtype == np.float32 and (single[:, 1] == np.float32(5.1)).all()
    student = model.distil(rows, calls=1, updates=2, batch=16).sample(4)
    assert (student[:, 1] == 5.1).all()


def test_units_are_of_float64_numbers() -> None:
    rows = 1e15 + np.arange(8.0)[:, None]
    units = fit_units(rows)
    assert units.mean[0] == 1e15 + 3.5 and units.std[0] == np.arange(8.0).std()
    back = units.denormalise(units.normalise(rows), rows.dtype)
    assert np.abs(back - rows).max() < 0.2  # float64 has steps of 0.125 there


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 2.0], [3.0]], "lists of several lengths"),
        (np.ma.masked_equal(np.ones((4, 2)), 1), "8 masked entries"),
        ([["a", "b"]], "dtype <U1"),
        ([[1.0, np.nan]], "finite numbers"),
    ],
)
def test_rows_that_are_none_are_refused_in_one_line(rows: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        diffusion.fit(rows, updates=1)

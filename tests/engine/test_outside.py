"""One door for arrays from outside: every public function refuses the same in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts import diffusion
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.fitted import fit_ensemble
from jaxrl_rollouts.offline.data import from_arrays as rows_from_arrays
from jaxrl_rollouts.outside import rounding_loss, to_array, to_numbers
from jaxrl_rollouts.pde.files import from_arrays as fields_from_arrays

ENDS = {"terminals": np.zeros(6), "timeouts": np.arange(6) == 5}
ROWS = {"observations": np.ones((6, 2)), "actions": np.zeros((6, 1)), "rewards": np.zeros(6)}
MASKED = np.ma.masked_greater(np.arange(12.0).reshape(6, 2), 9.0)
BAD: dict[str, tuple[Any, str]] = {
    "ragged": ([[1.0, 2.0]] * 5 + [[3.0]], "lists of several lengths"),
    "masked": (MASKED, "2 masked entries"),
    "masked parts": (list(MASKED), "2 masked entries"),
    "objects": (np.array([[{}]] * 6), "Python objects"),
}
DOORS: dict[str, Callable[[Any], Any]] = {
    "observations": lambda x: rows_from_arrays(**ROWS | {"observations": x}, **ENDS),
    "actions": lambda x: rows_from_arrays(**ROWS | {"actions": x}, **ENDS),
    "rewards": lambda x: rows_from_arrays(**ROWS | {"rewards": x}, **ENDS),
    "next_observations": lambda x: rows_from_arrays(**ROWS, **ENDS, next_observations=x),
    "terminals": lambda x: rows_from_arrays(**ROWS, **ENDS | {"terminals": x}),
    "timeouts": lambda x: rows_from_arrays(**ROWS, **ENDS | {"timeouts": x}),
    "fields": fields_from_arrays,
    "conditions": lambda x: fields_from_arrays(np.ones((6, 3, 8)), conditions={"nu": x}),
    "spacings": lambda x: fields_from_arrays(np.ones((6, 3, 8)), dx=x),
    "diffusion": diffusion.fit,
    "inputs": lambda x: fit_ensemble(x, np.ones((6, 1))),
    "targets": lambda x: fit_ensemble(np.ones((6, 1)), x),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_in_one_line(door: str, what: str) -> None:
    given, found = BAD[what]
    with pytest.raises(DataError) as caught:
        DOORS[door](given)
    assert caught.value.found == found and "\n" not in str(caught.value)


def test_sound_arrays_come_as_they_are() -> None:
    whole = np.ma.masked_greater(np.arange(3.0), 9.0)  # of which nothing is masked
    np.testing.assert_array_equal(to_array("x", "y", whole), [0, 1, 2])
    assert to_numbers("x", "y", [[1, 2], [3, 4]]).shape == (2, 2)
    with pytest.raises(DataError, match="y: found dtype <U1, expected a real number dtype"):
        to_numbers("x", "y", ["a"])


def test_rounding_is_measured_against_the_median_change() -> None:
    """A position of 5,200,000 m that moves by 1 m is rounded by up to a quarter of it."""
    steps = 5.2e6 + np.arange(9)[:, None] * np.array([1.0, 1.1])
    loss = rounding_loss(np.concatenate([steps, np.full((9, 1), 7.3e7)], 1))
    assert loss[0] == 0, "whole numbers below 2^24"
    error = np.abs(steps[:, 1] - np.float32(steps[:, 1])).max()
    np.testing.assert_allclose(loss[1], error / 1.1, rtol=1e-6)
    assert 0.1 < loss[1] < 0.25 and loss[2] == 0, "a constant has no change to be rounded"
    assert not rounding_loss(steps.astype("f4")).any()

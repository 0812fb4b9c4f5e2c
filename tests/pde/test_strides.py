"""Stretches of trajectories at several strides."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde import from_arrays, strided


def test_every_stretch_is_the_fields_own_frames() -> None:
    """Fields that hold `100 row + frame` everywhere."""
    u = (100 * np.arange(3)[:, None] + np.arange(9))[..., None] * np.ones(8)
    found = strided(from_arrays(u, dt=0.5, dx=0.1), (1, 2))
    whole = found.array()
    assert whole.shape == found.shape == (12, 4, 1, 8)
    at = whole[:, :, 0, 0]
    steps = np.repeat([1, 2], 6)
    np.testing.assert_array_equal(np.diff(at, axis=1), np.tile(steps[:, None], 3))
    np.testing.assert_allclose(found.dt, 0.5 * steps)
    np.testing.assert_array_equal(at[:, 0] % 100, [0, 4, 0, 4, 0, 4, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(at[:, 0] // 100, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(found.read(slice(2, 9), slice(1, None, 2)), whole[2:9, 1::2])
    np.testing.assert_array_equal(found.read(7, 2), whole[7, 2])


def test_what_has_no_strides_is_named() -> None:
    fields = from_arrays(np.random.default_rng(0).normal(size=(2, 3, 8)), dt=0.1)
    with pytest.raises(DataError, match="frames: found 3, expected at least 4"):
        strided(fields, (1, 2))
    with pytest.raises(ConfigError, match="strides"):
        strided(fields, (0,))
    with pytest.raises(DataError, match="dt: found not known"):
        strided(from_arrays(np.random.default_rng(0).normal(size=(2, 8, 8))), (1, 2))

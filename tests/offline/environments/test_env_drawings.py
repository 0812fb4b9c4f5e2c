"""Pictures of embedded environments."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.environments.drawings import FIELDS, LINES, painter
from jaxrl_rollouts.offline.environments.registry import EMBEDDED


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_embedded_environment_is_drawn(name: str) -> None:
    env, paint = EMBEDDED[name], painter(name)
    states = np.asarray(env.observe(env.reset(jax.random.key(0), 2)))
    first, second = (paint([state] * 40) for state in states)
    assert first.ndim == 3 and first.shape[2] == 3 and first.dtype == np.uint8
    assert (first != second).any() and (first < 128).any()


def test_lines_show_the_last_observation_and_fields_all_of_them() -> None:
    assert not set(LINES) & set(FIELDS)
    ends, other = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])
    paint = painter("pendulum")
    np.testing.assert_array_equal(paint([other, ends]), paint([ends]))
    field = painter("ks_control")
    high, low = np.full(64, 3.0), np.full(64, -3.0)
    assert (field([low, high]) != field([high])).any()
    np.testing.assert_array_equal(field([low] * 9 + [high] * 401), field([high] * 401))


def reds_and_blues(frame: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of the highest and of the lowest colour of the map, `[H, W]` each."""
    red, _, blue = np.moveaxis(frame.astype(int), -1, 0)
    return red > blue + 70, blue > red + 70


def test_colours_of_a_field_are_its_values_at_their_times() -> None:
    """The first half of the episode at the highest colour, a quarter at the lowest."""
    high, low = np.full((200, 64), 3.0), np.full((100, 64), -3.0)
    red, blue = reds_and_blues(painter("ks_control")([*high, *low]))
    assert red.sum() / blue.sum() == pytest.approx(2.0, rel=0.05)
    at_red, at_blue = np.flatnonzero(red.any(0)), np.flatnonzero(blue.any(0))
    assert at_red.max() <= at_blue.min(), "time goes to the right"
    half = np.zeros((200, 64))
    half[:, :32] = 3.0
    red, _ = reds_and_blues(painter("ks_control")([*half]))
    above, _ = reds_and_blues(painter("ks_control")([*half[:, ::-1]]))
    assert np.flatnonzero(red.any(1)).min() > np.flatnonzero(above.any(1)).min(), "x goes up"


def test_a_field_without_control_is_above_and_as_far() -> None:
    paint = painter("ks_control", beside=np.full((400, 64), 3.0))
    red, blue = reds_and_blues(paint(list(np.full((100, 64), -3.0))))
    assert np.flatnonzero(red.any(1)).max() < np.flatnonzero(blue.any(1)).min()
    assert red.sum() == pytest.approx(blue.sum(), rel=0.05)


def test_an_environment_without_a_drawing_is_refused() -> None:
    with pytest.raises(ConfigError, match="hopper.*expected one of pendulum"):
        painter("hopper")

"""Sound in a box: speed of a pulse, energy, walls as mirrors, and what a seed decides."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.pde.acoustics import (
    BULK,
    DENSITY,
    acoustic,
    advanced,
    at_rest,
    energy,
    obstacles,
    rings,
)

N, DX = 256, 2.0 / 256
EVEN = np.full((N, N), DENSITY)


def test_a_pulse_travels_at_the_speed_of_sound() -> None:
    x = (np.arange(N) + 0.5) * DX
    start = np.exp(-np.square((x - 1.0) / 0.1))[:, None] * np.ones(N)
    c, dt = np.sqrt(BULK / DENSITY), 0.0025
    p = advanced(at_rest(start), EVEN, DX, dt, 240).p[:, 0]
    # d'Alembert: half goes either way; at rest half a step before the start.
    right = x[x > 1.0][p[x > 1.0].argmax()]
    assert abs((right - 1.0) / (240.5 * dt) - c) < 0.01 * c + DX
    exact = sum(np.exp(-np.square((x - 1.0 - s * c * 240.5 * dt) / 0.1)) for s in (-1, 1)) / 2
    np.testing.assert_allclose(p, exact, atol=0.004)


def test_energy_is_kept_with_obstacles_and_walls() -> None:
    rng = np.random.default_rng(1)
    density, state = obstacles(rng, 64), at_rest(rings(rng, 64))
    assert density.max() > 10.0 and density.min() == DENSITY
    found = []
    for _ in range(5):
        after = advanced(state, density, 2 / 64, 0.0125, 1)
        found.append(energy(state, after, density, 2 / 64))
        state = advanced(state, density, 2 / 64, 0.0125, 100)
    np.testing.assert_allclose(found, found[0], rtol=1e-10)


def test_a_wall_is_a_mirror() -> None:
    """A box is one half of the box of twice the length whose state is even about the middle."""
    rng = np.random.default_rng(2)
    density, p = obstacles(rng, 32), rings(rng, 32)
    own = advanced(at_rest(p), density, 2 / 32, 0.02, 150).p

    def mirrored(field: np.ndarray) -> np.ndarray:
        both = np.concatenate([field[::-1], field])
        return np.concatenate([both[:, ::-1], both], 1)

    twice = advanced(at_rest(mirrored(p)), mirrored(density), 2 / 32, 0.02, 150).p
    np.testing.assert_allclose(twice[32:, 32:], own, atol=1e-12)


def test_a_trajectory_depends_on_its_number_only() -> None:
    few, more = acoustic(1, 16, 4, seed=3), acoustic(2, 16, 4, seed=3)
    np.testing.assert_array_equal(few[0], more[0])
    assert few.shape == (1, 4, 4, 16, 16) and few.dtype == np.float32
    assert not np.array_equal(more[0], more[1])
    assert (few[:, :, 3] == few[:, :1, 3]).all() and not few[:, 0, 1:3].any()
    # Half the time between frames: every other frame is the same, to the solver's order.
    fine = acoustic(1, 16, 7, dt=0.025, seed=3)
    np.testing.assert_allclose(fine[:, ::2, 0], few[:, :, 0], atol=0.05)

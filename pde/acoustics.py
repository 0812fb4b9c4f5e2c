"""Sound in a closed box with obstacles: the linear wave equation of pressure and velocity.

    p_t = -K div v,    rho v_t = -grad p,    v . n = 0 on all four walls

as in The Well's acoustic scattering (Ohana et al. 2024, arXiv 2412.00568), there with open ends
along one axis. Staggered in space and time (Yee 1966): pressures at the centres of cells,
velocities on their faces, where `1 / rho` is the mean of the two cells'. In numpy and float64, so
that a seed gives the same bits wherever it is run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BULK = 4.0  # K
DENSITY = 3.0  # of the medium between obstacles


class Sound(NamedTuple):
    """The state of a box.

    Attributes:
        p: `[N, N]` pressures at the centres, at time t.
        x: `[N + 1, N]` velocities along axis 0 on its faces, at t - dt / 2; 0 on the walls.
        y: `[N, N + 1]` likewise along axis 1.
    """

    p: np.ndarray
    x: np.ndarray
    y: np.ndarray


def at_rest(p: np.ndarray) -> Sound:
    """A pressure `[N, N]` in a medium that does not move."""
    n = len(p)
    return Sound(p, np.zeros((n + 1, n)), np.zeros((n, n + 1)))


def advanced(state: Sound, density: np.ndarray, dx: float, dt: float, steps: int) -> Sound:
    """The state after some steps of leapfrog.

    Args:
        state: the box.
        density: `[N, N]` of the cells.
        dx, dt: steps of the grid; stable below `dx / (c sqrt(2))`, `c = sqrt(BULK / density)`.
        steps: number of steps.
    """
    light = 1.0 / density
    along = dt / dx * (light[1:] + light[:-1]) / 2
    across = dt / dx * (light[:, 1:] + light[:, :-1]) / 2
    p, x, y = (part.copy() for part in state)
    for _ in range(steps):
        x[1:-1] -= along * np.diff(p, axis=0)
        y[:, 1:-1] -= across * np.diff(p, axis=1)
        p -= BULK * dt / dx * (np.diff(x, axis=0) + np.diff(y, axis=1))
    return Sound(p, x, y)


def energy(before: Sound, after: Sound, density: np.ndarray, dx: float) -> float:
    """`int p^2 / (2 K) + rho |v|^2 / 2` of a box between two steps: leapfrog keeps it exactly.

    Args:
        before, after: one step apart; the velocities of `after` lie between their pressures.
        density, dx: as of `advanced`.
    """
    light = 1.0 / density
    x = np.square(after.x[1:-1]) / ((light[1:] + light[:-1]) / 2)
    y = np.square(after.y[:, 1:-1]) / ((light[:, 1:] + light[:, :-1]) / 2)
    potential = (before.p * after.p).sum() / BULK
    return float(potential + x.sum() + y.sum()) * dx**2 / 2


def obstacles(rng: np.random.Generator, points: int) -> np.ndarray:
    """Densities `[N, N]`: 2 to 6 discs of 10 to 1,000 in the medium of `DENSITY`."""
    x = (np.arange(points) + 0.5) / points
    density = np.full((points, points), DENSITY)
    for _ in range(rng.integers(2, 7)):
        (a, b), radius = rng.uniform(0.1, 0.9, 2), rng.uniform(0.05, 0.12)
        inside = np.hypot(x[:, None] - a, x - b) < radius
        density[inside] = 10 ** rng.uniform(1, 3)
    return density


def rings(rng: np.random.Generator, points: int) -> np.ndarray:
    """Pressures `[N, N]`: 1 to 3 rings of height 1, radius 0.1 to 0.2 and width 0.05."""
    x = (np.arange(points) + 0.5) / points
    p = np.zeros((points, points))
    for _ in range(rng.integers(1, 4)):
        (a, b), radius = rng.uniform(0.2, 0.8, 2), rng.uniform(0.1, 0.2)
        p += np.exp(-np.square((np.hypot(x[:, None] - a, x - b) - radius) / 0.05))
    return p


def acoustic(
    trajectories: int,
    points: int,
    frames: int,
    dt: float = 0.05,
    extent: float = 2.0,
    seed: int = 0,
) -> np.ndarray:
    """Rings of pressure in boxes with obstacles, `[N, T, 4, points, points]` float32.

    Channels are pressure, both velocities and the speed of sound, which is constant in time. Solved
    on twice the points; a value is the mean of its four cells.

    Args:
        trajectories, frames: numbers of trajectories and frames.
        points: along both axes.
        dt: time between frames.
        extent: length of the box.
        seed: trajectory `i` depends on it and on `i` only.
    """
    fine = 2 * points
    dx = extent / fine
    # A Courant number of at most 1/2 in the fastest medium.
    substeps = int(np.ceil(2 * dt * np.sqrt(BULK / DENSITY) / dx))
    found = np.empty((trajectories, frames, 4, points, points), np.float32)
    for i in range(trajectories):
        rng = np.random.default_rng([seed, i])
        density, state = obstacles(rng, fine), at_rest(rings(rng, fine))
        speed = _coarse(np.sqrt(BULK / density))
        for t in range(frames):
            if t:
                state = advanced(state, density, dx, dt / substeps, substeps)
            centred = (state.x[1:] + state.x[:-1]) / 2, (state.y[:, 1:] + state.y[:, :-1]) / 2
            found[i, t] = [*map(_coarse, (state.p, *centred)), speed]
    return found


def _coarse(field: np.ndarray) -> np.ndarray:
    """The means of two by two cells."""
    half = len(field) // 2
    return field.reshape(half, 2, half, 2).mean((1, 3))

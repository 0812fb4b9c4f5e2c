"""Trajectories of a known equation, solved into memory."""

from __future__ import annotations

import numpy as np

from .equations import equation
from .fieldset import FieldSet
from .files import from_arrays
from .generate import Simulation, Solved, generate


def solve(config: Simulation | None = None, *, progress: bool = False) -> FieldSet:
    """Solve an equation many times, in float64.

        fields = solve(Simulation("ks", trajectories=64, points=64, extent=(22, 22), dt=(0.8, 0.8)))

    Args:
        config: the simulation; PDE-Refiner's training set if left out.
        progress: show progress.

    Returns:
        `[trajectories, frames, C, *points]`, with the equation's parameter by its name.

    Raises:
        ConfigError: a setting is out of range.
        DivergenceError: a solution became infinite.
        MissingExtraError: the extra `pde` is not installed.
    """
    config = config or Simulation()
    chunks = generate(config, progress=progress)
    solved = Solved(*(np.concatenate(column) for column in zip(*chunks, strict=True)))
    which = equation(config.equation)
    fields = from_arrays(
        solved.fields,
        solved.dt,
        solved.extent[:, None] / config.points,
        {which.parameter: solved.parameter},
        names=which.channels,
        axes=which.axes,
        source=config.equation,
    )
    return fields._replace(equation=config.equation)

"""Solved equations as trajectories to train on and to measure on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.evaluation import Holdout
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.flows import find_flow
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.solving import solve
from jaxrl_rollouts.pde.trained import TrainedEmulator
from jaxrl_rollouts.pde.units import standardised
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext


def solved(name: str, simulations: Sequence[Simulation], context: RunContext | None) -> FieldSet:
    """Trajectories of one equation, float32; those of each simulation follow the previous ones'."""
    first, shown = simulations[0], bool(context and context.progress)
    which = equation(first.equation)

    def measure() -> dict[str, np.ndarray]:
        sets = [solve(one, progress=shown) for one in simulations]
        columns = {
            "u": [one.array().astype(np.float32) for one in sets],
            "dt": [one.dt for one in sets],
            "dx": [one.extent / first.points for one in sets],
            "value": [one.parameters[which.parameter] for one in sets],
        }
        return {key: np.concatenate(parts) for key, parts in columns.items()}

    found = remember(context, "data", name, measure)
    fields = from_arrays(
        found["u"],
        found["dt"],
        found["dx"],
        {which.parameter: found["value"]},
        names=which.channels,
        axes=which.axes,
        source=which.name,
    )
    return fields._replace(equation=which.name)


def held_out(own: TrainedEmulator, test: FieldSet, steps: int, seeds: int, seed: int) -> Holdout:
    """Test trajectories in the units of an emulator, to measure rollouts of so many steps on."""
    u = np.asarray(test.read(slice(None), slice(0, None, own.stride)), np.float32)
    return Holdout(
        standardised(test, u, own.units, own.conditions),
        steps,
        own.history,
        seeds,
        seed,
        own.dt or 1.0,
        own.units,
        find_flow(test),
        own.lengths,
        own.boundaries,
    )

"""Solved equations as trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.files.joined import joined
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.solving import solve
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext


def solved(name: str, simulations: Sequence[Simulation], context: RunContext | None) -> FieldSet:
    """Trajectories of one equation, float32; those of each simulation follow the previous ones'."""
    first, shown = simulations[0], bool(context and context.progress)
    which = equation(first.equation)

    def measure() -> dict[str, np.ndarray]:
        one = joined([solve(each, progress=shown) for each in simulations])
        known = {"dt": one.dt, "dx": one.extent / first.points}
        known["value"] = np.asarray(one.parameters[which.parameter])
        return {"u": one.array().astype(np.float32), **known}

    found = remember(context, "data", name, measure)
    values = {which.parameter: found["value"]}
    about: Any = {"names": which.channels, "axes": which.axes, "source": which.name}
    fields = from_arrays(found["u"], found["dt"], found["dx"], values, **about)
    return fields._replace(equation=which.name)

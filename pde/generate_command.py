"""`jaxrl-rollouts pde generate`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import signature as inspect_signature
from pathlib import Path
from typing import Any, Literal

import tyro

from jaxrl_rollouts.cli.options import check_options
from jaxrl_rollouts.cli.parsing import value_of
from jaxrl_rollouts.errors import ConfigError

from .generate_settings import SUITED, Simulation
from .inspection import inspect

_DEFAULT = Simulation()


def generate_for(arguments: Sequence[str]) -> Callable[..., None]:
    """`generate` whose defaults are what suits the equation that the arguments name."""
    named = value_of(arguments, "--equation")
    if named not in SUITED:
        return generate

    @functools.wraps(generate)
    def suited(*args: Any, **kwargs: Any) -> None:
        generate(*args, **kwargs)

    signature = inspect_signature(generate)
    config = signature.parameters["config"].replace(default=Simulation(named))
    suited.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list((signature.parameters | {"config": config}).values())
    )
    return suited


def generate(
    out: Path,
    split: Literal["train", "valid", "test"] = "train",
    layout: Literal["pdearena", "well", "apebench"] | None = None,
    config: tyro.conf.OmitArgPrefixes[Simulation] = _DEFAULT,
    progress: bool = True,
) -> None:
    """Solve an equation many times and write the trajectories.

    Args:
        out: the file to write, .h5 or .hdf5 (.npy for apebench); it appears once it is complete.
        split: name of the split.
        layout: layout of the file. pdearena keeps float64; well and apebench are float32. Left out,
            pdearena for one axis, well for the plane. In the plane pdearena has a scalar and its
            velocity, so it is for flows: vorticity is the scalar.
        config: the simulation to solve.
        progress: show progress.
    """
    # These load jax, which help should not wait for.
    from .equations import equation
    from .files import write_apebench, write_pdearena, write_pdearena_flows, write_well
    from .generate import generate as solve

    check_options(config)
    which = equation(config.equation)
    layout = layout or ("pdearena" if which.axes == 1 else "well")
    if which.axes > 1 and layout == "apebench":
        expected = f"well: {layout} is of one axis, {which.name} has {which.axes}"
        raise ConfigError("--layout", layout, expected)
    flow = which.channels == ("vorticity",)
    if which.axes > 1 and layout == "pdearena" and not flow:
        expected = f"well: {layout} holds a vorticity in the plane, {which.name} has none"
        raise ConfigError("--layout", layout, expected)
    endings = (".npy",) if layout == "apebench" else (".h5", ".hdf5")
    if out.suffix not in endings:
        raise ConfigError("--out", str(out), f"a file name that ends in {' or '.join(endings)}")
    chunks, name = solve(config, progress=progress), which.parameter
    if layout == "pdearena" and flow:
        write_pdearena_flows(out, chunks, split=split, parameter=name, equation=which.name)
    elif layout == "pdearena":
        low, high = config.parameter_range
        write_pdearena(out, chunks, split=split, viscosity=low < high)
    elif layout == "apebench":
        write_apebench(out, chunks, split=split, parameter=name)
    else:
        named = {"parameter": name, "channels": which.channels, "equation": which.name}
        write_well(out, chunks, split=split, **named)
    inspect(str(out))

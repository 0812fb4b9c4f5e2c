"""`jaxrl-rollouts pde generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tyro

from jaxrl_rollouts.cli.options import check_options
from jaxrl_rollouts.errors import ConfigError

from .generate_settings import GenerateConfig
from .inspection import inspect

_DEFAULT = GenerateConfig()


def generate(
    out: Path,
    split: Literal["train", "valid", "test"] = "train",
    layout: Literal["pdearena", "well", "apebench"] = "pdearena",
    config: tyro.conf.OmitArgPrefixes[GenerateConfig] = _DEFAULT,
    progress: bool = True,
) -> None:
    """Solve an equation many times and write the trajectories.

    Args:
        out: the file to write, .h5 or .hdf5 (.npy for apebench); it appears once it is complete.
        split: which set it is.
        layout: of the file. pdearena keeps float64; well and apebench are float32.
        config: what to solve.
        progress: show progress.
    """
    # These load jax, which help should not wait for.
    from .equations import equation
    from .files import write_apebench, write_pdearena, write_well
    from .generate import generate as solve

    check_options(config)
    config, which = config.suited(), equation(config.equation)
    if which.axes > 1 and layout != "well":
        expected = f"well: {layout} is of one axis, {which.name} has {which.axes}"
        raise ConfigError("--layout", layout, expected)
    endings = (".npy",) if layout == "apebench" else (".h5", ".hdf5")
    if out.suffix not in endings:
        raise ConfigError("--out", str(out), f"a file name that ends in {' or '.join(endings)}")
    chunks, name = solve(config, progress=progress), which.parameter
    if layout == "pdearena":
        low, high = config.parameter
        write_pdearena(out, chunks, split=split, viscosity=low < high)
    else:
        if layout == "well":
            write_well(out, chunks, split=split, parameter=name, channels=which.channels)
        else:
            write_apebench(out, chunks, split=split, parameter=name)
    inspect(str(out))

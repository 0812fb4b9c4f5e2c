"""`jaxrl-rollouts pde generate` and `pde inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import Command

from .generate import GenerateConfig

if TYPE_CHECKING:
    import numpy as np

    from .fieldset import FieldSet


@dataclass(frozen=True)
class Generate:
    """Solve an equation many times and write the trajectories, in PDEArena's layout.

    Attributes:
        out: the HDF5 file to write; it appears once it is complete.
        split: which set it is.
        config: what to solve; the default is the training set of PDE-Refiner's
            Kuramoto-Sivashinsky study.
        progress: show progress.
    """

    out: Path
    split: Literal["train", "valid", "test"] = "train"
    config: GenerateConfig = field(default_factory=GenerateConfig)
    progress: bool = True


def generate(options: tyro.conf.OmitArgPrefixes[Generate]) -> None:
    """Solve an equation many times and write the trajectories, in PDEArena's layout."""
    from .files import write_pdearena
    from .generate import generate as solve

    check(options.config)
    if options.out.suffix not in (".h5", ".hdf5"):
        raise ConfigError("--out", str(options.out), "a file name that ends in .h5 or .hdf5")
    low, high = options.config.parameter
    chunks = solve(options.config, progress=options.progress)
    write_pdearena(options.out, chunks, split=options.split, viscosity=low < high)
    inspect(str(options.out))


def inspect(file: tyro.conf.Positional[str], out: Path | None = None, rows: int = 64) -> None:
    """Print what a file of trajectories holds and whether it can be trained on.

    Args:
        file: an HDF5 file in PDEArena's layout.
        out: also draw a trajectory, the spectrum and the increments into this PNG file.
        rows: trajectories to look at.
    """
    import numpy as np

    from .files import read_pdearena
    from .generate import quality

    if rows < 1:
        raise ConfigError("--rows", rows, "at least 1")
    found = read_pdearena(file)
    values = found.read(slice(0, rows), slice(None))
    count, frames, channels, *space = found.shape
    print(f"{file}: {found.layout}, {count:,} trajectories of {frames} frames")
    print(f"field        {channels} channel(s) on {' x '.join(map(str, space))} points")
    ranges = {"frame time": found.dt, "extent": found.extent, **found.parameters}
    for name, numbers in ranges.items():
        print(f"{name:<12} {np.min(numbers):.4g} to {np.max(numbers):.4g}")
    if frames > 1:
        seen = quality(values)
        print(f"spread       {seen.std:.4g} (of {len(values)} trajectories)")
        print(f"change       {np.median(seen.increment):.4g} from frame to frame (median)")
        print(f"nearly still {100 * seen.steady:.1f} % of the trajectories")
        print(f"tail         {seen.tail:.1e} of the highest amplitude at the last wavenumbers")
    if out is not None:
        draw(found, values, out)
        print(f"picture: {out}")


def draw(found: FieldSet, values: np.ndarray, out: Path) -> None:
    """One trajectory in space and time, the mean spectrum, change from frame to frame."""
    import numpy as np

    from jaxrl_rollouts.pictures import figure, save_png

    made, (left, middle, right) = figure(1, 3, title=found.path.name)
    span = (0.0, float(found.dt[0] * values.shape[1]), 0.0, float(found.extent[0]))
    image = left.imshow(
        values[0, :, 0].T, aspect="auto", origin="lower", extent=span, cmap="RdBu_r"
    )
    left.set_xlabel("time")
    left.set_ylabel("x")
    left.grid(visible=False)
    made.colorbar(image, ax=left)
    amplitude = np.abs(np.fft.rfft(np.asarray(values, np.float64)[:, -1, 0])).mean(0)
    middle.semilogy(amplitude)
    middle.set_xlabel("wavenumber")
    middle.set_ylabel("mean |rfft| of the last frame")
    right.hist(np.diff(values, axis=1).std((1, 2, 3)), bins=30)
    right.set_xlabel("change from frame to frame (std)")
    right.set_ylabel("trajectories")
    save_png(made, out)


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `pde ...`; raises `UserError` for bad input."""
    tyro.extras.subcommand_cli_from_dict(
        {"generate": generate, "inspect": inspect},
        prog=prog,
        description="Make and look at trajectories of partial differential equations.",
        args=list(arguments) or ["--help"],
    )


COMMAND = Command("pde", "Make and look at trajectories of partial differential equations.", main)

"""`jaxrl-rollouts pde roll RUN FILE`: roll a trained emulator from the first frames of a file."""

from __future__ import annotations

from pathlib import Path

import tyro

from jaxrl_rollouts.errors import ConfigError

ENDINGS = (".h5", ".hdf5", ".npy", ".npz")


def roll(
    run: tyro.conf.Positional[Path],
    file: tyro.conf.Positional[str],
    steps: int | None = None,
    out: Path | None = None,
    picture: Path | None = None,
    rows: int = 64,
    training_seed: int = 0,
    key: int = 0,
    axes: int | None = None,
) -> None:
    """Roll a trained emulator forward from the first frames of a file and write what comes.

    Args:
        run: folder of `pde train`, or any folder an emulator was saved in.
        file: trajectories to start from, in any layout `pde train` reads.
        steps: how many; left out, 1000 on one axis of space, 200 in the plane, 50 on three.
        out: where to: .h5 or .hdf5 (PDEArena's layout; The Well's for several channels or axes,
            all periodic), .npz, or .npy (APEBench's, of one axis). The start is its first frame.
            Left out, rolled.h5, or rolled.npz in a plane with walls.
        picture: also draw the first trajectory into this .png file, on one axis beside the file's
            frames and the error as far as those go; fields in the plane move in a .gif, likewise.
        rows: trajectories to roll, the first ones.
        training_seed: which seed of the run, from 0.
        key: of the noise of a stochastic emulator.
        axes: of space, of a plain array whose shape does not say.
    """
    if out and out.suffix not in ENDINGS:
        raise ConfigError("--out", str(out), f"a file name that ends in {', '.join(ENDINGS)}")
    if out and not out.parent.is_dir():
        raise ConfigError("--out", str(out), f"an existing folder {out.parent}")
    if rows < 1:
        raise ConfigError("--rows", rows, "at least 1")
    from .rolling import roll_file  # loads jax, which help should not wait for

    roll_file(run, file, steps, out, picture, rows, training_seed, key, axes)

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
    every: int = 1,
    channels: tuple[str, ...] = (),
    members: bool = False,
    miss: float = 0.1,
    calibration: str = "",
) -> None:
    """Roll a trained emulator forward from the first frames of a file and write what comes.

    Args:
        run: folder of `pde train`, or any folder an emulator was saved in.
        file: trajectories to start from, in any layout `pde train` reads; several, a folder, a
            pattern. Of one in The Well's layout, `test`. Other points than in training are possible
            with fno (the same domain) and resnet, unet, convnext, transolver (the same spacing).
        steps: number of steps; left out, 1000 on one axis of space, 200 in the plane, 50 on three.
        out: output file: .h5 or .hdf5 (PDEArena's layout; The Well's for several channels or axes,
            all periodic), .npz, or .npy (APEBench's, of one axis). The start is its first frame.
            Left out, rolled.h5, or rolled.npz in a plane with walls.
        picture: also plot the first trajectory into this .png file, on one axis beside the file's
            frames and the error as far as those go; fields in the plane move in a .gif, likewise.
        rows: trajectories to roll, the first ones.
        training_seed: index of the run's seed, from 0.
        key: key of the noise of a stochastic emulator.
        axes: number of spatial axes, for a plain array with an ambiguous shape.
        every: keep every so many frames of the file, the first included; left out, those that make
            a step, by the file's dt or as in training.
        channels: names of the channels to use; left out, those of the training.
        members: also roll the other training seeds (and step sizes, of `pde train --strides 1 2`),
            print how long each trajectory can be followed and write it into the file: `agreement`,
            `valid_time` (point estimate) and `promised_time`. --picture also plots them, as
            NAME-trust.png. Times are in steps.
        miss: share of the promised times that may be too long.
        calibration: trajectories never trained on, at least 2 / miss of them, that the promise is
            calibrated on. Left out, those that the run was tested on.
    """
    if out and out.suffix not in ENDINGS:
        raise ConfigError("--out", str(out), f"a file name that ends in {', '.join(ENDINGS)}")
    if out and not out.parent.is_dir():
        raise ConfigError("--out", str(out), f"an existing folder {out.parent}")
    if rows < 1:
        raise ConfigError("--rows", rows, "at least 1")
    if members and not 0 < miss < 1:
        raise ConfigError("--miss", miss, "a number above 0 and below 1")
    if members and out and out.suffix == ".npy":
        raise ConfigError(
            "--out", out.name, "a name that ends in .h5, .hdf5 or .npz with --members"
        )
    if calibration and not members:
        raise ConfigError("--calibration", calibration, "--members beside it")
    from .rolling import roll_file  # loads jax, which help should not wait for

    asked = (miss, calibration) if members else None
    roll_file(
        run,
        file,
        steps,
        out,
        picture,
        rows,
        training_seed,
        key,
        axes=axes,
        every=every,
        channels=channels,
        asked=asked,
    )

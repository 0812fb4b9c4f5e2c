"""`jaxrl-rollouts data make`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl_rollouts.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from jaxrl_rollouts.record.run import Run

    from .sets import Made


def make(
    name: tyro.conf.Positional[str],
    out: Path | None = None,
    rows: int = 100_000,
    seed: Annotated[int, tyro.conf.arg(metavar="INT>=0")] = 0,
    steps: int | None = None,
    progress: bool = True,
) -> None:
    """Make a dataset by name: train SAC in the simulator, then play what it was on the way.

    Stopped with Ctrl-C, the same command goes on where it was.

    Args:
        name: halfcheetah, hopper, walker2d, inverted-double-pendulum, reacher, swimmer or pendulum,
            with -random (uniform actions), -medium (a third of the way to the expert's return),
            -expert (the policy at the end) or -mixed (five policies along the training, as a replay
            buffer has them): halfcheetah-mixed.
        out: the folder to write to; left out, the data folder, where --dataset finds it by name.
        rows: transitions of the set.
        seed: the same seed makes the same file.
        steps: of the training in the simulator, rounded; left out, what the environment needs.
        progress: show progress.
    """
    # These load jax, which `data --help` should not wait for.
    from jaxrl_rollouts.record.run import Run

    from ..data.names import data_folder
    from .sets import RECIPES, make_set, split_name

    family, kind = split_name(name)
    if not 0 <= seed < 2**32:
        raise ConfigError("--seed", seed, "a whole number from 0 to 4294967295")
    folder = out or data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    recipe = RECIPES[family]
    if steps is not None:
        recipe = recipe._replace(steps=steps)
    if kind == "random":
        _tell(make_set(name, folder, rows=rows, seed=seed))
        return
    place = _training_place(folder, data_folder(), f"{family}-{recipe.steps}-seed{seed}")
    with Run.open(place, progress=progress) as run:
        try:
            made = make_set(name, folder, rows=rows, seed=seed, recipe=recipe, context=run)
        except Interrupted as error:
            at = str(error).partition(";")[0]
            raise Interrupted(f"{at}; go on with the same command") from None
        _tell(made)
        _report(made, run)


def _training_place(folder: Path, shared: Path, name: str) -> Path:
    """Where a training lies: beside its sets, or where an earlier one of the data folder does."""
    here, there = (at / "training" / name for at in (folder, shared))
    return there if there.is_dir() and not here.is_dir() else here


def _tell(made: Made) -> None:
    rows = sum(part.rows for part in made.parts)
    print(f"{made.path}: {rows:,} transitions, mean return {made.mean_return:.1f}")
    for part in made.parts:
        of = "random actions" if part.look is None else f"policy after {part.steps:,} steps"
        print(f"  {part.rows:,} rows: {of}, return {part.score:.1f}")
    trained, played = (seconds / 60 for seconds in made.seconds)
    print(f"sha256: {made.sha256}")
    print(f"took {trained:.1f} minutes of training and {played:.1f} of playing")
    print(f"look at it with: jaxrl-rollouts data inspect {made.path}")


def _report(made: Made, run: Run) -> None:
    from jaxrl_rollouts.reports.page import write_pages

    from .report import online_report

    assert made.training is not None
    report = online_report(made.training, run)
    report.save(run.folder.path)
    write_pages(report, run.folder.path)
    print(f"learning curve: {run.folder.path / 'report.html'}")

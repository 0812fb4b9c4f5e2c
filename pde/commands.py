"""`jaxrl-rollouts pde generate`, `inspect`, `train` and `roll`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.plugins import Command, ExperimentInfo

from .generate_command import generate_for
from .inspection import inspect
from .registries import NETWORKS, OBJECTIVES
from .roll_command import roll

SUMMARY = "Make and look at fields of partial differential equations, train and roll emulators."
# What `pde train` runs; known without importing it.
TRAIN = ExperimentInfo(
    "pde_train",
    "a file of fields: train an emulator, roll it over trajectories it has not seen",
    "",
    minutes={"smoke": 1, "cpu": None},
    choices={
        "objective": tuple(OBJECTIVES),
        "network": tuple(NETWORKS),
    },
    prepare="jaxrl_rollouts.pde.train_command:prepare",
)
LISTINGS = {TRAIN.name: TRAIN}


def _train() -> None:
    """Train an emulator on a file of trajectories and report how long its rollouts last."""


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `pde ...`; raises `UserError` for bad input."""
    commands: dict[str, Callable[..., None]] = {
        "generate": generate_for(arguments),
        "inspect": inspect,
        "train": _train,
        "roll": roll,
    }
    first = arguments[0] if arguments else ""
    if first == "train":  # an experiment, so that its runs can be resumed
        from jaxrl_rollouts.cli.main import dispatch

        rest = list(arguments[1:])
        named = ["--file"] if rest and not rest[0].startswith("-") else []
        return dispatch(["run", "pde_train", *named, *rest])
    call(commands, arguments, prog, SUMMARY)


COMMAND = Command("pde", SUMMARY, main)

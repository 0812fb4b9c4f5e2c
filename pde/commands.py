"""`jaxrl-rollouts pde generate`, `inspect`, `train` and `roll`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.plugins import Command, ExperimentInfo

from .generate_command import generate_for
from .inspection import inspect
from .registries import NETWORKS, OBJECTIVES
from .roll_command import roll

SUMMARY = "Generate and inspect PDE fields; train and roll out emulators."
# What `pde train` runs; known without importing it.
TRAIN = ExperimentInfo(
    "pde_train",
    "train an emulator on a file of fields, and roll it out on test trajectories",
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
    words = one_file(arguments, 2 if first == "roll" else 1)
    if first == "train":  # an experiment, so that its runs can be resumed
        from jaxrl_rollouts.cli.main import dispatch

        rest = words[1:]
        named = ["--file"] if rest and not rest[0].startswith("-") else []
        return dispatch(["run", "pde_train", *named, *rest])
    call(commands, words, prog, SUMMARY)


def one_file(words: Sequence[str], before: int) -> list[str]:
    """Files one after the other (a shell's `data/*.h5`) as one word with commas between, as
    `files.read` takes it; `before` words stand in front of them."""
    end = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    files = words[before:end]
    return [*words[:before], ",".join(files), *words[end:]] if files else list(words)


COMMAND = Command("pde", SUMMARY, main)

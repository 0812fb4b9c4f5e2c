"""Reading `jaxrl-rollouts run EXPERIMENT ...`: options, and settings on top of a preset."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..plugins import Experiment

PROG = "jaxrl-rollouts"


@dataclass(frozen=True)
class RunOptions:
    """Options of `run` that are not settings of the experiment."""

    preset: str = ""
    """Named configuration to start from; single settings override it."""
    out: Path = Path("runs")
    """Folder to make the run folder in."""
    publish: Path | None = None
    """Also copy report and pictures to this folder, under the experiment's name."""
    logger: str = "jsonl"
    """Where metrics go, separated by commas: jsonl, csv, tensorboard, wandb."""
    progress: bool = True
    """Show progress, rate and time left."""


def parse_run(experiment: Experiment, arguments: Sequence[str]) -> tuple[RunOptions, Any]:
    """Options and configuration; the defaults of the settings are those of the chosen preset.

    Raises:
        ConfigError: no such preset.
        SystemExit: help was asked for (0), or an option is unknown or malformed (2).
    """
    name = _option(arguments, "--preset") or experiment.default_preset
    preset = experiment.preset(name)

    def settings(
        options: Annotated[RunOptions, tyro.conf.arg(name="")],
        config: Annotated[Any, tyro.conf.arg(name="")],
    ) -> tuple[RunOptions, Any]:
        return options, config

    settings.__annotations__ = {
        "options": Annotated[RunOptions, tyro.conf.arg(name="")],
        "config": Annotated[experiment.config_type, tyro.conf.arg(name="")],
    }
    settings.__defaults__ = (RunOptions(preset=name), preset)
    return tyro.cli(
        settings,
        args=list(arguments),
        prog=f"{PROG} run {experiment.name}",
        description=_describe(experiment, name),
        config=(tyro.conf.AvoidSubcommands,),
    )


def _describe(experiment: Experiment, preset: str) -> str:
    source = f" ({experiment.source})" if experiment.source else ""
    return (
        f"{experiment.summary}{source}\n\n"
        f"Presets: {', '.join(experiment.presets)}; the defaults below are those of {preset}."
    )


def _option(arguments: Sequence[str], name: str) -> str | None:
    """The last value given to an option, as `--name value` or `--name=value`."""
    found = None
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(name + "="):
            found = argument[len(name) + 1 :]
    return found


def remaking_command(name: str, arguments: Sequence[str]) -> str:
    """The command line that gives the same numbers: without where to write and what to show."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        option = argument.partition("=")[0]
        if skip or option in ("--progress", "--no-progress"):
            skip = False
        elif option in ("--out", "--publish", "--logger"):
            skip = "=" not in argument
        else:
            kept.append(argument)
    return shlex.join([PROG, "run", name, *kept])

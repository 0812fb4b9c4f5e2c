"""Options of every command that say which processes work together. Loads no jax."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ConfigError

OPTIONS = ("--coordinator", "--processes", "--process", "--distributed")


class Wanted(NamedTuple):
    """Arguments of `processes.join`."""

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def taken(arguments: Sequence[str]) -> tuple[list[str], Wanted | None]:
    """A command line without these options, and what they ask for, if anything.

    Raises:
        ConfigError: some of them, but not all, or a value that is none.
    """
    words = list(arguments)
    if not any(word.split("=")[0] in OPTIONS for word in words):
        return words, None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    parser.add_argument("--distributed", action="store_true")
    try:
        found, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise ConfigError(str(error.argument_name), error.message, "a value") from None
    wanted = Wanted(found.coordinator, found.processes, found.process)
    missing = [name for name, value in zip(OPTIONS, wanted, strict=False) if value is None]
    if found.distributed and len(missing) == 3:
        return rest, Wanted()
    if missing:
        together = "all of --coordinator HOST:PORT --processes N --process I"
        hint = "or --distributed alone, where SLURM, Open MPI or a TPU pod says it"
        raise ConfigError(missing[0], None, together, hint)
    if not 0 <= found.process < found.processes:
        expected = f"0 to {found.processes - 1}, with {found.processes} processes"
        raise ConfigError("--process", found.process, expected)
    return rest, wanted

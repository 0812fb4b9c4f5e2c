"""`resume --longer`: trainings continued beyond their planned length."""

from __future__ import annotations

import math
import sys
from typing import Any

from ..errors import ConfigError
from ..plugins import Experiment
from ..record.folder import RunFolder
from ..record.lock import FolderLock
from ..reports.claims import TIME_CONSTANTS
from ..reports.report import Report
from .options import as_options, check_options, remaking_command, start_of


def lengthen(
    experiment: Experiment, folder: RunFolder, config: Any, times: int
) -> tuple[RunFolder, Any]:
    """The folder and the configuration of the same run, trainings `times` as long as by `config`.

    From then on the folder is that of the longer run: its command remakes all of it, and what is
    resumed is that.
    """
    from .. import processes

    if times < 1:
        raise ConfigError("--longer", times, "at least 1, the present length")
    if times == 1:
        return folder, config
    if processes.several():
        expected = "one process, which may be stopped at once"
        hint = "afterwards all of them resume without --longer"
        raise ConfigError("--longer", "several processes", expected, hint)
    try:
        longer = experiment.lengthened(config, times)
    except ConfigError as error:
        raise (error.named("--longer") if error.setting == "times" else error) from None
    check_options(longer)
    print(f"note: now with {' '.join(as_options(longer, config))}", file=sys.stderr)
    try:
        start = start_of(experiment, folder.preset, longer)
        options = as_options(longer, start, experiment.preset(folder.preset))
        given = ["--preset", folder.preset, *options]
    except (ConfigError, TypeError):  # a preset of another version, or what no option can say
        given = ["--config", str(folder.path)]
    with FolderLock(folder.path):
        return folder.changed(longer, remaking_command(experiment.name, given)), longer


def advice(experiment: Experiment, config: Any, report: Report, folder: RunFolder) -> str:
    """How to continue where values were read too early; empty where none was, or it is impossible.

    A clock runs as the trainings do: `n tau (1 - gamma)` of `times n` steps is `times` as much.
    """
    clocks = [claim.time_constants for claim in report.claims]
    clocks += [row.get("time constants") for row in report.tables.get("clock", ())]
    least = min((float(clock) for clock in clocks if clock), default=TIME_CONSTANTS)
    if least >= TIME_CONSTANTS or not experiment.longer:
        return ""
    times = math.ceil(TIME_CONSTANTS / least - 1e-9)
    try:
        experiment.lengthened(config, times)
    except ConfigError as error:
        return f"not converged: {times} times as long would be; {error.hint or error.expected}"
    return f"not converged: {folder.resume} --longer {times} trains on from here"

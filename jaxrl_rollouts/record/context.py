"""Context of a run besides its configuration: its folder, loggers and stop flag."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import Interrupted
from .folder import RunFolder
from .interrupts import StopFlag

if TYPE_CHECKING:
    from ..memory import Need
    from .loggers import Logger


@dataclass(frozen=True)
class RunContext:
    """What a run is given besides its configuration.

    Attributes:
        folder: output folder; stages resume from their checkpoint in it.
        progress: whether to show progress.
        loggers: loggers of metrics.
        command: the command line that remakes the run, for its report.
        stop: polled between chunks and stages; None for a run that is never stopped.
        needs: the memory that was predicted for the trainings of this session, by stage.
    """

    folder: RunFolder
    progress: bool = True
    loggers: tuple[Logger, ...] = ()
    command: str = ""
    stop: StopFlag | None = None
    needs: dict[str, Need] = field(default_factory=dict, compare=False, repr=False, kw_only=True)


def poll(context: RunContext | None, where: str) -> None:
    """Raise `Interrupted` if the context's stop flag is set; `where` names the next step."""
    if context and context.stop and context.stop.requested:
        raise Interrupted(f"stopped {where}; resume with: {context.folder.resume}")

"""What became of attacks, counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BAD = ("wrong", "tracebacks", "lost", "executed", "hangs")


@dataclass
class Tally:
    """One kind of attack.

    Attributes:
        area: what was attacked, and how; a row of the report.
        same: how often the result was that of the undisturbed run, or the file was taken as it is.
        named: how often it was refused with one line that names it.
        wrong: attacks that changed a result without a word: what repeats each, one line.
        tracebacks: attacks that ended in a traceback, a crash or a hang, likewise.
        lost: attacks after which a run could not be finished any more, likewise.
        executed: attacks that had code of theirs run, likewise.
        hangs: attacks that came to no end, likewise.
    """

    area: str
    same: int = 0
    named: int = 0
    wrong: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return self.same + self.named + sum(len(getattr(self, kind)) for kind in BAD)

    @property
    def bad(self) -> list[str]:
        """Every attack that should have ended otherwise."""
        return [f"{self.area}: {kind}: {what}" for kind in BAD for what in getattr(self, kind)]

    def row(self) -> dict[str, Any]:
        """As a row of the report's table."""
        counts = {
            "same": self.same,
            "named error": self.named,
            "silently wrong": len(self.wrong),
            "tracebacks": len(self.tracebacks),
            "lost": len(self.lost),
            "executed": len(self.executed),
            "hangs": len(self.hangs),
        }
        return {"attack": self.area, "tried": self.tried, **counts}

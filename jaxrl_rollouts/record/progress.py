"""Progress of a training stage: a bar on a terminal, occasional lines in a log file."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np


class Progress:
    """Rate, time left and the newest metrics of one stage.

    Args:
        label: name of the work.
        total: amount of work, in units.
        initial: work done before this process (a resumed run).
        unit: name of the unit, plural.
        enabled: False shows nothing.
        stream: output stream; standard error by default, so results stay pipeable.
        every_seconds: time between two lines where `stream` is not a terminal.
    """

    def __init__(
        self,
        label: str,
        total: int,
        *,
        initial: int = 0,
        unit: str = "steps",
        enabled: bool = True,
        stream: TextIO | None = None,
        every_seconds: float = 15.0,
    ) -> None:
        self._label, self._total, self._initial, self._unit = label, total, initial, unit
        self._enabled = enabled
        self._stream = stream if stream is not None else sys.stderr
        self._every = every_seconds
        self._done = initial
        self._begin = self._printed = time.monotonic()
        self._text = ""
        self._shown = -1
        self._bar: Any = None
        if enabled and self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                initial=initial,
                desc=label,
                unit=f" {unit}",
                file=self._stream,
                dynamic_ncols=True,
                smoothing=0.1,
                unit_scale=total >= 10_000,
            )

    def advance(self, count: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Count `count` more units; `metrics` are scalars or `[seeds]` (their mean is shown)."""
        self._done += count
        if not self._enabled:
            return
        if metrics:
            self._text = brief(metrics)
        with contextlib.suppress(OSError):  # a terminal that was closed stops no training
            if self._bar is not None:
                self._bar.set_postfix_str(self._text, refresh=False)
                self._bar.update(count)
            elif time.monotonic() - self._printed >= self._every:
                self._line()

    def close(self) -> None:
        """Finish the bar, or write the closing line."""
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.close()
            elif self._enabled and self._shown != self._done:
                self._line()
        self._enabled, self._bar = False, None

    def _line(self) -> None:
        self._printed, self._shown = time.monotonic(), self._done
        elapsed = self._printed - self._begin
        rate = (self._done - self._initial) / elapsed if elapsed > 0 else 0.0
        left = _clock((self._total - self._done) / rate) if rate > 0 else "?"
        when = f"{left} left" if self._done < self._total else f"took {_clock(elapsed)}"
        share = self._done / self._total if self._total else 1.0
        text = (
            f"{self._label}: {share:4.0%} {self._done}/{self._total} {self._unit}, "
            f"{rate:,.4g}/s, {when}"
        )
        print(f"{text}  {self._text}".rstrip(), file=self._stream, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def interactive() -> bool:
    """Whether output is interactive: a terminal or a notebook."""
    ipython = sys.modules.get("IPython")
    return sys.stderr.isatty() or (ipython is not None and ipython.get_ipython() is not None)


def brief(metrics: Mapping[str, Any], limit: int = 4) -> str:
    """The first few metrics in a few characters: `loss=0.123 q=45.1`."""
    items = list(metrics.items())[:limit]
    return " ".join(f"{name}={np.mean(np.asarray(value)):.4g}" for name, value in items)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"

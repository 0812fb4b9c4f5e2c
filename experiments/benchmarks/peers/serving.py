"""The protocol of a peer: the common end of every peer's script.

Scripts import this by its file's name, and nothing else of ours; it needs nothing but Python.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def serve(make: Callable[[SimpleNamespace], Any]) -> None:
    """Answer every JSON line of the standard input with a line `RESULT {...}`."""
    study: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        kind = question.pop("kind")
        if kind == "start":
            study = make(SimpleNamespace(**question))
            answer = study.describe()
        elif kind == "apply":
            answer = {"said": study.said(**question)}
        elif kind == "compile":
            answer = study.compile()
        else:
            began = time.process_time()
            answer = {"seconds": study.seconds(kind, **question)}
            answer["cpu"] = time.process_time() - began  # of all threads
        print("RESULT " + json.dumps(answer), flush=True)

"""How a peer is asked: the loop behind every script here that has a `Study`.

Reads one JSON line per question from the standard input and answers each with a line
`RESULT {...}`. Scripts import it as the file beside them; it needs nothing but Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def serve(make: Callable[[dict[str, Any]], Any]) -> None:
    """Answer until nobody asks any more.

    Args:
        make: what the first question (`start`, with the settings) is made into; its `answer`
            takes the other questions. `start` itself is answered as `describe` is.
    """
    study = None
    for line in sys.stdin:
        question = json.loads(line)
        if question["kind"] == "start":
            study = make(question)
            question = {"kind": "describe"}
        assert study is not None
        print("RESULT " + json.dumps(study.answer(question)), flush=True)

"""What `torch.compile` makes of a network, or why it makes nothing; for the torch peers here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def compile_and_warm(
    net: Any, threads: int, warm: Callable[[Any], None]
) -> tuple[Any | None, dict[str, Any]]:
    """Compile a network and warm it up.

    Args:
        net: the network.
        threads: to compile for.
        warm: uses what was compiled as it will be timed.

    Returns:
        The compiled network, None where that does not work, and the answer to `compile`.
    """
    torch.set_num_threads(threads)
    begin = time.perf_counter()
    compiled = torch.compile(net, dynamic=False)
    try:
        warm(compiled)
    except Exception as error:
        lines = str(error).strip().splitlines()
        return None, {"works": False, "why": (lines or [type(error).__name__])[0][:200]}
    return compiled, {"works": True, "seconds": time.perf_counter() - begin}

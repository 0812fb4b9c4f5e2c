"""How many CPU cores there are, without importing jax."""

from __future__ import annotations

import os


def cores() -> int:
    """Those this process may use, which in a container are fewer than the machine has."""
    return len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))

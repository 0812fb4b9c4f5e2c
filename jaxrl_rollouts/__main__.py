"""`python -m jaxrl_rollouts` is `jaxrl-rollouts`."""

from __future__ import annotations

import atexit
import gc

from .record.interrupts import end_in_imports


def main() -> None:
    """The command line of this process."""
    end_in_imports()
    # Else Python walks through all that jax and orbax made before it ends: half a second.
    atexit.register(gc.freeze)
    from .cli.main import main as begin

    begin()


if __name__ == "__main__":
    main()

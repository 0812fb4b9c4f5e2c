"""`python -m jaxrl_rollouts` is `jaxrl-rollouts`."""

from __future__ import annotations

from .record.interrupts import end_in_imports


def main() -> None:
    """The command line of this process."""
    end_in_imports()
    from .cli.main import main as begin

    begin()


if __name__ == "__main__":
    main()

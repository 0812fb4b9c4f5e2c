"""`python -m jaxrl_rollouts` is `jaxrl-rollouts`."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()

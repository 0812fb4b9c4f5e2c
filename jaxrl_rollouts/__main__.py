"""`python -m jaxrl_rollouts` is `jaxrl-rollouts`."""

from __future__ import annotations

from .cli.main import main

if __name__ == "__main__":
    main()

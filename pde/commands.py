"""`jaxrl-rollouts pde generate` and `pde inspect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxrl_rollouts.cli.parsing import call
from jaxrl_rollouts.plugins import Command

from .inspection import inspect


def _generate() -> None:
    """Solve an equation many times and write the trajectories."""


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `pde ...`; raises `UserError` for bad input."""
    commands: dict[str, Callable[..., None]] = {"generate": _generate, "inspect": inspect}
    if arguments and arguments[0] == "generate":  # help and inspect's own need no jax
        from .generate_command import generate

        commands["generate"] = generate
    call(commands, arguments, prog, COMMAND.summary)


COMMAND = Command("pde", "Make and look at trajectories of partial differential equations.", main)

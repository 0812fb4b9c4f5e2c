"""The command line `jaxrl-rollouts`.

Only what a command needs is imported: help and mistyped names answer without loading jax.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tyro

from .. import plugins as plugins
from ..configs import unknown
from ..errors import Interrupted, StorageError, UserError, printable
from ..foreign import not_unicode
from ..record.interrupts import interrupt_again, is_interrupt
from ..record.provenance import current_versions
from ..starting import CACHE
from . import parsing, runs, together
from .options import PROG
from .runs import show_experiments

DESCRIPTION = (
    "Offline model-based RL and neural PDE emulators in JAX. "
    f"Start with `{PROG} list`, then `{PROG} run offline --preset smoke`; "
    f"`{PROG} run offline --method td3_bc --help` shows every setting of a method, and "
    f"`{PROG} resume runs/FOLDER` resumes after Ctrl-C or a crash. Several processes: the same "
    "command in each, with `--coordinator HOST:PORT --processes N --process I`, or `--distributed` "
    "under SLURM, Open MPI or on a TPU pod. Compiled programs are cached in "
    f"the user's cache folder; ${CACHE} names another one, or is `off`."
)


def main(arguments: Sequence[str] | None = None, *, typed: bool = True) -> None:
    """Run the command line and exit: 0 when all is well, else the error's `exit_code`.

    Args:
        arguments: without the program's name; those of this process by default.
        typed: whether the user typed them, so that code which they name may be imported.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Tracing makes millions of small objects that are no garbage: a tenth of a start went into
    # looking at them again and again.
    gc.set_threshold(200_000, 20, 50)
    plugins.trust(*(plugins.typed(arguments) if typed else ()))
    _quieten()
    try:
        rest, wanted = together.taken(arguments)
        if wanted is None:
            dispatch(rest)
        else:
            _dispatch_together(rest, wanted)
    except UserError as error:
        _end(error)
    except KeyboardInterrupt:
        _end(Interrupted("interrupted"))
    except (RuntimeError, AssertionError) as error:
        if is_interrupt(error):
            _end(Interrupted("interrupted"))
        if missing := _missing_device():
            _end(missing)
        raise
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        sys.exit(0)
    except UnicodeEncodeError as error:  # a working folder, or a name in a file of settings
        _end(not_unicode("name", str(error.object)))
    except OSError as error:
        _end(StorageError(error.filename or PROG, error))


def _missing_device() -> UserError | None:
    """What is wrong where jax finds no device, which any command may be the first to ask for."""
    if "jax" not in sys.modules:
        return None
    from ..devices import check_devices

    try:
        check_devices()
    except UserError as error:
        return error
    return None


def _dispatch_together(arguments: list[str], wanted: together.Wanted) -> None:
    """The same command in several processes, of which the first one prints and writes.

    A process that failed exits at once: a clean shutdown would wait minutes for the others.
    """
    if wanted.process != 0 and hasattr(os, "fork"):
        together.leave_a_parent()
    from .. import processes

    try:
        with processes.joined(*wanted), processes.watched("restart all to resume"):
            dispatch(arguments)
    except UserError as error:
        if processes.first() or not isinstance(error, Interrupted):
            _say(error)
        processes.leave(error.exit_code)


def _end(error: UserError) -> NoReturn:
    """Say in one line what is wrong, and exit."""
    _say(error)
    sys.exit(error.exit_code)


def _say(error: UserError) -> None:
    """Print the error in one line, if standard error is still open."""
    word = "stopped" if isinstance(error, Interrupted) else "error"
    text = " ".join(str(error).split()).removeprefix("stopped ")
    try:
        print(f"{word}: {text}", file=sys.stderr, flush=True)
    except OSError:  # the terminal is gone; nor can Python flush it when it exits
        os._exit(error.exit_code)


def _quieten() -> None:
    """Warnings become one line without source code, and libraries keep their logs to themselves.

    What XLA cannot do it raises; what it logs beside (`Very slow compile?`) goes through the
    progress bar. `TF_CPP_MIN_LOG_LEVEL=0` shows it. So does orbax, whose futures then complain
    that they were never awaited, and tensorstore, whose threads find orbax gone.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show ends no run
            stream.reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(printable(str(message)).split())
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def ignore(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:  # Python would print it and continue
            interrupt_again()
            return
        if str(unraisable.exc_value) != "Event loop is closed":
            sys.__unraisablehook__(unraisable)

    warnings.showwarning = show
    sys.unraisablehook = ignore


def dispatch(arguments: list[str]) -> None:
    """Find and run the subcommand; raises `UserError` for anything a user can put right."""
    first = arguments[0] if arguments else "--help"
    own: dict[str, Callable[..., None]] = {"resume": runs.resume, "report": runs.report}
    own["list"] = show_experiments
    others = plugins.names(plugins.COMMANDS)
    if first == "run":
        runs.begin(arguments[1:])
    elif first in others:
        plugins.load_command(first).main(arguments[1:], f"{PROG} {first}")
    elif first in own:
        parsing.call(own[first], arguments[1:], f"{PROG} {first}")
    elif first == "--version":
        versions = current_versions()
        commit = f" ({versions['commit']})" if "commit" in versions else ""
        print(versions["jaxrl-rollouts"] + commit)
    elif first.startswith("-"):
        placeholders = {name: _placeholder(name) for name in others}
        commands: dict[str, Callable[..., Any]] = {"run": _run_placeholder, **own, **placeholders}
        tyro.extras.subcommand_cli_from_dict(
            commands, prog=PROG, description=DESCRIPTION, args=arguments or ["--help"]
        )
    else:
        raise unknown("command", first, ["run", *own, *others])


def _run_placeholder() -> None:
    """Run an experiment: train, evaluate, report. `run --help` lists them."""


def _placeholder(name: str) -> Callable[[], None]:
    def command() -> None: ...

    command.__doc__ = plugins.load_command(name).summary
    return command

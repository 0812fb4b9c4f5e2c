"""Errors a user can act on: one line with what was found, what was expected and what to do.

The command line prints the message of a `UserError` without a traceback and exits with its
`exit_code`; everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# C0 without tab and line feed, DEL, C1, the marks that turn the direction of writing, and the half
# characters that stand for bytes of a file name that are no text.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """`text` without control characters: a terminal obeys them, and files bring them."""
    return _CONTROL.sub("", text)


class UserError(Exception):
    """Something outside the program is wrong; the message is one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class DataError(UserError):
    """A file or an array from outside does not hold what it should.

    Args:
        source: file or dataset name the problem was met in.
        key: array, field or row in it.
        found: the value found.
        expected: the value expected.
        hint: how to correct it.
    """

    def __init__(
        self, source: str | Path, key: str, found: object, expected: object, hint: str = ""
    ) -> None:
        self.source, self.key, self.found, self.expected = str(source), key, found, expected
        self.hint = hint
        message = f"{source}: {key}: found {found}, expected {expected}"
        super().__init__(f"{message}; {hint}" if hint else message)


class ConfigError(UserError):
    """A setting is unknown, out of range or contradicts another.

    Args:
        setting: name of the setting (dotted for nested ones).
        found: its value.
        expected: accepted values.
        hint: how to correct it.
    """

    def __init__(self, setting: str, found: object, expected: object, hint: str = "") -> None:
        self.setting, self.found, self.expected, self.hint = setting, found, expected, hint
        message = f"{setting}: found {found!r}, expected {expected}"
        super().__init__(f"{message}; {hint}" if hint else message)

    def named(self, setting: str) -> ConfigError:
        """The same of a setting by another name: the whole path to it, or the option as typed."""
        return ConfigError(setting, self.found, self.expected, self.hint)


class CheckpointError(UserError):
    """A checkpoint or run folder is missing, of another version or of another configuration."""


class DamagedError(CheckpointError):
    """A checkpoint's files are not those that were written."""


class StorageError(UserError):
    """Something cannot be written or read: a full disk, a read-only folder, too many open files.

    Args:
        place: the file being written or read.
        error: the first cause.
        hint: how to continue after correcting it.
    """

    def __init__(self, place: str | Path, error: BaseException, hint: str = "") -> None:
        cause = one_line(error)
        if isinstance(error, OSError) and error.strerror:
            file = f" ({error.filename})" if error.filename not in (None, str(place)) else ""
            cause = f"{error.strerror}{file}"
        super().__init__(f"{place}: {cause}; {hint}" if hint else f"{place}: {cause}")


class MissingExtraError(UserError):
    """A feature needs an optional package that is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the package {package}, which is not installed; "
            f"run: pip install 'jaxrl-rollouts[{extra}]'"
        )


class SimulatorError(UserError):
    """A simulator raised, or returned what no step is.

    Args:
        environment: its name.
        copy: index of the copy of the environment, from 0.
        step: step of the episode, counted from 0; -1 for a reset.
        found: the value returned, or the exception raised.
        expected: valid values of a simulator.
        hint: how to continue.
    """

    def __init__(
        self, environment: str, copy: int, step: int, found: str, expected: str, hint: str = ""
    ) -> None:
        self.environment, self.copy, self.step = environment, copy, step
        self.found, self.expected = found, expected
        where = f"copy {copy}, {f'step {step}' if step >= 0 else 'reset'}"
        message = f"environment {environment}: {where}: found {found}, expected {expected}"
        super().__init__(f"{message}; {hint}" if hint else message)

    def hinted(self, hint: str) -> SimulatorError:
        """The same error with a hint how to continue."""
        return SimulatorError(
            self.environment, self.copy, self.step, self.found, self.expected, hint
        )


class DivergenceError(UserError):
    """A metric became NaN or infinite; the last good checkpoint is kept."""

    exit_code = 3


class PeerError(UserError):
    """Another process of the same run has ended, or never came."""

    exit_code = 4


class Interrupted(UserError):
    """The run was stopped on request after writing a checkpoint."""

    exit_code = 130


@contextmanager
def foreign_code(setting: str, found: object, expected: str) -> Iterator[None]:
    """Exceptions of external code become one `ConfigError`; they may not end the process."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(setting, found, expected, what) from error


def one_line(error: BaseException) -> str:
    """The message of another library's exception, on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."

"""Plugins of other packages, by entry points: experiments, subcommands, agents and more.

The engine imports neither `offline` nor `pde`: packages announce an `Experiment` in the group
`jaxrl_rollouts.experiments` and a `Command` in `jaxrl_rollouts.commands`, as `module:OBJECT`. A
module that imports no jax may announce each `ExperimentInfo` in `jaxrl_rollouts.listings`, a
mapping by name: then they are listed, and mistyped choices refused, without importing them. What
goes into the groups of agents, methods and environments is described in `offline.agents.registry`,
`offline.methods.registry` and `offline.environments.registry`.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from .configs import unknown
from .errors import ConfigError, foreign_code
from .foreign import CODE
from .record.context import RunContext

if TYPE_CHECKING:
    from .reports.report import Report

    Run = Callable[[Any, RunContext], Report]

EXPERIMENTS = "jaxrl_rollouts.experiments"
COMMANDS = "jaxrl_rollouts.commands"
LISTINGS = "jaxrl_rollouts.listings"
# Last parts of the options whose values may name code.
NAMES_CODE = ("env", "environment", "environments", "method", "methods", "agent", "trust")
NAMES_CODE += ("network", "objective")
_TRUSTED: set[str] = set()  # names of code that the user of this process typed


@dataclass(frozen=True)
class ExperimentInfo:
    """What is known of an experiment without importing it.

    Attributes:
        name: as on the command line.
        summary: one line for `jaxrl-rollouts list`.
        source: paper and section, or "" for a job.
        minutes: about how long each preset takes on two CPU cores; None where it was not measured.
        needs: files and extras that a preset needs, as text: "hopper-medium-mini-v1",
            "the extra mujoco". The actual requirements of a run are checked by `prepare`.
        prepare: `module:function` that is called with the configuration before anything is written
            or trained: it raises `UserError` for a file, an extra or an environment that is
            missing, and returns lines that the user should know first.
        choices: settings that name one of several things, and their values: `{"method": (...)}`.
        longer: `module:function` from a configuration and a whole number to that of the same run
            with trainings so many times as long, which begins with the same bits; without one, the
            length is part of the training (a rate that falls to zero over it, say).
        arms: `module:function` from a configuration to the names of its settings that a setting
            `arms` takes several values of, `("penalty=1", "penalty=5")`, trained side by side in
            one program; the report has a row for each in the table `arms`.
        main: listed first, as the entry point.
        caches: whether compiled programs may be kept between runs; not where compiling is timed.
    """

    name: str
    summary: str
    source: str
    minutes: Mapping[str, float | None] = field(default_factory=dict, kw_only=True)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    prepare: str = field(default="", kw_only=True)
    longer: str = field(default="", kw_only=True)
    arms: str = field(default="", kw_only=True)
    main: bool = field(default=False, kw_only=True)
    caches: bool = field(default=True, kw_only=True)

    def experiment(self, config_type: type, presets: Mapping[str, Any], run: Run) -> Experiment:
        """The `Experiment` that is listed here."""
        listed = {f.name: getattr(self, f.name) for f in fields(ExperimentInfo)}
        return Experiment(config_type=config_type, presets=presets, run=run, **listed)


@dataclass(frozen=True)
class Experiment(ExperimentInfo):
    """One claim of one paper, or one job, that ends in a report.

    Attributes:
        config_type: frozen dataclass whose fields are the settings.
        presets: named configurations; `cpu` is the default where it exists, else the first.
        run: `(config, context) -> Report`; called again with the same folder to resume.
        begin: `(preset, given) -> config` where what a preset is depends on other options, which
            `given(option)` has; None where it does not.
        title: data and method of a configuration, with which its run folder's name begins; "" for
            experiment and preset.
    """

    config_type: type
    presets: Mapping[str, Any]
    run: Run
    begin: Callable[[str, Callable[[str], str | None]], Any] | None = None
    title: Callable[[Any], str] = lambda config: ""

    def facts(self, config: Any) -> list[str]:
        """Check what a run with `config` needs; what should be known of it before it starts."""
        return list(resolve_name(self.prepare)(config)) if self.prepare else []

    def lengthened(self, config: Any, times: int) -> Any:
        """`config` with trainings `times` as long; `ConfigError` where their length is fixed."""
        if not self.longer:
            expected = f"none: a longer {self.name} is another training, not more of the same"
            raise ConfigError("times", times, expected, "run it anew with other settings")
        return resolve_name(self.longer)(config, times)

    def sweepable(self, config: Any) -> tuple[str, ...]:
        """Settings whose values may be trained side by side in one program."""
        return tuple(resolve_name(self.arms)(config)) if self.arms else ()

    def __post_init__(self) -> None:
        if not self.presets:
            raise ValueError(f"{self.name}: found no presets, expected at least one")
        for name, preset in self.presets.items():
            if not isinstance(preset, self.config_type):
                raise ValueError(
                    f"{self.name}: preset {name}: found {type(preset).__name__}, "
                    f"expected {self.config_type.__name__}"
                )

    @property
    def default_preset(self) -> str:
        return next((n for n in ("small", "cpu") if n in self.presets), next(iter(self.presets)))

    def preset(self, name: str) -> Any:
        """The configuration called `name`; `ConfigError` when there is none."""
        if name not in self.presets:
            raise unknown("preset", name, self.presets)
        return self.presets[name]


@dataclass(frozen=True)
class Command:
    """A subcommand from another package.

    Attributes:
        name: as on the command line.
        summary: one line.
        main: `(arguments after the name, program name)`; raises `UserError` for bad input.
    """

    name: str
    summary: str
    main: Callable[[Sequence[str], str], None]


def deferred(name: str, summary: str, main: str) -> Command:
    """A subcommand whose `module:function` is imported when it is run, and not for `--help`."""
    return Command(name, summary, lambda arguments, prog: resolve_name(main)(arguments, prog))


def names(group: str) -> list[str]:
    """Names announced in an entry-point group, sorted, without importing anything."""
    return sorted(entries(group))


def load_experiment(name: str) -> Experiment:
    """Import the experiment called `name`; `ConfigError` when nothing announces it."""
    return _load(EXPERIMENTS, "experiment", name)


def listings() -> dict[str, ExperimentInfo]:
    """What is known of experiments without importing them, by name."""
    known: dict[str, ExperimentInfo] = {}
    for entry in entries(LISTINGS).values():
        known |= entry.load()
    return known


def load_command(name: str) -> Command:
    """Import the subcommand called `name`; `ConfigError` when nothing announces it."""
    return _load(COMMANDS, "command", name)


def announced(group: str, kind: str) -> dict[str, Any]:
    """Everything announced in a group, imported, by name."""
    objects = {}
    for name, entry in sorted(entries(group).items()):
        with foreign_code(f"{kind} {name}", entry.value, "an object to import"):
            objects[name] = entry.load()
    return objects


def trust(*names: str) -> None:
    """Allow this process to import `package.module:factory` by these names.

    Nothing else is imported by name, wherever the name stands: a plan, a run's configuration and a
    settings file is not trusted. The command line allows what the user typed (`typed`).
    """
    _TRUSTED.update(name.partition("?")[0] for name in names)


def check_trusted(setting: str, names: Sequence[str]) -> None:
    """`ConfigError` for the first name of code that `trust` was not given."""
    for name in names:
        if name.partition("?")[0] not in _TRUSTED:
            hint = f"if you know it, add --trust {shlex.quote(name)}"
            hint += ", or call jaxrl_rollouts.plugins.trust"
            raise ConfigError(setting, name, "no code to import but what you name", hint)


def import_trusted(setting: str, name: str) -> Callable[..., Any]:
    """The function `package.module:factory`, of an installed package or the working directory."""
    if not CODE.fullmatch(name):
        raise ConfigError(setting, name, "package.module:factory")
    check_trusted(setting, [name])
    if os.getcwd() not in sys.path:  # the command line does not search it by itself
        sys.path.append(os.getcwd())
    module, _, attribute = name.partition(":")
    with foreign_code(setting, name, "package.module:factory that can be imported"):
        found: Any = importlib.import_module(module)
        if re.search(r"-v\d+$", attribute):  # an id of Gymnasium's that the module registers
            return lambda: attribute
        for part in attribute.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise ConfigError(setting, name, f"a function, and not a {type(found).__name__}")
    return found


def typed(arguments: Sequence[str]) -> Iterator[str]:
    """Names of code among the values of options that take such; a path is never one of them."""
    option = ""
    for word in arguments:
        head, equals, value = word.partition("=")
        if word.startswith("--"):
            option = head.lstrip("-").rpartition(".")[2]
            word = value if equals else ""
        if option in NAMES_CODE and CODE.fullmatch(word):
            yield word


def entries(group: str) -> Mapping[str, metadata.EntryPoint]:
    """What is announced in a group, by name; nothing is imported."""
    return _announced(tuple(sys.path)).get(group, {})


@functools.lru_cache(maxsize=1)
def _announced(path: tuple[str, ...]) -> dict[str, dict[str, metadata.EntryPoint]]:
    """Entry points by group and name, read once: a run looks for them a dozen times."""
    # Not `metadata.entry_points`: in a checkout that was once built, a stale `.egg-info` on the
    # path would hide the installed package's entries. What is installed comes first.
    found: dict[str, dict[str, metadata.EntryPoint]] = {}
    for distribution in sorted(
        metadata.distributions(path=list(path)),
        key=lambda one: str(getattr(one, "_path", "")).endswith(".egg-info"),
    ):
        for entry in distribution.entry_points:
            found.setdefault(entry.group, {}).setdefault(entry.name, entry)
    return found


def _load(group: str, kind: str, name: str) -> Any:
    known = entries(group)
    if name not in known:
        raise unknown(kind, name, sorted(known))
    return known[name].load()

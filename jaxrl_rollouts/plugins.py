"""What other packages bring, found by entry points: experiments, subcommands, agents and more.

The engine imports neither `offline` nor `pde`: packages announce an `Experiment` in the group
`jaxrl_rollouts.experiments` and a `Command` in `jaxrl_rollouts.commands`, as `module:OBJECT`. What
goes into the groups of agents, methods and environments is said in `offline.agents.registry`,
`offline.methods.registry` and `offline.environments.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .configs import did_you_mean
from .errors import ConfigError
from .record.context import RunContext

if TYPE_CHECKING:
    from .reports.report import Report

EXPERIMENTS = "jaxrl_rollouts.experiments"
COMMANDS = "jaxrl_rollouts.commands"


@dataclass(frozen=True)
class Experiment:
    """One claim of one paper, or one job, that ends in a report.

    Attributes:
        name: as on the command line.
        summary: one line for `jaxrl-rollouts list`.
        source: paper and section, or "" for a job.
        config_type: frozen dataclass whose fields are the settings.
        presets: named configurations; `cpu` is the default where it exists, else the first.
        run: `(config, context) -> Report`; called again with the same folder to resume.
    """

    name: str
    summary: str
    source: str
    config_type: type
    presets: Mapping[str, Any]
    run: Callable[[Any, RunContext], Report]

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
        return "cpu" if "cpu" in self.presets else next(iter(self.presets))

    def preset(self, name: str) -> Any:
        """The configuration called `name`; `ConfigError` when there is none."""
        if name not in self.presets:
            choices = "one of " + ", ".join(self.presets)
            raise ConfigError("preset", name, choices, did_you_mean(name, self.presets))
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


def names(group: str) -> list[str]:
    """Names announced in an entry-point group, sorted, without importing anything."""
    return sorted(_entries(group))


def load_experiment(name: str) -> Experiment:
    """Import the experiment called `name`; `ConfigError` when nothing announces it."""
    return _load(EXPERIMENTS, "experiment", name)


def load_command(name: str) -> Command:
    """Import the subcommand called `name`; `ConfigError` when nothing announces it."""
    return _load(COMMANDS, "command", name)


def announced(group: str, kind: str) -> dict[str, Any]:
    """Everything announced in a group, imported, by name.

    Raises:
        ConfigError: one of them cannot be imported.
    """
    objects = {}
    for name, entry in sorted(_entries(group).items()):
        try:
            objects[name] = entry.load()
        except Exception as error:
            raise ConfigError(
                f"{kind} {name}", entry.value, f"an object to import: {error}"
            ) from error
    return objects


def _entries(group: str) -> dict[str, metadata.EntryPoint]:
    # Not `metadata.entry_points`: in a checkout that was once built, a stale `.egg-info` on the
    # path would hide the installed package's entries.
    found: dict[str, metadata.EntryPoint] = {}
    for distribution in metadata.distributions():
        for entry in distribution.entry_points.select(group=group):
            found.setdefault(entry.name, entry)
    return found


def _load(group: str, kind: str, name: str) -> Any:
    entries = _entries(group)
    if name not in entries:
        choices = "one of " + ", ".join(sorted(entries))
        raise ConfigError(kind, name, choices, did_you_mean(name, entries))
    return entries[name].load()

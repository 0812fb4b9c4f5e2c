"""The runs of a sweep, and the `plan.json` that lists them in its folder.

runs/offline-sweep/
    plan.json                     the tasks, each with its command
    hopper-medium-v2-iql-0/       a task's folder
        task.json, log.txt        how it goes, and what it printed
        hopper-medium-v2-iql-2026.../     the run itself
    report.json, report.html      what came out of all of them
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..cli.options import PROG, RunOptions, check_options, parse_run
from ..cli.parsing import value_of
from ..cli.shown import names_of_choices, option
from ..config_json import to_json
from ..configs import SEED, settings
from ..errors import CheckpointError, ConfigError
from ..foreign import code_in
from ..plugins import Experiment
from ..record.files import read_json, write_json_atomically

FORMAT = 1
NOT_PLANNED = {"--out", "--publish", "--trust"}  # options of the user of a plan
PLAN = "plan.json"
# What a dataset, a method and a seed are called in the settings of experiments.
SETTINGS = {"dataset": ("dataset", "file"), "method": ("method", "objective"), "seed": ("seed",)}


@dataclass(frozen=True)
class Task:
    """One run of a sweep.

    Attributes:
        name: name of its folder.
        point: its dataset, method and seed, where these are swept.
        arguments: arguments of `jaxrl-rollouts run`, the experiment first.
        directory: working directory; relative paths refer to it.
    """

    name: str
    point: Mapping[str, Any]
    arguments: tuple[str, ...]
    directory: str

    def __post_init__(self) -> None:
        found = {word.partition("=")[0].replace("_", "-") for word in self.arguments} & NOT_PLANNED
        if found:
            hint = "it is the user's of a plan"
            raise ConfigError(f"task {self.name}", min(found), "no such option", hint)

    @property
    def command(self) -> str:
        """The command line that makes this run alone."""
        return shlex.join([PROG, "run", *self.arguments])


@dataclass(frozen=True)
class Plan:
    """The tasks in a folder.

    Attributes:
        experiment: name of the experiment.
        commands: the command lines that planned them.
        tasks: in the order of their numbers, which begin with 1.
    """

    experiment: str
    commands: tuple[str, ...]
    tasks: tuple[Task, ...]


def make_plan(
    experiment: Experiment,
    swept: Mapping[str, Sequence[Any]],
    given: Sequence[str],
    command: str,
    directory: Path,
    vary: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Plan, list[str]]:
    """The product of what is swept and varied, and the code that its settings name.

    Args:
        experiment: name of the experiment.
        swept: values of `dataset`, `method` and `seed`.
        given: options of every run.
        command: the command line that plans.
        directory: working directory of the tasks.
        vary: values of other options by name; a method without one of them is run once.
    """
    swept = {axis: list(dict.fromkeys(swept[axis])) for axis in SETTINGS if swept.get(axis)}
    names = {axis: _setting(experiment, axis, values, given) for axis, values in swept.items()}
    vary = dict(vary or {})
    SEED.check("--seeds", tuple(swept.get("seed", ())))
    one = [] if "seed" not in names else _one_seed(experiment, names["seed"], given)
    tasks: dict[tuple, Task] = {}
    code: set[str] = set()
    arguments: dict[Any, list[str]] = {}
    owned: dict[Any, tuple[str, ...]] = {}
    for values in itertools.product(*swept.values()):
        point = dict(zip(swept, values, strict=True))
        method = point.get("method")
        words_of = {axis: [option(names[axis]), str(value)] for axis, value in point.items()}
        rest = [*words_of.get("dataset", []), *words_of.get("seed", [])]
        words = [*given, *one, *words_of.get("method", [])]
        if method not in owned:
            owned[method] = _owned(experiment, [*words, *rest], vary)
        code |= set(code_in(list(point.values())))
        for chosen in itertools.product(*(vary[name] for name in owned[method])):
            more = dict(zip(owned[method], chosen, strict=True))
            settled = (method, chosen)
            if settled not in arguments:  # what can be wrong with the settings depends on these
                own = [*words, *(w for name, value in more.items() for w in (option(name), value))]
                arguments[settled] = _kept(experiment, own)
                code |= set(code_in(to_json(_parsed(experiment, [*own, *rest]))))
            begun = (experiment.name, *arguments[settled], *rest)
            named = [v for axis, v in point.items() if axis != "seed"]
            named += [f"{name.rpartition('.')[2]}={value}" for name, value in more.items()]
            named += [point["seed"]] if "seed" in point else []
            task = Task(folder_name(named), {**point, **more}, begun, str(directory))
            tasks[values, chosen] = task
    if unused := set(vary) - {name for found in owned.values() for name in found}:
        raise ConfigError("--vary", min(unused), "a setting of one of the methods")
    _check_names(tasks.values())
    return Plan(experiment.name, (command,), tuple(tasks.values())), sorted(code)


def varied(texts: Iterable[str]) -> dict[str, list[str]]:
    """Values of options, of `expectile=0.7,0.9`."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.lstrip("-").replace("_", "-").partition("=")
        listed = [value for value in values.split(",") if value]
        if not (name and equals and listed):
            raise ConfigError("--vary", text, "a setting and its values, expectile=0.7,0.9")
        if name in found:
            raise ConfigError("--vary", f"{name} twice", "each setting once")
        found[name] = list(dict.fromkeys(listed))
    return found


def _owned(
    experiment: Experiment, words: Sequence[str], vary: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Which of the options that are varied this method has; its other options are checked."""
    _parsed(experiment, words)
    owned = []
    for name, values in vary.items():
        try:
            parse_run(experiment, [*words, option(name), values[0]])
        except ConfigError as error:
            if error.setting == "option":  # there is none of this name
                continue
            raise
        owned.append(name)
    return tuple(owned)


def _setting(experiment: Experiment, axis: str, values: Any, given: Sequence[str]) -> str:
    """The dotted name of the setting that is a dataset, a method or a seed."""
    start = experiment.preset(experiment.default_preset)
    known = (*settings(start), *names_of_choices(start))
    named = [name for name in known if name.rpartition(".")[2] in SETTINGS[axis]]
    if not named:
        expected = f"an experiment with the setting {' or '.join(SETTINGS[axis])}"
        raise ConfigError(f"--{axis}s", " ".join(map(str, values)), expected)
    name = min(named, key=lambda name: name.count("."))
    if (typed := value_of(given, option(name))) is not None:
        raise ConfigError(option(name), typed, f"either this or --{axis}s")
    return name


def _one_seed(experiment: Experiment, seed: str, given: Sequence[str]) -> list[str]:
    """Options that train one seed per task, where no other number was given."""
    count = f"{seed}s"
    known = settings(experiment.preset(experiment.default_preset))
    if count not in known or value_of(given, option(count)) is not None:
        return []
    return [option(count), "1"]


def _parsed(experiment: Experiment, words: Sequence[str]) -> Any:
    _, config, _ = parse_run(experiment, words)
    check_options(config)
    return config


def _kept(experiment: Experiment, words: Sequence[str]) -> list[str]:
    """The options of a run that make it what it is; those of a settings file one by one."""
    options, _, command = parse_run(experiment, words)
    logger = [] if options.logger == RunOptions.logger else ["--logger", options.logger]
    return [*shlex.split(command)[3:], *logger]


def folder_name(values: Iterable[Any]) -> str:
    """A plain folder name of a point's values; of files the last part of their names."""
    texts = [str(value).rstrip("/").rpartition("/")[2] for value in values]
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join(texts)).strip("-.")
    return name[:200] or "run"


def _check_names(tasks: Iterable[Task]) -> None:
    seen: dict[str, Task] = {}
    for task in tasks:
        if other := seen.get(task.name):
            both = " and ".join(str(dict(one.point)) for one in (other, task))
            raise ConfigError("sweep", f"{both}, both {task.name}", "names that differ")
        seen[task.name] = task


def joined(folder: Path, plan: Plan) -> Plan:
    """The plan with the tasks that the folder has already: a sweep may grow."""
    if not (folder / PLAN).exists():
        return plan
    before = read_plan(folder)
    there = {task.name: task for task in before.tasks}
    hint = "choose another --out"
    if before.experiment != plan.experiment:
        expected = f"a sweep of {plan.experiment}"
        raise ConfigError("--out", f"{folder}, of {before.experiment}", expected, hint)
    for task in plan.tasks:
        old = there.setdefault(task.name, task)
        if old.arguments == task.arguments:
            continue
        if (folder / task.name).exists():
            found = f"{folder}, where {task.name} is: {old.command}"
            raise ConfigError("--out", found, task.command, hint)
        there[task.name] = task  # it was never begun
    commands = tuple(dict.fromkeys((*before.commands, *plan.commands)))
    return replace(plan, commands=commands, tasks=tuple(there.values()))


def write_plan(folder: Path, plan: Plan) -> None:
    """Write `plan.json`, atomically."""
    write_json_atomically(folder / PLAN, {"format": FORMAT, **asdict(plan)}, seal=True)


def read_plan(folder: Path) -> Plan:
    """The plan of a sweep's folder."""
    path = folder / PLAN
    data = read_json(path, "a sweep's folder")
    try:
        if data["format"] != FORMAT:
            raise CheckpointError(f"{path}: format: found {data['format']}, expected {FORMAT}")
        tasks = tuple(
            Task(str(t["name"]), dict(t["point"]), _texts(t["arguments"]), str(t["directory"]))
            for t in data["tasks"]
        )
        plan = Plan(str(data["experiment"]), _texts(data["commands"]), tasks)
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: found {error!r}, expected a plan") from None
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    for task in tasks:
        if folder_name([task.name]) != task.name:
            raise CheckpointError(f"{path}: name: found {task.name!r}, expected a plain name")
    return plan


def _texts(data: Any) -> tuple[str, ...]:
    """`TypeError` unless `data` is a list of texts."""
    if not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise TypeError(f"{data!r}, expected a list of texts")
    return tuple(data)

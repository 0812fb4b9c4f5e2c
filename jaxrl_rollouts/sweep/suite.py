"""A benchmark suite: one file that names datasets, methods with their settings, seeds and budget.

    question = "How good is each method on each dataset at one budget?"
    job = "offline"                  # an experiment of the command line
    seeds = 4
    last = 3                         # evaluations whose mean is read
    datasets = ["hopper-medium-mini-v1"]

    [options]                        # of every run
    steps = 150_000

    [methods.mopo]                   # a column of the table
    title = "MOPO"
    penalty = 5.0                    # an option of the run, one value for all datasets

Of another job, the options that name dataset and method, and what is read of its report:

    job = "pde_train"
    dataset_option = "file"
    method_option = ""               # none: a method is its options

    [groups]
    line = ["ks22", "ks64"]

    [minimise]                       # metrics: a column of one of the report's tables each
    vrmse = "VRMSE of a step"

    [methods.fno]
    network = "fno"
    [methods.fno.line]               # options of the datasets of a group
    "network.width" = 24

    [methods.linear]
    arm = "linear"                   # a row of every run's tables, and no run

Beside equal gradient steps, equal seconds: with

    [seconds]
    datasets = ["ks22"]
    [seconds.cost.line]              # measured seconds of a gradient step, by group
    fno = 0.04
    resnet = 0.08

`resnet@seconds` is `resnet` with half the steps of the reference `fno`.

A cell of the table is one dataset and one method, with all its seeds side by side: one run of the
command line, a `Task` of `plan`; or `parts` of them, with some of the seeds each.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config_json import read
from ..configs import Range, check, positive, unknown
from ..errors import ConfigError, DataError, one_line
from .plan import Task, folder_name

# Of a method's table, not options of its run.
OWN = ("title", "method", "arm", "row", "on", "ranked", "parts")
SECONDS = "@seconds"  # ends the key of a method at the reference's seconds
EVALUATIONS = 20  # steps at equal seconds are whole multiples: so many records of equal length


@dataclass(frozen=True)
class Seconds:
    """Methods trained for the same seconds as the reference is.

    Attributes:
        datasets: on which.
        cost: seconds of a gradient step on the same hardware, by group and method. Methods without
            one are left out.
        note: how it was measured, one sentence of the page.
    """

    datasets: tuple[str, ...]
    cost: Mapping[str, Mapping[str, float]]
    note: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite's file.

    Attributes:
        question: that the table answers.
        job: the experiment that each cell runs.
        datasets: rows of the table.
        methods: columns by key; `title` is what people read, `method` the name where it differs
            from the key, `on` the groups on which it runs, `arm` the name of a baseline that every
            run measures beside its own, `row` the row of its own run's tables that is read in the
            place of the first, `ranked` false of what is shown beside the others and changes no
            rank, `parts` in how many runs a cell is trained, each with its share of the seeds and a
            random seed of its own; everything else are options of the run.
        seeds: of every cell, trained side by side.
        last: evaluations at the end of the training whose mean is a seed's result.
        reference: key of the method that others are compared with.
        options: of every run. A table in it, or in a method's, has those of a group.
        data: how the datasets were made and their units, one paragraph.
        tuning: how hyper-parameters were chosen, one sentence.
        verdict: the page's title once there is an answer, with its scope and number of seeds.
        notes: paragraphs of the page, of what was found in the numbers.
        dataset_option, method_option: of the job; "" for none.
        groups: of datasets, by name; scores are averaged over each by itself.
        minimise, maximise: metrics by key, of which the lowest or the highest is the best: the
            name of a column of the report's tables, or of one of its numbers.
        recorded: likewise, what is recorded and not compared.
        seconds: what is trained again at equal seconds.
    """

    question: str
    job: str
    datasets: tuple[str, ...]
    methods: Mapping[str, Any]
    seeds: int = positive(4)
    last: int = positive(3)
    reference: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    tuning: str = ""
    verdict: str = ""
    notes: tuple[str, ...] = ()
    dataset_option: str = "dataset"
    method_option: str = "method"
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    minimise: Mapping[str, str] = field(default_factory=dict)
    maximise: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    seconds: Seconds | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys of the methods, and of those at equal seconds."""
        costs = self.seconds.cost.values() if self.seconds else ()
        timed = {key for own in costs for key in own} - {self.reference}
        return *self.methods, *(f"{key}{SECONDS}" for key in self.methods if key in timed)

    @property
    def metrics(self) -> Mapping[str, str]:
        """What is read of a report: key -> column."""
        return {**self.minimise, **self.maximise, **self.recorded}

    def validate(self) -> None:
        if not self.datasets or not self.methods:
            raise ConfigError("suite", "no datasets or no methods", "at least one of each")
        if self.reference and self.reference not in self.methods:
            raise unknown("reference", self.reference, tuple(self.methods))
        places = (*self.groups, *self.datasets)
        for key, own in self.methods.items():
            if (parts := self.parts(key)) not in range(1, self.seeds + 1) or self.seeds % parts:
                raise ConfigError(f"methods.{key}.parts", parts, f"a divisor of {self.seeds} seeds")
            for name in (*own.get("on", ()), *_tables(own), *_tables(self.options)):
                if name not in places:
                    raise unknown(f"methods.{key}", name, places)
        for place, costs in (self.seconds.cost if self.seconds else {}).items():
            if place not in places:
                raise unknown("seconds.cost", place, places)
            for key in {self.reference, *costs}:
                if key not in self.methods or key not in costs:
                    raise unknown(f"seconds.cost.{place}", key, tuple(self.methods))
                Range(above=0).check(f"seconds.cost.{place}.{key}", costs[key])

    def places(self, dataset: str) -> tuple[str, ...]:
        """A dataset and the groups in which it is, it last."""
        return *(name for name, own in self.groups.items() if dataset in own), dataset

    def has(self, dataset: str, key: str) -> bool:
        """Whether a method runs on a dataset."""
        key, timed, _ = key.partition(SECONDS)
        if timed and key not in self.costs(dataset):
            return False
        on = self.methods.get(key, {}).get("on", ())
        return not on or bool({*on} & {*self.places(dataset)})

    def costs(self, dataset: str) -> Mapping[str, float]:
        """Seconds of a gradient step, by method; none on datasets without equal seconds."""
        if self.seconds is None or dataset not in self.seconds.datasets:
            return {}
        return _options(self.seconds.cost, self.places(dataset))

    def title(self, key: str) -> str:
        """How a method is called in tables."""
        key = key.partition(SECONDS)[0]
        return str(self.methods.get(key, {}).get("title", key))

    def parts(self, key: str) -> Any:
        """In how many runs a method's cells are trained, also at equal seconds."""
        return self.methods.get(key.partition(SECONDS)[0], {}).get("parts", 1)

    def cells(
        self, datasets: Collection[str] = (), methods: Collection[str] = ()
    ) -> Iterator[Cell]:
        """What is run, in its order: dataset by dataset for each method, a cell's parts in turn.

        Args:
            datasets, methods: which of the suite's; none names all. A method that the suite does
                not list runs with its preset's settings.
        """
        for key in methods or self.columns:
            for dataset in datasets or self.datasets:
                if self.has(dataset, key) and "arm" not in self.methods.get(key, {}):
                    yield from (self.cell(dataset, key, n) for n in range(self.parts(key)))

    def arms(self, dataset: str) -> Iterator[tuple[str, Cell]]:
        """Baselines that every run on a dataset measures: name in its tables, and cell."""
        for key, own in self.methods.items():
            if "arm" in own and self.has(dataset, key):
                yield own["arm"], self.cell(dataset, key)

    def cell(self, dataset: str, key: str, part: int = 0) -> Cell:
        """One cell, or the `part` of one that is trained in several."""
        base, timed, _ = key.partition(SECONDS)
        own = self.methods.get(base, {})
        places = self.places(dataset)
        plain = {k: v for k, v in own.items() if k not in OWN}
        words = {**_options(self.options, places), **_options(plain, places)}
        if timed:
            words["steps"] = self._steps(dataset, base, words)
        name, named = str(own.get("method", base)), {"job": self.job}
        if "arm" in own:
            named, words = {**named, "arm": own["arm"]}, {}
        elif self.method_option:
            named |= {"method": name}
        parts = self.parts(key)
        seeds = self.seeds // parts
        options = {self.dataset_option: dataset, self.method_option: name, "seeds": seeds}
        options.pop("", None)
        settings = digest({**named, **words})
        row = str(own.get("row", ""))
        given = {**options, **words}
        if parts == 1:
            return Cell(dataset, key, self.job, seeds, given, settings, row)
        given["seed"] = given.get("seed", 0) + part
        return Cell(dataset, key, self.job, seeds, given, settings, row, part)

    def _steps(self, dataset: str, key: str, words: Mapping[str, Any]) -> int:
        """Gradient steps of a method in the seconds of the reference's."""
        costs, steps = self.costs(dataset), words.get("steps")
        if key not in costs or not isinstance(steps, int):
            raise ConfigError(f"{key}{SECONDS}", dataset, "[seconds] with its cost, and steps")
        per = steps * costs[self.reference] / costs[key] / EVALUATIONS
        return EVALUATIONS * max(1, round(per))


def _tables(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key, value in options.items() if isinstance(value, Mapping))


def _options(options: Mapping[str, Any], places: Collection[str]) -> dict[str, Any]:
    """Options of a dataset: those of all, and above them those of its groups and its own."""
    found = {k: v for k, v in options.items() if not isinstance(v, Mapping)}
    for place in places:
        found |= options.get(place, {})
    return found


@dataclass(frozen=True)
class Cell:
    """One dataset and one method, with all seeds or a part of them.

    Attributes:
        dataset: name or path.
        method: key of the column.
        job: the experiment.
        seeds: trained side by side.
        options: of the run, dataset, method and seeds among them.
        settings: digest of job, method and options: rows of other settings are others.
        row: of the run's tables that is read; "" for the first.
        part: number of the part; None is a whole cell.
    """

    dataset: str
    method: str
    job: str
    seeds: int
    options: Mapping[str, Any]
    settings: str
    row: str = ""
    part: int | None = None

    @property
    def first(self) -> int:
        """Number of the first seed in the table."""
        return self.seeds * (self.part or 0)

    def task(self, directory: Path) -> Task:
        """The run, as a task of a sweep; its folder carries the settings' digest."""
        point = {"dataset": self.dataset, "method": self.method}
        part = [] if self.part is None else [f"part{self.part}"]
        words: list[str] = []
        for name, value in self.options.items():
            words += _words(name.replace("_", "-"), value)
        name = folder_name([self.dataset, self.method, self.settings, *part])
        return Task(name, point, (self.job, *words, "--no-progress"), str(directory))


def _words(name: str, value: Any) -> list[str]:
    """An option on the command line; `network.x = false` is `--network.no-x`."""
    if isinstance(value, bool):
        place, dot, last = name.rpartition(".")
        return [f"--{place}{dot}{last if value else f'no-{last}'}"]
    return [f"--{name}", *map(str, value if isinstance(value, list) else [value])]


def digest(settings: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits of settings, whatever their order."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_suite(path: Path) -> Suite:
    """A suite's file, checked."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(path, "file", error.strerror or str(error), "a suite's TOML file") from None
    except (ValueError, RecursionError) as error:
        raise DataError(path, "file", one_line(error), "TOML") from None
    suite = read(Suite, data, str(path))
    check(suite)
    return suite

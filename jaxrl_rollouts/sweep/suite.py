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

A cell of the table is one dataset and one method, with all its seeds side by side: one run of the
command line, a `Task` of `plan`.
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
from ..configs import check, positive, unknown
from ..errors import ConfigError, DataError, one_line
from .plan import Task, folder_name

OWN = ("title", "method")  # of a method's table, not options of its run


@dataclass(frozen=True)
class Suite:
    """A suite's file.

    Attributes:
        question: that the table answers.
        job: the experiment that each cell runs.
        datasets: rows of the table.
        methods: columns by key; `title` is what people read, `method` the name where it differs
            from the key, everything else options of the run.
        seeds: of every cell, trained side by side.
        last: evaluations at the end of the training whose mean is a seed's result.
        reference: key of the method that others are compared with.
        options: of every run.
        tuning: how hyper-parameters were chosen, one sentence.
    """

    question: str
    job: str
    datasets: tuple[str, ...]
    methods: Mapping[str, Any]
    seeds: int = positive(4)
    last: int = positive(3)
    reference: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    tuning: str = ""

    def validate(self) -> None:
        if not self.datasets or not self.methods:
            raise ConfigError("suite", "no datasets or no methods", "at least one of each")
        if self.reference and self.reference not in self.methods:
            raise unknown("reference", self.reference, tuple(self.methods))

    def title(self, key: str) -> str:
        """How a method is called in tables."""
        return str(self.methods.get(key, {}).get("title", key))

    def cells(
        self, datasets: Collection[str] = (), methods: Collection[str] = ()
    ) -> Iterator[Cell]:
        """Cells of the table in the order in which they run: dataset by dataset for each method.

        Args:
            datasets, methods: which of the suite's; none names all. A method that the suite does
                not list runs with its preset's settings.
        """
        for key in methods or self.methods:
            for dataset in datasets or self.datasets:
                yield self.cell(dataset, key)

    def cell(self, dataset: str, key: str) -> Cell:
        """One cell."""
        own = dict(self.methods.get(key, {}))
        name = str(own.get("method", key))
        words = {**self.options, **{k: v for k, v in own.items() if k not in OWN}}
        settings = digest({"job": self.job, "method": name, **words})
        return Cell(dataset, key, name, self.job, self.seeds, words, settings)


@dataclass(frozen=True)
class Cell:
    """One dataset and one method, all seeds.

    Attributes:
        dataset: name or path.
        method: key of the column.
        name: of the method on the command line.
        job: the experiment.
        seeds: trained side by side.
        options: of the run.
        settings: digest of job, method and options: rows of other settings are others.
    """

    dataset: str
    method: str
    name: str
    job: str
    seeds: int
    options: Mapping[str, Any]
    settings: str

    def task(self, directory: Path) -> Task:
        """The run, as a task of a sweep; its folder carries the settings' digest."""
        point = {"dataset": self.dataset, "method": self.method}
        words = ["--dataset", self.dataset, "--method", self.name, "--seeds", str(self.seeds)]
        for name, value in self.options.items():
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(_word, values)]
        name = folder_name([self.dataset, self.method, self.settings])
        return Task(name, point, (self.job, *words, "--no-progress"), str(directory))


def _word(value: Any) -> str:
    return str(value) if not isinstance(value, bool) else str(value).lower()


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

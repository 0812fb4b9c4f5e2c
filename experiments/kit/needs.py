"""What an experiment needs from outside, checked before anything is trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.offline.behaviours.made import MADE, load_dataset
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.study.model_based import environment_of


def check_datasets(names: Iterable[str], *, play: bool = True) -> list[str]:
    """Read every dataset and make its environment; lines that say what they are.

    Args:
        names: of datasets, or paths; those made on the spot need nothing.
        play: whether policies are evaluated in the environments.

    Raises:
        DataError: a dataset is missing, or is not what a dataset should be.
        ConfigError: nobody knows its environment.
        MissingExtraError: the simulator is not installed.
    """
    files = [name for name in dict.fromkeys(names) if name not in MADE]
    if play:
        return [open_dataset(name)[1] for name in files]
    return [_line(load_dataset(name)) for name in files]


def open_dataset(name: str) -> tuple[Environment, str]:
    """The environment of a dataset, and a line that says what it is; raises as `check_datasets`."""
    if name in MADE:
        return make(MADE[name][0]), f"{name}: made on the spot"
    dataset = load_dataset(name)
    env = environment_of(dataset)
    return env, f"{_line(dataset)}, played in {env.name}"


def _line(dataset: Dataset) -> str:
    return f"{dataset.name}: {len(dataset.transitions.rewards):,} transitions"


def check_environments(names: Iterable[str]) -> list[str]:
    """Make every environment.

    Raises:
        ConfigError, MissingExtraError: it is unknown, or its simulator is not installed.
    """
    for name in dict.fromkeys(names):
        make(name)
    return []


def check_solver(config: Any) -> list[str]:
    """Raise `MissingExtraError` unless equations can be solved."""
    if importlib.util.find_spec("exponax") is None:
        raise MissingExtraError("solving equations", "exponax", "pde")
    return []


# What the catalogue names, by where the configuration of an experiment has its datasets.


def of_datasets(config: Any) -> list[str]:
    return check_datasets(config.datasets)


def of_dataset(config: Any) -> list[str]:
    return check_datasets([config.dataset])


def of_cases(config: Any) -> list[str]:
    return check_datasets(case.data for case in config.cases().values())


def of_pairs(config: Any) -> list[str]:
    return check_datasets((name for pair in config.pairs for name in pair), play=False)


def of_dials(config: Any) -> list[str]:
    dials = (config.plane, config.standard)
    return check_environments(dial.environment for dial in dials if dial is not None)

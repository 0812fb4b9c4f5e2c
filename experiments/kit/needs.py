"""What an experiment needs from outside, checked before anything is trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.offline.behaviours.made import MADE, load
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.task import line_of


def check_datasets(names: Iterable[str], *, play: bool = True) -> list[str]:
    """Read every dataset and make its environment; lines that say what they are."""
    lines = []
    for name in dict.fromkeys(names):
        if name not in MADE:
            dataset = load(name)
            lines.append(line_of(dataset, environment_of(dataset) if play else None))
    return lines


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


def of_pairs(config: Any) -> list[str]:
    return check_datasets((name for pair in config.pairs for name in pair), play=False)

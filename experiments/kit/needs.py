"""External requirements of an experiment, checked before training."""

from __future__ import annotations

import importlib.util
from itertools import chain
from typing import Any

from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.offline.behaviours.made import MADE, PENDULUM, load
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.task import line_of


def check_datasets(config: Any) -> list[str]:
    """Read every dataset of a configuration and make its environment; lines that say what they are.

    Datasets are its `dataset`, its `datasets`, or its `pairs`, which are not played.
    """
    pairs = getattr(config, "pairs", ())
    names = getattr(config, "datasets", None) or [getattr(config, "dataset", PENDULUM)]
    lines = []
    for name in dict.fromkeys([*chain(*pairs)] or names):
        if name not in MADE:
            dataset = load(name)
            lines.append(line_of(dataset, None if pairs else environment_of(dataset)))
    return lines


def check_solver(config: Any) -> list[str]:
    """Raise `MissingExtraError` unless equations can be solved."""
    if importlib.util.find_spec("exponax") is None:
        raise MissingExtraError("solving equations", "exponax", "pde")
    return []

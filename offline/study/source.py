"""What a method learns from: a dataset, the environment it is from, what its behaviour earned."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from jaxrl_rollouts.record.context import RunContext

from ..behaviours.made import load_dataset
from ..data import Dataset, episode_returns
from ..data import episodes as parts_of
from ..environments import Environment
from .setting import environment_of, hold_data


class Source(Protocol):
    """What a method learns from: a dataset and its environment, perhaps with world models."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def env(self) -> Environment: ...


class Setting(NamedTuple):
    """A dataset and the environment it is from, where no world model is fitted.

    `synthetic` says what was learned from in place of the dataset's own rows, if anything.
    """

    dataset: Dataset
    env: Environment
    synthetic: str = ""


def setting_of(name: str, seed: int = 0, context: RunContext | None = None) -> Setting:
    """A dataset that `load_dataset` knows, with its environment; raises what those raise, and
    what `hold_data` does."""
    dataset = load_dataset(name, seed)
    hold_data(dataset, context)
    return Setting(dataset, environment_of(dataset))


def behaviour(world: Source, discount: float = 1.0) -> np.ndarray:
    """Returns of a dataset's whole episodes, `[episodes]`, without those that were cut short.

    They are counted over as many steps as an episode of the environment has.
    """
    rows = world.dataset.transitions
    parts = parts_of(rows)
    whole = parts.terminated | (parts.lengths >= world.env.max_episode_steps)
    # A set without one whole episode (a short prefix) has only cut ones to compare with.
    returns = episode_returns(rows, discount, world.env.max_episode_steps)
    return returns[whole if whole.any() else slice(None)]


def starts_of(dataset: Dataset, most: int = 256) -> np.ndarray:
    """What a dataset's first episodes begin with, `[B, S]`."""
    rows = dataset.transitions
    return np.asarray(rows.observations[parts_of(rows).starts][:most])


def slug(name: str) -> str:
    """A dataset name as part of a folder or picture name."""
    return "".join(c if c.isalnum() or c == "-" else "-" for c in name.split("/")[-1])

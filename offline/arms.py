"""Arms of a training: settings trained side by side in one program.

offline.train(data, "iql", sweep={"expectile": (0.7, 0.9)})      # every combination, seeds apart
offline.train(data, "iql", sweep=[{"expectile": 0.7}, {"expectile": 0.9, "beta": 1.0}])
jaxrl-rollouts run offline --method iql --arms expectile=0.7 expectile=0.9,beta=1

An arm of a list has the random numbers of a training of its own with these settings.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from .method import Agent, Sweep


class Swept(NamedTuple):
    """Rows, and the coefficients of the seed that learns from them."""

    rows: Any
    coefficients: dict[str, jax.Array]


def sweep_of(given: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]]) -> Sweep:
    """The argument `sweep` of `train` in the form of `Job.sweep`."""
    if isinstance(given, Mapping):
        return {name: tuple(values) for name, values in given.items()}
    return tuple(dict(arm) for arm in given)


def arms_of(texts: Sequence[str]) -> tuple[dict[str, float], ...]:
    """The settings of each arm, of texts such as `expectile=0.9` or `expectile=0.9,beta=1`.

    Raises:
        ConfigError: a text of another form.
    """
    arms = []
    for text in texts:
        pairs = [pair.partition("=")[::2] for pair in text.split(",")]
        try:
            arms.append({name.replace("-", "_"): float(value) for name, value in pairs})
        except ValueError:
            raise ConfigError("arms", text, "settings and numbers, expectile=0.9,beta=1") from None
    return tuple(arms)


def with_coefficients(agent: Agent, found: Mapping[str, jax.Array]) -> Agent:
    """The agent whose gradient step reads these numbers in its settings; they may be traced."""
    update: Any = agent.update
    nets = update.args[0]
    own = nets._replace(config=replace(nets.config, **found))
    return agent._replace(update=functools.partial(update.func, own))


def of_arm(values: PyTree, arm: int, seeds: int) -> PyTree:
    """Rows of one arm, `[seeds, ...]` of `[arms * seeds, ...]`."""
    return jax.tree.map(lambda x: x[arm * seeds : (arm + 1) * seeds], values)

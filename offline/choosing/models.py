"""Policies in world models of the data: an ensemble, half of it fitted to each half of the log.

Clones of a part of the log are played in the members that never saw that part; what was trained
elsewhere is played in all. No member is shared with a training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext

from ..data import Dataset, Transitions, episodes, take_rows, to_device
from ..environments import Environment
from ..task import slug, termination_of
from ..worlds.dynamics import Dynamics, WorldModelParams, learned_dynamics, uncertainties
from ..worlds.endings import TerminationConfig, with_endings
from ..worlds.fit import WorldModelConfig, fit_world_models
from ..worlds.open_loop import open_loop, unchanged, windows
from ..worlds.saved import load_worlds
from ..worlds.written import FILE, save_worlds

WINDOW = 50  # steps over which models are compared with the data


class Models(NamedTuple):
    """World models that policies are valued in.

    Attributes:
        world: one `WorldModelParams`; member `i` has seen the half `i % 2` of the episodes alone.
        dynamics: dynamics of all members, and of half of them.
        fitter: fitter of their networks.
        limit: the largest disagreement of the members on the data.
        error, unchanged: root mean square error along logged actions of episodes that a half has
            not seen, in deviations, median over windows; and that of "nothing changes".
        horizon: steps of the longest episode.
    """

    world: WorldModelParams
    dynamics: tuple[Dynamics, Dynamics]
    fitter: Any
    limit: float
    error: float
    unchanged: float
    horizon: int

    def half(self, number: int) -> WorldModelParams:
        """The members that have seen one half."""
        return self.world._replace(elites=jax.tree.map(lambda x: x[number::2], self.world.elites))

    @property
    def wrong(self) -> str:
        """Why nothing that they say counts; "" where they are better than nothing."""
        if self.error < self.unchanged:
            return ""
        shown = f"{self.error:.3g} deviations against {self.unchanged:.3g}"
        return f"models have larger errors than 'nothing changes' on held-out episodes ({shown})"


def halves(count: int, parts: int) -> np.ndarray:
    """Which part each of `count` episodes is of, `[E]`; part `g` belongs to the half `g % 2`."""
    return np.arange(count) * parts // count


def rows_of(dataset: Dataset, of_episode: np.ndarray) -> np.ndarray:
    """What is given of episodes `[E]`, of the rows of `dataset.with_successors`."""
    rows = dataset.transitions
    every = np.repeat(of_episode, episodes(rows).lengths)
    if dataset.attributes.get("ends_alone"):
        return every[~np.asarray(rows.terminations, bool)]
    return every


def fit_models(
    dataset: Dataset,
    env: Environment,
    config: WorldModelConfig,
    half: np.ndarray,
    *,
    seed: int = 0,
    folder: Path | None = None,
    context: RunContext | None = None,
) -> Models:
    """Fit them, or read them from a folder where they were written before.

    Args:
        half: `[N]`, 0 or 1, of the rows of `dataset.with_successors`.
        folder: written where it holds none.

    Raises:
        ConfigError: a learner whose members are not all elites, or an odd number.
        DataError: a folder with models of other data.
    """
    if config.members % 2 or config.elites != config.members:
        found = f"{config.members} members, {config.elites} elites"
        raise ConfigError("models", found, "an even number, all of them elites: each sees a half")
    rule, rows = termination_of(dataset, env, config), dataset.with_successors
    ending = rule if isinstance(rule, TerminationConfig) else None
    if folder is not None and (folder / FILE).is_file():
        saved = load_worlds(folder, dataset)
        if saved.config != config.ensemble:
            expected = "models of these settings"
            raise ConfigError("models", str(folder), expected, "name another folder")
        fitter, worlds = saved.model.fitter, saved.worlds
    else:
        key, end_key = jax.random.split(as_key(seed, "seed"))
        name = slug(dataset.name)
        more: dict[str, Any] = {"seeds": 1, "context": context}
        stage = f"{name}-choose-models"
        asked: Any = {"targets": config.targets, "groups": half, "stage": stage}
        asked["forcing"] = env.forcing
        fitted = fit_world_models(config.ensemble, rows, key, **asked, **more)
        fitter, worlds = fitted.model.fitter, fitted.worlds
        if ending is not None:
            more["stage"] = f"{name}-choose-endings"
            worlds = with_endings(worlds, ending, rows, end_key, **more)
        if folder is not None:
            save_worlds(folder, worlds, dataset, config.ensemble, config.targets, ending=ending)
    count = config.members
    both = (learned_dynamics(fitter, n, termination=rule) for n in (count, count // 2))
    world = jax.tree.map(lambda x: x[0], worlds)
    on_device = to_device(rows)
    seen = uncertainties(fitter, world, on_device.observations, on_device.actions)
    longest = int(episodes(dataset.transitions).lengths.max())
    found = Models(world, tuple(both), fitter, float(seen.max()), 0.0, 0.0, longest)  # type: ignore[arg-type]
    error, still = _errors(found, rows, half)
    return found._replace(error=error, unchanged=still)


def _errors(models: Models, rows: Transitions, half: np.ndarray) -> tuple[float, float]:
    """`Models.error` and `Models.unchanged`, the mean over both halves."""
    found = []
    for number in (0, 1):
        unseen = take_rows(rows, np.flatnonzero(half != number))
        length = min(WINDOW, int(episodes(unseen).lengths.max()))
        logged, world = windows(unseen, length, 200), models.half(number)
        error = open_loop(models.dynamics[1], world, logged, jax.random.key(number)).error
        still = unchanged(logged, world.inputs.std[: rows.observations.shape[1]])
        both = np.asarray(error), still
        found.append([np.median(np.sqrt(np.square(x).mean(0))) for x in both])
    error, still = np.mean(found, 0)
    return float(error), float(still)

"""Datasets that anyone can make: SAC is trained in the simulator, and its policies are played.

===========  =====================================================================================
kind         rows
===========  =====================================================================================
`random`     uniformly random actions; nothing is trained
`medium`     the policy of that evaluation whose return comes nearest to a third of the way from
             the random policy's return to the last evaluation's
`expert`     the policy of the last evaluation
`mixed`      what a replay buffer holds: every fifth of the training played by the policy in its
             middle
===========  =====================================================================================

Trained policies draw their actions, as they did while learning. Rows are whole episodes in D4RL's
layout, the last of each part cut, with true successors and the simulator's positions and velocities
before each step where it has any. On CPU the same versions, seed and processor give the same bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.config_json import to_json
from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.files import write_json_atomically
from jaxrl_rollouts.record.provenance import current_versions

from ..agents.sac import SacConfig
from ..behaviours.made import MADE
from ..collect import collect, collect_with_states, concatenate, random_policy, write_rows
from ..data.catalogue import MADE_DATASETS, MADE_KINDS
from ..data.transitions import episode_returns, file_sha256
from ..environments.base import Environment
from ..evaluation import check_count
from .learner import OnlineConfig
from .train import Online, simulator, train_online

RANDOM, MEDIUM, EXPERT, MIXED = MADE_KINDS
PARTS = 5  # policies of a mixed set
RANDOM_EPISODES = 20  # that say what uniformly random actions earn


class Recipe(NamedTuple):
    """How long, and with what, the policies of an environment's sets are trained."""

    steps: int
    agent: SacConfig = SacConfig(hidden=(64, 64))
    online: OnlineConfig = OnlineConfig()


RECIPES: Mapping[str, Recipe] = {
    "halfcheetah": Recipe(200_000),
    "hopper": Recipe(200_000),
    "walker2d": Recipe(300_000),
    "inverted-double-pendulum": Recipe(40_000),
    "reacher": Recipe(40_000),
    "swimmer": Recipe(100_000),
    "pendulum": Recipe(20_000, online=OnlineConfig(warmup=1_000)),
}


class Part(NamedTuple):
    """Rows of one policy.

    Attributes:
        look: which evaluation's policy, from 0; None for random actions.
        steps: in the simulator that it had learned from.
        score: what it earned in that evaluation, with the mean action.
        rows: how many.
    """

    look: int | None
    steps: int
    score: float
    rows: int


class Made(NamedTuple):
    """A dataset that was made.

    Attributes:
        path: the file.
        sha256: of it.
        mean_return: of its episodes.
        parts: where its rows come from, in order.
        seconds: spent in training, in all sessions, and in playing.
        training: None where nothing was trained.
    """

    path: Path
    sha256: str
    mean_return: float
    parts: list[Part]
    seconds: tuple[float, float]
    training: Online | None


def split_name(name: str) -> tuple[str, str]:
    """Environment and kind of a set's name; `ConfigError` for one that is not made here."""
    if name in MADE:
        hint = f"it is made on the spot wherever a dataset is named: --dataset {name}"
        raise ConfigError("data make", name, "a set that is made beforehand", hint)
    if name not in MADE_DATASETS:
        raise unknown("data make", name, MADE_DATASETS)
    family, _, kind = name.rpartition("-")
    return family, kind


def make_set(
    name: str,
    folder: str | Path,
    *,
    rows: int = 100_000,
    seed: int = 0,
    recipe: Recipe | None = None,
    context: RunContext | None = None,
) -> Made:
    """Train what is needed, play it, and write `<name>.hdf5` and `<name>.json` into a folder.

    Args:
        name: one of `MADE_DATASETS`: `halfcheetah-mixed`.
        folder: where to; it must exist. `load(name)` finds it in a data folder.
        rows: of the set.
        seed: of training and playing.
        recipe: another length, agent or cadence than `RECIPES` has for the environment.
        context: a run for the training, which goes on from its checkpoint; the sets of one
            environment and seed can share it. None trains in memory and in silence.

    Raises:
        ConfigError: an unknown name, or fewer rows than parts.
        DataError: the file cannot be written.
        Interrupted, DivergenceError: see `train_online`.
    """
    family, kind = split_name(name)
    check_count("rows", rows)
    if rows < PARTS:
        raise ConfigError("rows", rows, f"at least {PARTS}")
    recipe = recipe or RECIPES[family]
    env, training = simulator(family), None
    if kind != RANDOM:
        training = train_online(
            family, recipe.agent, recipe.steps, online=recipe.online, seed=seed, context=context
        )
    begin = time.perf_counter()
    play_key, random_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    lowest = random_return(env, random_key)
    parts = parts_of(kind, training, lowest, rows)
    found, infos = played(env, parts, training, play_key)
    path = Path(folder) / f"{name}.hdf5"
    facts = _facts(name, recipe, seed, rows, parts, training, context)
    write_rows(path, env, found, facts, infos)
    mean = float(episode_returns(found).mean())
    trained = training.trained.wall_seconds if training else 0.0
    spent = trained, time.perf_counter() - begin
    made = Made(path, file_sha256(path), mean, parts, spent, training)
    write_json_atomically(path.with_suffix(".json"), _record(made, facts))
    return made


def random_return(env: Environment, key: jax.Array) -> float:
    """What uniformly random actions earn."""
    rows = collect(env, random_policy(env.action_size), (), key, episodes=RANDOM_EPISODES)
    return float(episode_returns(rows).mean())


def parts_of(kind: str, training: Online | None, lowest: float, rows: int) -> list[Part]:
    """Which policies play how many of the rows; see this module's table.

    Args:
        kind: one of `MADE_KINDS`.
        training: None for random actions.
        lowest: return of those.
        rows: of all parts together.
    """
    if training is None:
        return [Part(None, 0, lowest, rows)]
    steps, curve = training.curve()
    returns = curve[:, 0]
    if kind == MIXED:
        middles = (np.arange(PARTS) + 0.5) / PARTS * steps[-1]
        chosen = [int(np.abs(steps - middle).argmin()) for middle in middles]
    elif kind == EXPERT:
        chosen = [len(steps) - 1]
    else:
        wanted = lowest + (returns[-1] - lowest) / 3
        chosen = [int(np.abs(returns - wanted).argmin())]
    ends = [round(rows * n / len(chosen)) for n in range(len(chosen) + 1)]
    return [
        Part(look, int(steps[look]), float(returns[look]), after - before)
        for look, before, after in zip(chosen, ends, ends[1:], strict=False)
    ]


def played(
    env: Environment, parts: list[Part], training: Online | None, key: jax.Array
) -> tuple[Any, dict[str, np.ndarray]]:
    """Rows of the parts one after the other, with positions and velocities where there are any."""
    pieces = []
    for number, part in enumerate(parts):
        policy, actor = random_policy(env.action_size), ()
        if training is not None and part.look is not None:
            policy, actor = training.agent.policy, training.actor(0, part.look)
        part_key = jax.random.fold_in(key, number)
        pieces.append(collect_with_states(env, policy, actor, part_key, part.rows))
    return concatenate(pieces)


def _facts(
    name: str,
    recipe: Recipe,
    seed: int,
    rows: int,
    parts: list[Part],
    training: Online | None,
    context: RunContext | None,
) -> dict[str, Any]:
    """Attributes of the file: how each of its rows came about. Nothing here is of the moment."""
    policy = "uniformly random actions"
    if training is not None:
        policy = f"online SAC, {len(parts)} checkpoint(s), actions sampled"
    versions = context.folder.versions if context else current_versions()
    facts = {
        "policy": policy,
        "seed": seed,
        "part_rows": [part.rows for part in parts],
        "part_steps": [part.steps for part in parts],
        "part_returns": [part.score for part in parts],
        "command": f"jaxrl-rollouts data make {name} --rows {rows} --seed {seed}",
        "versions": json.dumps(versions),
    }
    if training is not None:
        settings = {"steps": training.steps, **to_json(recipe.online), **to_json(training.settings)}
        facts |= {"training": json.dumps(settings)}
        if recipe.steps != RECIPES[split_name(name)[0]].steps:
            facts["command"] += f" --steps {recipe.steps}"
    return facts


def _record(made: Made, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What lies beside the file: its digest, what it cost, the learning curve."""
    record = {"file": made.path.name, "sha256": made.sha256, "mean_return": made.mean_return}
    record |= {"training_seconds": made.seconds[0], "playing_seconds": made.seconds[1]}
    record |= {"parts": [part._asdict() for part in made.parts], **facts}
    if made.training is not None:
        steps, returns = made.training.curve()
        record["learning_curve"] = {"steps": steps, "return": returns[:, 0]}
    return record

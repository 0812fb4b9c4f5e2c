"""Trained policies on disk: what is needed to act, without the run that made them.

A policy folder holds `policy.json` (the agent's settings, sizes, environment, bounds of actions)
and one checkpoint of the actors of all seeds. `policy` makes of it something that acts on numpy
arrays; here is what the library itself plays it with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.config_json import earlier_version, from_json, to_json
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.record.saved import (
    diverged_seeds,
    find_folder,
    load_params,
    one_seed,
    read_facts,
    reading,
    save_trained,
)
from jaxrl_rollouts.registry import is_place
from jaxrl_rollouts.trees import PyTree

from .agents import AGENTS
from .environments import Environment
from .environments.base import with_columns
from .environments.offset import shifted
from .matching import is_simulator
from .method import Agent, AgentConfig

FORMAT = 2  # 1 did not say the bounds of actions
LESS = 3  # 2 whose observations are less an offset
FILE = "policy.json"
LAST, BEST = "policy", "policy-best"  # folders of a run: after training, and of its best evaluation
RECURRENT = "recurrent_sac"  # the kind of NEUBAY's agent, which no other method takes
_SIZES = ("observation_size", "action_size")

Bounds = tuple[Sequence[float] | None, Sequence[float] | None]


class SavedPolicy(NamedTuple):
    """A policy that was trained, all seeds of it.

    Attributes:
        agent: its functions; `agent.greedy` and `agent.policy` act, in [-1, 1].
        actors: their parameters, leading axis = seeds.
        facts: everything in `policy.json`.
        remembers: it is shown its last action and reward, and has a memory; see `sees`.
        config: settings of the agent.
    """

    agent: Agent
    actors: PyTree
    facts: Mapping[str, Any]
    remembers: bool = False
    config: Any = None

    @property
    def environment(self) -> str:
        """Name of the one it was meant for; empty where it was trained without."""
        return self.facts.get("environment") or ""

    def sees(self, env: Environment) -> Environment:
        """The environment as the policy has to be shown it: `placed`, with what it remembers.

        Raises:
            ConfigError: its observations or actions are of other sizes, or its columns have other
                names.
        """
        env = shown = self.placed(env)
        if self.remembers:
            from .recurrent.histories import remembering

            shown = remembering(shown)
        for name in _SIZES:
            if getattr(shown, name) != self.facts[name]:
                found = f"{env.name} ({name} {getattr(shown, name)})"
                raise ConfigError(
                    "environment", found, f"one with {name} {self.facts[name]}, as the policy has"
                )
        return shown

    def placed(self, env: Environment) -> Environment:
        """The environment with its columns in the policy's order, less the policy's offset.

        Raises:
            ConfigError: its columns have other names.
        """
        names = self.facts.get("columns") or ()
        if names and env.columns:
            if set(names) != set(env.columns):
                expected = f"the columns {', '.join(map(str, names[:6]))}, as the policy has"
                raise ConfigError(f"environment {env.name}", list(env.columns[:6]), expected)
            env = with_columns(env, names)
        if len(self.facts.get("offset") or ()) == env.observation_size:
            env = shifted(env, self.facts["offset"])
        return env

    def start(self, episodes: int) -> PyTree:
        """The policy's memory at the beginning of so many episodes."""
        return self.agent.memory(episodes)

    @property
    def diverged(self) -> list[int]:
        """Training seeds with parameters that are not finite: a training left them behind."""
        return diverged_seeds(self.actors)

    def actor(self, seed: int) -> PyTree:
        """Parameters of one training seed.

        Raises:
            CheckpointError: there is no such seed, or it diverged.
        """
        return one_seed(self.actors, seed)


def policy_of(
    config: AgentConfig,
    actors: PyTree,
    env: Environment | None = None,
    *,
    sizes: tuple[int, int] | None = None,
    bounds: Bounds | None = None,
    **facts: Any,
) -> SavedPolicy:
    """A policy in memory, as `read_policy` gives one from a folder.

    Args:
        bounds: bounds of the environment's actions, lowest and highest; left out, those of `env`,
            else [-1, 1].
    """
    if env is not None:
        sizes = env.observation_size, env.action_size
        bounds = bounds or (env.action_low, env.action_high)
    if sizes is None:
        raise ConfigError("sizes", None, "those of observation and action, as there is no env")
    low, high = bounds or (None, None)
    record = {
        **facts,
        "format": LESS if env is not None and env.offset else FORMAT,
        "kind": RECURRENT if _is_recurrent(config) else AGENTS.name_of(config),
        "agent": to_json(config),
        "columns": list(env.columns) if env is not None else [],
        "offset": list(env.offset) or None if env is not None else None,
        "environment": env.name if env is not None and is_simulator(env) else None,
        "observation_size": sizes[0],
        "action_size": sizes[1],
        "action_low": None if low is None else [float(x) for x in low],
        "action_high": None if high is None else [float(x) for x in high],
        "seeds": jax.tree.leaves(actors)[0].shape[0],
    }
    return SavedPolicy(_agent(config, *sizes), actors, record, _remembers(config), config)


def save_policy(
    folder: str | Path,
    config: AgentConfig,
    actors: PyTree,
    env: Environment | None = None,
    **given: Any,
) -> Path:
    """Write the policy that `policy_of` makes of these arguments; the folder is made if need be."""
    policy = policy_of(config, actors, env, **given)
    return save_trained(folder, FILE, policy.facts, actors)


def read_policy(path: str | Path, *, best: bool = False) -> SavedPolicy:
    """Read a policy folder, or the only policy inside a run folder."""
    name = BEST if best else LAST
    inside = best and not (Path(path) / FILE).is_file()
    if inside and {found.parent.name for found in Path(path).rglob(FILE)} == {LAST}:
        raise CheckpointError(
            f"{path}: found no policy of a best evaluation, expected one; without a simulator none "
            "is chosen: best=False takes the last policy"
        )
    folder = find_folder(path, FILE, "policy", lambda found: best == (found.name == BEST))
    file = folder / FILE
    facts = read_facts(file, f"a {name} folder", (FORMAT, LESS), _SIZES)
    kind = facts.get("kind")
    if not isinstance(kind, str) or not (kind in (*AGENTS, RECURRENT) or is_place(kind)):
        known = ", ".join((*AGENTS, RECURRENT))
        raise CheckpointError(f"{file}: kind: found {kind!r}, expected one of {known}")
    named = facts.get("columns", [])
    if not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise CheckpointError(f"{file}: columns: found {named!r}, expected a list of names")
    for name in ("action_low", "action_high"):
        check_bound(file, name, facts.get(name), facts["action_size"])
    settings = _settings_of(kind)
    with earlier_version("train the policy again"):
        config: Any = from_json(settings, facts.get("agent"), str(file))
    with reading(file, "a policy"):
        agent = _agent(config, *(facts[name] for name in _SIZES))
    seen, acts = (facts[name] for name in _SIZES)
    own = seen - acts - 1 if _remembers(config) else seen
    check_bound(file, "offset", facts.get("offset"), own)
    actors = load_params(folder, lambda key: agent.init(key).actor, facts["seeds"])
    return SavedPolicy(agent, actors, facts, _remembers(config), config)


def check_bound(file: Path, name: str, bound: Any, size: int) -> None:
    """`CheckpointError` unless a bound is None or `size` numbers."""
    numbers = isinstance(bound, list) and all(
        isinstance(x, int | float) and math.isfinite(x) for x in bound
    )
    if bound is not None and not (numbers and len(bound) == size):
        raise CheckpointError(f"{file}: {name}: found {bound!r}, expected {size} numbers or null")


def _settings_of(kind: str) -> type:
    if kind != RECURRENT:
        return AGENTS[kind]
    from .recurrent.sac import RecurrentSacConfig

    return RecurrentSacConfig


def _is_recurrent(config: Any) -> bool:
    """By the class's name: the room of recurrent agents is imported for those only."""
    return type(config).__name__ == "RecurrentSacConfig"


def _remembers(config: Any) -> bool:
    return _is_recurrent(config) and config.memory.kind != "none"


def _agent(config: Any, observation_size: int, action_size: int) -> Agent:
    if not _is_recurrent(config):
        return config.make(observation_size, action_size)
    from .recurrent.sac import make_recurrent_sac

    return make_recurrent_sac(config, observation_size, action_size)

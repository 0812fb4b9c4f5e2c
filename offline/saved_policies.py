"""Trained policies on disk: what is needed to act, without the run that made them.

A policy folder holds `policy.json` (the agent's settings, sizes, environment) and one checkpoint
of the actors of all seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.configs import from_json, to_json
from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.folder import read_json, write_json_atomically
from jaxrl_rollouts.trees import PyTree

from .agents.agent import Agent
from .agents.registry import AGENTS, AgentConfig, agent_name, make_agent
from .environments import Environment
from .recurrent.histories import remembering
from .recurrent.sac import RecurrentSacConfig, make_recurrent_sac

FORMAT = 1
FILE = "policy.json"
RECURRENT = "recurrent_sac"
_SIZES = ("observation_size", "action_size", "seeds")


class SavedPolicy(NamedTuple):
    """A policy that was trained.

    Attributes:
        agent: its functions; `agent.greedy` and `agent.policy` act.
        actors: their parameters, leading axis = seeds.
        environment: name of the one it was meant for.
        facts: everything in `policy.json`.
        remembers: it is shown its last action and reward, and has a memory; see `sees`.
    """

    agent: Agent
    actors: PyTree
    environment: str
    facts: Mapping[str, Any]
    remembers: bool = False

    def sees(self, env: Environment) -> Environment:
        """The environment as the policy has to be shown it."""
        return remembering(env) if self.remembers else env

    def start(self, episodes: int) -> PyTree:
        """The policy's memory at the beginning of so many episodes."""
        return self.agent.memory(episodes)

    def actor(self, seed: int) -> PyTree:
        """Parameters of one training seed.

        Raises:
            CheckpointError: there is no such seed.
        """
        if not 0 <= seed < self.facts["seeds"]:
            raise CheckpointError(
                f"training seed: found {seed}, expected 0 to {self.facts['seeds'] - 1}"
            )
        return jax.tree.map(lambda leaf: leaf[seed], self.actors)


def save_policy(
    folder: Path,
    config: AgentConfig | RecurrentSacConfig,
    actors: PyTree,
    env: Environment,
    **facts: Any,
) -> Path:
    """Write actors (leading axis = seeds) of an agent with `config`, meant for `env`.

    `env` is the environment as the agent sees it (`remembering`, for one with a memory). `facts`
    (data, method, returns) are kept beside what loading needs.
    """
    kind = RECURRENT if isinstance(config, RecurrentSacConfig) else agent_name(config)
    checkpoint.save(folder, 0, actors)
    record = {
        **facts,
        "format": FORMAT,
        "kind": kind,
        "agent": to_json(config),
        "environment": env.name,
        "observation_size": env.observation_size,
        "action_size": env.action_size,
        "seeds": jax.tree.leaves(actors)[0].shape[0],
    }
    write_json_atomically(folder / FILE, record)
    return folder


def load_policy(path: str | Path) -> SavedPolicy:
    """Read a policy folder, or the only one inside a run folder.

    Raises:
        CheckpointError: there is none or several, or it cannot be read.
    """
    folder = _find(Path(path))
    facts = read_json(folder / FILE, "a policy folder")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        raise CheckpointError(f"{folder / FILE}: format: found {found!r}, expected {FORMAT}")
    for name in _SIZES:
        size = facts.get(name)
        if not isinstance(size, int) or size < 1:
            raise CheckpointError(
                f"{folder / FILE}: {name}: found {size!r}, expected a whole number of at least 1"
            )
    kind = facts.get("kind", "sac")  # folders of before there were others do not say
    known = {name: spec.config for name, spec in AGENTS.items()} | {RECURRENT: RecurrentSacConfig}
    if kind not in known:
        raise CheckpointError(
            f"{folder / FILE}: kind: found {kind!r}, expected one of {', '.join(known)}"
        )
    config = from_json(known[kind], facts.get("agent"), str(folder / FILE))
    remembers = isinstance(config, RecurrentSacConfig) and config.memory.kind != "none"
    make: Callable[..., Any] = make_recurrent_sac if kind == RECURRENT else make_agent
    agent = make(config, facts["observation_size"], facts["action_size"])
    keys = jax.random.split(jax.random.key(0), facts["seeds"])
    like = jax.jit(jax.vmap(lambda key: agent.init(key).actor))(keys)
    loaded = checkpoint.load_newest(folder, like)
    if loaded is None:
        raise CheckpointError(f"{folder}: found no complete checkpoint, expected one")
    return SavedPolicy(agent, loaded[1], str(facts.get("environment")), facts, remembers)


def _find(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"{path}: found no folder, expected a run folder or a policy in one")
    inside = [path] if (path / FILE).is_file() else sorted(p.parent for p in path.rglob(FILE))
    if len(inside) == 1:
        return inside[0]
    if not inside:
        raise CheckpointError(
            f"{path}: found no trained policy, expected a {FILE}; a run writes it once a method "
            "is trained"
        )
    names = ", ".join(str(p.relative_to(path)) for p in inside)
    raise CheckpointError(f"{path}: found {len(inside)} policies, expected one; name one: {names}")

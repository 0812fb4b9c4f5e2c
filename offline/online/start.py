"""Start of a fine-tuning: an agent that was trained offline, and its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.files import file_sha256
from jaxrl_rollouts.record.saved import find_folder, load_params
from jaxrl_rollouts.trees import PyTree

from .. import logs
from ..agents.cql import CqlConfig
from ..agents.iql import IqlConfig
from ..agents.sac import SacConfig
from ..data import Dataset
from ..data.transitions import RewardScale
from ..environments import Environment, make
from ..environments.registry import make_named
from ..environments.replayed import keeping
from ..matching import EnvironmentLike, matched
from ..method import AgentConfig
from ..result import TrainResult
from ..saved_policies import FILE, LAST, SavedPolicy, read_policy

# Agents whose update needs nothing but rows, and whose policy explores.
AGENTS = (IqlConfig, CqlConfig, SacConfig)


class Start(NamedTuple):
    """An agent to fine-tune.

    Attributes:
        settings: settings of the agent, its learning rates constant.
        agent: its state, leaves `[seeds, ...]`: networks, targets, optimisers.
        policy: its acting part.
        env: evaluation environment of a result; None for a run's folder, which names it.
        reward: the view of the rewards that its critics learned from.
        sha256: sha256 of the checkpoint; "" if in memory.
    """

    settings: AgentConfig
    agent: PyTree
    policy: SavedPolicy
    env: Environment | None
    reward: RewardScale
    sha256: str = ""


def start_of(trained: TrainResult | str | Path) -> Start:
    """The agents of all training seeds that did not diverge, of a result or of a run's folder.

    Raises:
        ConfigError: an agent that cannot be fine-tuned.
        CheckpointError: a folder without a policy, or without the training's last checkpoint.
    """
    if isinstance(trained, TrainResult):
        policy, digest = trained.saved(), ""
        _check(trained.config)
        state, env = trained.trained.state.agent, trained.env
        settings: Any = trained.config
    else:
        policy, env = read_policy(trained), None
        settings = policy.config
        _check(settings)
        state, digest = _read(Path(trained), policy)
    sizes = policy.facts["observation_size"], policy.facts["action_size"]
    lost = policy.diverged
    if lost:
        kept = jnp.array([i for i in range(policy.facts["seeds"]) if i not in lost], jnp.int32)
        if not len(kept):
            raise ConfigError("start", "seeds that all diverged", "one that did not, at least")
        state = jax.tree.map(lambda x: x[kept], state)
    settings = replace(settings, cosine=False)
    fresh = jax.eval_shape(settings.make(*sizes).init, jax.random.key(0))
    scale = policy.facts.get("reward") or {}
    return Start(settings, _onto(fresh, state), policy, env, RewardScale(**scale), digest)


def log_of(trained: TrainResult | str | Path) -> Dataset:
    """The rows that agents learned from.

    Raises:
        ConfigError: a folder without information on its data.
    """
    if isinstance(trained, TrainResult):
        return trained.source.dataset
    path = Path(trained)
    runs = (folder for folder in (path, *path.parents) if (folder / "run.json").is_file())
    return logs.log_of("", [next(runs, path)])


def place_of(
    start: Start, data: Dataset | None, environment: EnvironmentLike | None
) -> tuple[Dataset | None, Environment]:
    """The data and the simulator as the agent sees them; the simulator's state can be kept.

    Args:
        environment: None takes the one that the policy was evaluated in.

    Raises:
        ConfigError: no environment, or one of other sizes than the policy's.
    """
    if environment is None or environment == "":
        environment = start.env or _named(start.policy.environment)
    if data is None:
        return None, keeping(start.policy.sees(make(environment)))
    data, env = matched(data, environment)
    return data, keeping(start.policy.sees(env))


def _named(environment: str) -> Environment:
    if not environment:
        expected = "one to act in, since the policy was trained without a simulator"
        raise ConfigError("environment", "none", expected)
    return make_named(environment)


def as_calibrated(config: AgentConfig) -> AgentConfig:
    """The settings of Cal-QL; `ConfigError` for an agent that is not of CQL."""
    if not isinstance(config, CqlConfig):
        found = f"True of an agent with {type(config).__name__}"
        raise ConfigError("calibrated", found, "an agent of CQL")
    return replace(config, calibrated=True)


def _check(config: Any) -> None:
    if not isinstance(config, AGENTS):
        hint = "train one of those offline; the others have no policy that explores"
        found = f"an agent with {type(config).__name__}"
        raise ConfigError("start", found, "an agent of SAC, EDAC, CQL or IQL", hint)


def _read(path: Path, policy: SavedPolicy) -> tuple[PyTree, str]:
    """The agents' states in the training's checkpoint beside the policy, and its digest."""
    settings: Any = policy.config
    folder = find_folder(path, FILE, "policy", lambda found: found.name == LAST).parent
    taken = checkpoint.steps(folder)
    if not taken:
        found, expected = "a policy without its critics", "the run that trained it"
        raise CheckpointError(f"{folder}: found {found}, expected {expected}")
    sizes = policy.facts["observation_size"], policy.facts["action_size"]
    # A schedule counts its steps, so that the state has a leaf more.
    agent = settings.make(*sizes, 1 if settings.cosine else None)
    state = load_params(folder, agent.init, policy.facts["seeds"], ("state", "agent"))
    return state, file_sha256(folder / str(taken[-1]) / checkpoint.DIGESTS)


def _onto(fresh: PyTree, old: PyTree) -> PyTree:
    """`old` in the structure of `fresh`, which has no counts of schedules."""
    if jax.tree.structure(fresh) == jax.tree.structure(old):
        return old
    if not isinstance(fresh, tuple) or len(fresh) != len(old):
        return fresh  # the state of a constant rate, which is empty
    parts = [_onto(*pair) for pair in zip(fresh, old, strict=True)]
    named: Any = type(fresh)
    return named(*parts) if hasattr(fresh, "_fields") else tuple(parts)

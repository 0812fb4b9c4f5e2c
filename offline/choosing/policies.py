"""What can be chosen from: results, policies of runs, functions; all in one form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.trees import PyTree

from ..data import Dataset, to_unit
from ..method import Agent
from ..policy import Policy
from ..result import TrainResult
from ..saved_policies import SavedPolicy

Act = Callable[[np.ndarray], np.ndarray]
Choosable = TrainResult | SavedPolicy | Policy | tuple[str, Any]


class Entry(NamedTuple):
    """Policies of one training.

    Attributes:
        name: name of the training.
        names: names of its policies, `[K]`.
        agent: the agent whose `policy` acts, within [-1, 1].
        actors: parameters `[K, ...]`.
        remembers: it observes its last action and reward as well.
        discount: that of the training; None of a function.
    """

    name: str
    names: tuple[str, ...]
    agent: Agent
    actors: PyTree
    remembers: bool = False
    discount: float | None = None

    @property
    def has_memory(self) -> bool:
        return self.remembers or bool(jax.tree.leaves(self.agent.memory(1)))


def entries_of(
    policies: Sequence[Choosable], data: Dataset, *, sampled: bool, best: bool
) -> list[Entry]:
    """Every training's policies, by names that differ.

    Args:
        policies: results, `read_policy` or `load_policy` of runs, `(name, function)` with a
            function from observations `[B, S]` to actions `[B, A]` in their own units, or any of
            the others under a name.
        data: dataset with the same sizes and action bounds.
        sampled: actions are drawn, where they else are the mean ones.
        best: use the policies of the results' best evaluations.

    Raises:
        ConfigError: no policy, or one of other sizes or bounds.
    """
    if not policies:
        raise ConfigError("policies", "none", "at least one")
    found: list[Entry] = []
    for given in policies:
        name, policy = given if type(given) is tuple else ("", given)
        if isinstance(policy, TrainResult):
            policy = policy.saved(best=best)
        if isinstance(policy, SavedPolicy):
            entry = _saved(name, policy, range(policy.facts["seeds"]), data, sampled)
        elif isinstance(policy, Policy):
            entry = _saved(name, policy.saved, [policy.seed], data, sampled)
        elif callable(policy) and name:
            entry = _function(name, cast(Act, policy), data)
        else:
            expected = "a TrainResult, a policy of a run, or (name, function)"
            raise ConfigError("policies", type(policy).__name__, expected)
        count = sum(other.name.partition("#")[0] == entry.name for other in found)
        if count:
            entry = _renamed(entry, f"{entry.name}#{count + 1}")
        found.append(entry)
    return found


def _renamed(entry: Entry, name: str) -> Entry:
    names = tuple(name + one.removeprefix(entry.name) for one in entry.names)
    return entry._replace(name=name, names=names)


def _saved(
    name: str, saved: SavedPolicy, seeds: Sequence[int], data: Dataset, sampled: bool
) -> Entry:
    name = name or str(saved.facts.get("method") or "policy")
    width, acts = (x.shape[1] for x in (data.transitions.observations, data.transitions.actions))
    sizes = width + (acts + 1) * saved.remembers, acts
    own = tuple(saved.facts[key] for key in ("observation_size", "action_size"))
    if own != sizes:
        raise ConfigError(f"policy {name}", f"sizes {own}", f"{sizes}, those of {data.name}")
    for key in ("action_low", "action_high"):
        theirs, ours = saved.facts.get(key), getattr(data, key)
        if theirs is not None and ours is not None and not np.allclose(theirs, ours, rtol=1e-4):
            expected = f"{np.asarray(ours).tolist()}, the bounds of {data.name}"
            raise ConfigError(f"policy {name}: {key}", theirs, expected)
    columns = tuple(saved.facts.get("columns") or ())
    if columns and data.columns and columns != data.columns:
        raise ConfigError(f"policy {name}: columns", columns, f"{data.columns}, of {data.name}")
    gap = np.zeros(width) if data.offset is None else np.array(data.offset, np.float64)
    gap -= 0.0 if saved.facts.get("offset") is None else np.asarray(saved.facts["offset"])
    agent = _acting(saved.agent, sampled, tuple(gap.tolist()) if gap.any() else ())
    actors = jax.tree.map(lambda x: x[np.asarray(seeds)], saved.actors)
    names = tuple(f"{name}/{seed}" for seed in seeds)
    discount = saved.facts["agent"].get("discount")
    return Entry(name, names, agent, actors, saved.remembers, discount)


@functools.lru_cache(maxsize=64)
def _acting(agent: Agent, sampled: bool, gap: tuple[float, ...]) -> Agent:
    """The agent with the policy that is evaluated as `policy`, clipped as a simulator clips it.

    It observes the data's rows plus a gap, where they are less another offset than its own.
    """
    choose, density = agent.policy if sampled else agent.greedy, agent.density

    def shown(observation: jax.Array) -> jax.Array:
        return observation.at[..., : len(gap)].add(jnp.asarray(gap)) if gap else observation

    def policy(actor: Any, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        action, memory = choose(actor, key, shown(observation), memory)
        return jnp.clip(action, -1.0, 1.0), memory

    def given(actor: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
        assert density is not None
        return density(actor, shown(observation), action)

    return agent._replace(policy=policy, density=given if sampled and density else None)


def _function(name: str, act: Act, data: Dataset) -> Entry:
    size, bounds = data.transitions.actions.shape[1], (data.action_low, data.action_high)

    def called(observation: Any) -> np.ndarray:
        own = np.asarray(observation) if data.offset is None else observation + data.offset
        found = np.asarray(act(own), np.float32)
        if found.shape != (len(observation), size):
            raise DataError(name, "actions", found.shape, f"{(len(observation), size)}")
        low, high = bounds
        if low is not None and high is not None:
            found = to_unit(name, "actions", np.clip(found, low, high), low, high)
        return np.clip(found, -1.0, 1.0)

    def policy(actor: Any, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        del actor, key
        shape = jax.ShapeDtypeStruct((observation.shape[0], size), jnp.float32)
        return jax.pure_callback(called, shape, observation, vmap_method="sequential"), memory

    called(np.asarray(data.transitions.observations[:2]))  # its errors are readable out here
    agent = Agent(no_training, no_training, policy, policy, None)
    return Entry(name, (name,), agent, {"of": jnp.zeros((1,))})


def no_training(*_: Any) -> Any:
    """A function has nothing to learn."""
    raise NotImplementedError

"""Datasets from policies: engine rollouts cut into D4RL-like rows.

Rows of one episode stand together and in order; an episode ends in a termination or, at the time
limit or where the dataset is cut, in a truncation. Next observations are true successors always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Step, rollout
from jaxrl_rollouts.trees import PyTree

from .data.d4rl import write_d4rl
from .data.transitions import Transitions, episode_returns, take_rows
from .environments.base import Environment, as_model
from .evaluation import Policy, check_count, early_exit

MAX_BATCH = 256  # episodes side by side when a number of steps is asked for


@cache  # one function object per size, so that nothing is compiled twice
def random_policy(action_size: int) -> Policy:
    """A policy of uniform actions in `[-1, 1]^A`; it ignores its parameters."""

    def policy(
        params: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
    ) -> tuple[jax.Array, PyTree]:
        shape = (observation.shape[0], action_size)
        return draws.uniform(key, shape, low=-1.0), memory

    return policy


def _record(step: Step) -> Transitions:
    actions = jnp.clip(step.actions, -1.0, 1.0)  # what the environment applies
    return Transitions(
        step.observations,
        actions,
        step.rewards,
        step.next_observations,
        step.terminations,
        step.truncations,
    )


@partial(jax.jit, static_argnames=("env", "policy", "batch"))
def _play(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    batch: int,
    memory: PyTree,
) -> tuple[Transitions, jax.Array]:
    reset_key, key = jax.random.split(key)
    played = rollout(
        as_model(env),
        None,
        env.reset(reset_key, batch),
        key,
        horizon=env.max_episode_steps,
        policy=policy,
        policy_params=policy_params,
        memory=memory,
        early_exit=early_exit(env),
        record=_record,
    )
    return played.steps, played.valid


def _rows(steps: Transitions, valid: jax.Array) -> Transitions:
    """`[T, B, ...]` to `[N, ...]`, episode after episode."""
    keep = np.asarray(valid).T
    return Transitions(*(np.swapaxes(np.asarray(leaf), 0, 1)[keep] for leaf in steps))


def concatenate(parts: Sequence[Transitions]) -> Transitions:
    """Rows of several sets one after the other."""
    return Transitions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _cut(rows: Transitions, steps: int) -> Transitions:
    """The first `steps` rows; an episode that goes on is truncated there."""
    rows = take_rows(rows, np.arange(steps))
    rows.truncations[-1] = not rows.terminations[-1]
    return rows


def collect(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    memory: PyTree = (),
) -> Transitions:
    """Play a policy and keep every transition.

    Args:
        env: where.
        policy: `(params, key, observation [B, S], memory) -> (action [B, A], memory)`.
        policy_params: handed to `policy`.
        key: consumed; the same key gives the same rows.
        episodes: number of whole episodes, all side by side; or
        steps: number of rows exactly; the last episode may be cut. Batches of
            `ceil(steps / env.max_episode_steps)` episodes (256 at most) are played until it is
            reached.
        memory: the policy's recurrent state at the start, one row per episode of a batch.

    Returns:
        `Transitions` of numpy arrays, float32 and bool.

    Raises:
        ConfigError: not exactly one of `episodes` and `steps`, or not a positive whole number.
    """
    if (episodes is None) == (steps is None):
        found = f"episodes={episodes}, steps={steps}"
        raise ConfigError("collect", found, "exactly one of episodes and steps")
    if episodes is not None:
        check_count("episodes", episodes)
        return _rows(*_play(env, policy, policy_params, key, episodes, memory))
    assert steps is not None  # exactly one of the two
    check_count("steps", steps)
    batch = min(-(-steps // env.max_episode_steps), MAX_BATCH)
    parts: list[Transitions] = []
    count = 0
    while count < steps:
        round_key = jax.random.fold_in(key, len(parts))
        parts.append(_rows(*_play(env, policy, policy_params, round_key, batch, memory)))
        count += len(parts[-1].rewards)
    return _cut(concatenate(parts), steps)


class Part(NamedTuple):
    """A share of a `mixture`: `steps` rows of one policy."""

    policy: Policy
    params: PyTree
    steps: int


def mixture(env: Environment, parts: Sequence[Part], key: jax.Array) -> Transitions:
    """Rows of several policies, one part after the other.

    Raises:
        ConfigError: no parts, or one without rows.
    """
    if not parts:
        raise ConfigError("parts", parts, "at least one policy")
    keys = jax.random.split(key, len(parts))
    return concatenate(
        [
            collect(env, part.policy, part.params, part_key, steps=part.steps)
            for part, part_key in zip(parts, keys, strict=True)
        ]
    )


def collect_to_file(
    path: str | Path,
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    memory: PyTree = (),
    attributes: Mapping[str, Any] | None = None,
) -> Transitions:
    """`collect` into an HDF5 file in D4RL's layout, which `load_d4rl` reads.

    The file says which environment and versions it came from, the time limit and the mean return;
    `attributes` adds to that. Actions are written in the environment's own units, with its bounds.

    Raises:
        ConfigError: as `collect`.
        DataError: the file cannot be written.
    """
    rows = collect(env, policy, policy_params, key, episodes=episodes, steps=steps, memory=memory)
    write_rows(path, env, rows, attributes)
    return rows


def write_rows(
    path: str | Path, env: Environment, rows: Transitions, attributes: Mapping[str, Any] | None
) -> None:
    """Write collected rows with where they came from; see `collect_to_file`."""
    facts = {
        "env_id": env.name,
        "environment_version": env.version,
        "max_episode_steps": env.max_episode_steps,
        "mean_return": float(episode_returns(rows).mean()),
    }
    write_d4rl(
        path,
        rows,
        {**facts, **(attributes or {})},
        action_low=env.action_low,
        action_high=env.action_high,
    )

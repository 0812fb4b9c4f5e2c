"""Datasets from policies: engine rollouts cut into D4RL-like rows.

Rows of one episode stand together and in order; an episode ends in a termination or, at the time
limit or where the dataset is cut, in a truncation. Next observations are true successors always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import Step, rollout
from jaxrl_rollouts.trees import PyTree

from .data.d4rl import write_d4rl
from .data.transitions import Transitions, episode_returns, take_rows
from .environments.base import Environment, as_model, naming_failures
from .evaluation import Policy, check_count, early_exit

INFOS = ("qpos", "qvel")
MAX_BATCH = 256  # episodes side by side when a number of steps is given


@cache  # one function object per size, so that nothing is compiled twice
def random_policy(action_size: int) -> Policy:
    """A policy of uniform actions in `[-1, 1]^A`; it ignores its parameters."""

    def policy(
        params: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
    ) -> tuple[jax.Array, PyTree]:
        shape = (observation.shape[0], action_size)
        return draws.uniform(key, shape, low=-1.0), memory

    return policy


def _record(step: Step) -> tuple[Transitions, PyTree]:
    """The row, and the simulator's state before it where that is observed, too."""
    (before, state), (after, _) = step.observations, step.next_observations
    actions = jnp.clip(step.actions, -1.0, 1.0)  # what the environment applies
    endings = step.terminations, step.truncations
    return Transitions(before, actions, step.rewards, after, *endings), state


@partial(jax.jit, static_argnames=("env", "policy", "batch", "states"))
def _play(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    batch: int,
    memory: PyTree,
    states: bool = False,
) -> tuple[tuple[Transitions, PyTree], jax.Array]:
    reset_key, key = jax.random.split(key)

    def act(params: PyTree, key: jax.Array, seen: Any, memory: PyTree) -> tuple[jax.Array, PyTree]:
        return policy(params, key, seen[0], memory)

    played = rollout(
        as_model(env)._replace(observe=lambda s: (env.observe(s), s.inner if states else ())),
        None,
        env.reset(reset_key, batch),
        key,
        horizon=env.max_episode_steps,
        policy=act,
        policy_params=policy_params,
        memory=memory,
        early_exit=early_exit(env),
        record=_record,
    )
    return played.steps, played.valid


def _rows(steps: PyTree, valid: jax.Array) -> PyTree:
    """`[T, B, ...]` to `[N, ...]`, episode after episode."""
    keep = np.asarray(valid).T
    return jax.tree.map(lambda leaf: np.swapaxes(np.asarray(leaf), 0, 1)[keep], steps)


def concatenate(parts: Sequence[PyTree]) -> Any:
    """Rows of several sets one after the other."""
    return jax.tree.map(lambda *columns: np.concatenate(columns), *parts)


def _cut(rows: Transitions, steps: int) -> Transitions:
    """The first `steps` rows; an unfinished episode is truncated there."""
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
        with naming_failures(env):
            return _rows(*_play(env, policy, policy_params, key, episodes, memory))[0]
    assert steps is not None  # exactly one of the two
    check_count("steps", steps)
    return _rounds(env, policy, policy_params, key, steps, memory)[0]


def collect_with_states(
    env: Environment, policy: Policy, policy_params: PyTree, key: jax.Array, steps: int
) -> tuple[Transitions, dict[str, np.ndarray]]:
    """`collect` of so many steps, the same rows, with the simulator's state before each of them.

    Returns:
        The rows, and `qpos [N, Q]` and `qvel [N, V]` in double precision where the environment
        has them (`Environment.positions`), else nothing.
    """
    check_count("steps", steps)
    if env.positions is None:
        return collect(env, policy, policy_params, key, steps=steps), {}
    rows, states = _rounds(env, policy, policy_params, key, steps, (), states=True)
    return rows, dict(zip(INFOS, env.positions(states), strict=True))


def _rounds(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    steps: int,
    memory: PyTree,
    states: bool = False,
) -> tuple[Transitions, PyTree]:
    """As many batches of episodes as give `steps` rows, and no more rows than that."""
    batch = min(-(-steps // env.max_episode_steps), MAX_BATCH)
    parts: list[tuple[Transitions, PyTree]] = []
    count = 0
    while count < steps:
        round_key = jax.random.fold_in(key, len(parts))
        with naming_failures(env):
            played = _play(env, policy, policy_params, round_key, batch, memory, states)
            parts.append(_rows(*played))
        count += len(parts[-1][0].rewards)
    rows, extra = concatenate(parts)
    return _cut(rows, steps), jax.tree.map(lambda leaf: leaf[:steps], extra)


def write_rows(
    path: str | Path,
    env: Environment,
    rows: Transitions,
    attributes: Mapping[str, Any] | None = None,
    infos: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write collected rows as an HDF5 file in D4RL's layout, which `load_d4rl` reads.

    The file has environment and versions, the time limit and the mean return;
    `attributes` adds to that. Actions are written in the environment's own units, with its bounds.
    """
    facts = {
        "env_id": env.name,
        "environment_version": env.version,
        "max_episode_steps": env.max_episode_steps,
        "mean_return": float(episode_returns(rows).mean()),
    } | ({"observation_columns": list(env.columns)} if env.columns else {})
    write_d4rl(
        path,
        rows,
        {**facts, **(attributes or {})},
        infos,
        action_low=env.action_low,
        action_high=env.action_high,
        offset=env.offset,
    )

"""Returns of a policy in an environment: one engine rollout of whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.draws import seed_keys
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollouts import rollout
from jaxrl_rollouts.trees import PyTree

from .environments.base import Environment, EnvironmentState, as_model, naming_failures

Policy = Callable[[PyTree, jax.Array, jax.Array, PyTree], tuple[jax.Array, PyTree]]

EARLY_EXIT = 50  # steps between looks whether all episodes have ended


class Evaluation(NamedTuple):
    """One entry per episode: `[episodes]`, or `[seeds, episodes]` from `evaluate_seeds`.

    Attributes:
        returns: undiscounted sums of rewards.
        discounted: sums discounted from the episode's start; comparable to the critic's value.
        lengths: steps.
        terminated: True where the episode ended by itself and not by the time limit.
    """

    returns: jax.Array
    discounted: jax.Array
    lengths: jax.Array
    terminated: jax.Array

    __repr__ = brief


def check_count(setting: str, found: int) -> None:
    """`ConfigError` unless `found` is a positive whole number."""
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ConfigError(setting, found, "a whole number of at least 1")


def early_exit(env: Environment) -> int | None:
    """Long episodes are left once all have ended; short ones are not worth the checks."""
    return EARLY_EXIT if env.max_episode_steps > 4 * EARLY_EXIT else None


def _episodes(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    start: EnvironmentState,
    key: jax.Array,
    memory: PyTree,
    discount: float,
) -> Evaluation:
    played = rollout(
        as_model(env),
        None,
        start,
        key,
        horizon=env.max_episode_steps,
        policy=policy,
        policy_params=policy_params,
        memory=memory,
        early_exit=early_exit(env),
        record=lambda step: (step.rewards, step.terminations),
    )
    rewards, terminations = played.steps
    weights = discount ** jnp.arange(rewards.shape[0], dtype=jnp.float32)
    return Evaluation(rewards.sum(0), weights @ rewards, played.lengths, terminations.any(0))


@partial(jax.jit, static_argnames=("env", "policy", "episodes"))
def _evaluate(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    episodes: int,
    memory: PyTree,
    discount: float,
) -> Evaluation:
    reset_key, key = jax.random.split(key)
    start = env.reset(reset_key, episodes)
    return _episodes(env, policy, policy_params, start, key, memory, discount)


def evaluate(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    episodes: int = 10,
    *,
    memory: PyTree = (),
    discount: float = 0.99,
) -> Evaluation:
    """Play whole episodes side by side.

    Compiled once per `env`, `policy` (the same function objects) and `episodes`.

    Args:
        env: where; its time limit is the horizon.
        policy: `(params, key, observation [B, S], memory) -> (action [B, A], memory)`.
        policy_params: handed to `policy`.
        key: consumed; the same key gives the same start states.
        episodes: number of episodes, `B`.
        memory: the policy's recurrent state at the start, `[B, ...]`.
        discount: for `Evaluation.discounted`.

    Returns:
        An `Evaluation` of `[episodes]` entries.

    Raises:
        ConfigError: `episodes` is not a positive whole number.
        SimulatorError: a simulator on the host raised, or gave what is no step.
    """
    check_count("episodes", episodes)
    given = env, policy, policy_params, key, episodes, memory, discount
    return _played(env, lambda: _evaluate(*given))


def start_observations(env: Environment, key: jax.Array, count: int) -> jax.Array:
    """Of `count` episodes that begin, `[count, D]`."""
    return env.observe(env.reset(key, count)) if env.host else _started(env, key, count)


@partial(jax.jit, static_argnames=("env", "count"))
def _started(env: Environment, key: jax.Array, count: int) -> jax.Array:
    return env.observe(env.reset(key, count))


def _played(env: Environment, play: Callable[[], Evaluation]) -> Evaluation:
    """What was played; of a simulator on the host it is waited for, as it may fail."""
    if not env.host:
        return play()
    with naming_failures(env):
        return jax.block_until_ready(play())


def evaluate_seeds(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    episodes: int = 10,
    *,
    memory: PyTree = (),
    discount: float = 0.99,
    repeats: int = 1,
) -> Evaluation:
    """`evaluate` for parameters with a leading seed axis `[K, ...]`.

    Seed `k` starts as `evaluate(..., seed_keys(key, K, repeats)[k])` does. JAX environments are
    vmapped, so everything else is equal as well. On the host all `K * episodes` episodes are
    one batch; a stochastic policy then has other random numbers.

    Args:
        policy_params: leaves `[K, ...]`.
        memory: `[K, episodes, ...]`.
        repeats: number of seeds that share each key.

    Returns:
        An `Evaluation` of `[K, episodes]` entries.
    """
    check_count("episodes", episodes)
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(policy_params)}
    if len(sizes) != 1 or () in sizes:
        raise ConfigError("policy_params", sorted(sizes), "leaves that share a leading seed axis")
    if env.host:
        given = env, policy, policy_params, key, episodes, memory, discount, repeats
        return _played(env, lambda: _evaluate_seeds_host(*given))

    return _evaluate_seeds(env, policy, policy_params, key, episodes, memory, discount, repeats)


@partial(jax.jit, static_argnames=("env", "policy", "episodes", "repeats"))
def _evaluate_seeds(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    episodes: int,
    memory: PyTree,
    discount: float,
    repeats: int,
) -> Evaluation:
    def one(params: PyTree, key: jax.Array, memory: PyTree) -> Evaluation:
        return _evaluate(env, policy, params, key, episodes, memory, discount)

    seeds = jax.tree.leaves(policy_params)[0].shape[0]
    return jax.vmap(one)(policy_params, seed_keys(key, seeds, repeats), memory)


@partial(jax.jit, static_argnames=("env", "policy", "episodes", "repeats"))
def _evaluate_seeds_host(
    env: Environment,
    policy: Policy,
    policy_params: PyTree,
    key: jax.Array,
    episodes: int,
    memory: PyTree,
    discount: float,
    repeats: int,
) -> Evaluation:
    """Seeds and episodes folded into one batch: ordered callbacks cannot be vmapped."""
    seeds = jax.tree.leaves(policy_params)[0].shape[0]

    def fold(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(seeds * episodes, *x.shape[2:]), tree)

    def unfold(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(seeds, episodes, *x.shape[1:]), tree)

    def folded(
        params: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
    ) -> tuple[jax.Array, PyTree]:
        keys = seed_keys(key, seeds, repeats)
        return fold(jax.vmap(policy)(params, keys, unfold(observation), unfold(memory)))

    own = jax.vmap(jax.random.split)(seed_keys(key, seeds, repeats))
    reset_keys, play_key = own[:, 0], own[0, 1]
    start = env.reset(reset_keys, seeds * episodes)
    return unfold(_episodes(env, folded, policy_params, start, play_key, fold(memory), discount))

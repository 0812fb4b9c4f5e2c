"""The bandit as a task for the recurrent agent, and how well it plays true bandits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.rollouts import Members, rollout

from ..method import Agent
from ..recurrent.dqn import DqnConfig, Task
from ..recurrent.memory import MemoryConfig, Parts
from .environment import (
    ARMS,
    IMAGINED_BANDITS,
    KNOWN,
    OBSERVATION,
    PULLS,
    TEST_ARMS,
    TRUE_BANDITS,
    BanditState,
    reset,
)

# Sizes and rates with which 10 000 gradient steps are enough (seconds to minutes on a CPU).
SMALL_AGENT = DqnConfig(
    memory=MemoryConfig("lru", width=32, state=32, layers=1),
    head_dims=(32, 32),
    tau=0.02,
    memory_lr=1e-3,
    head_lr=1e-3,
    max_grad_norm=None,
    reward_shift=0.5,
    steps=10_000,
    tape_length=1010,
    capacity=600_000,
)


class BanditPlay(NamedTuple):
    """Play of one seed, per test arm, `[arms]`.

    Attributes:
        returns: mean reward per pull.
        unknown: share of pulls that went to arm 1.
        better: share of pulls that went to the arm that pays more.
    """

    returns: jax.Array
    unknown: jax.Array
    better: jax.Array


def _start(key: jax.Array, batch: int) -> BanditState:
    del key
    return reset(batch)


@functools.cache
def bandit_task(members: int) -> Task:
    """Imagined bandits, row `i` of a rollout being member `i % members`'s opinion."""
    return Task(IMAGINED_BANDITS, _start, PULLS, OBSERVATION, ARMS, members)


@functools.partial(jax.jit, static_argnames=("agent", "episodes", "arms"))
def play(
    agent: Agent,
    params: Parts,
    keys: jax.Array,
    episodes: int,
    arms: tuple[float, ...] = TEST_ARMS,
) -> BanditPlay:
    """Play true bandits greedily, for every seed.

    Args:
        agent: whose policy.
        params: with a leading seed axis.
        keys: `[seeds]`.
        episodes: of 100 pulls, for every arm.
        arms: chances that arm 1 pays; arm 0's is 0.5.

    Returns:
        A `BanditPlay` of `[seeds, arms]`.
    """
    chances = jnp.stack([jnp.full(len(arms), KNOWN), jnp.array(arms)], 1)
    rows = Members(jnp.arange(len(arms)), per="trajectory", shuffle=False)

    def one(params: Parts, key: jax.Array) -> BanditPlay:
        batch = len(arms) * episodes
        rolled = rollout(
            TRUE_BANDITS,
            chances,
            reset(batch),
            key,
            horizon=PULLS,
            policy=agent.greedy,
            policy_params=params,
            memory=agent.memory(batch),
            members=rows,
            record=lambda step: (step.rewards, step.actions),
        )
        rewards, actions = (x.reshape(PULLS, episodes, len(arms)) for x in rolled.steps)
        unknown = actions.mean((0, 1), dtype=jnp.float32)
        better = jnp.where(chances[:, 1] > chances[:, 0], unknown, 1.0 - unknown)
        return BanditPlay(rewards.mean((0, 1)), unknown, better)

    return jax.vmap(one)(params, keys)


def bandit_evaluator(
    agent: Agent, key: jax.Array, *, seeds: int, episodes: int
) -> Callable[[Any, int], dict[str, np.ndarray]]:
    """An `evaluate` for `loop.train`: greedy play of true bandits.

    Records `return A` and `unknown A`, `[seeds]`: reward per pull and share of pulls of arm 1 where
    that pays A.
    """

    def evaluate(state: Any, iteration: int) -> dict[str, np.ndarray]:
        keys = jax.random.split(jax.random.fold_in(key, iteration), seeds)
        played = play(agent, state.agent.params, keys, episodes)
        return {
            f"{name} {arm:g}": np.asarray(values[:, i])
            for name, values in (("return", played.returns), ("unknown", played.unknown))
            for i, arm in enumerate(TEST_ARMS)
        }

    return evaluate

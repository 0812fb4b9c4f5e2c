"""NEUBAY's two-armed bandits: arm 0 is in the data, arm 1 is not; and episodes of an agent.

An episode is 100 pulls of one bandit; what the arms pay is found out within it. Actions are arm
numbers, `[B]` int32; the models here are for `rollout`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.offline.method import Agent
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig, Parts
from jaxrl_rollouts.rollouts import Members, Model, StepResult, rollout, step_result

from .bandit_dqn import DqnConfig, Task

PULLS = 100
ARMS = 2
OBSERVATION = ARMS + 2
TEST_ARMS = (0.01, 0.15, 0.3, 0.45, 0.55, 0.7, 0.85, 0.99)
KNOWN = 0.5  # what arm 0 pays in every test bandit


class BanditState(NamedTuple):
    """`B` bandits in play.

    Attributes:
        observation: `[B, 4]`: 0, one-hot of the last arm, the last reward (arm 0 and 0 at first).
        time: `[B]` int32, pulls so far.
    """

    observation: jax.Array
    time: jax.Array


class Arms(NamedTuple):
    """What `M` imagined bandits pay, one of an ensemble's opinions each.

    Attributes:
        mean, std: `[M, 2]` of the reward of each arm.
        spread: `[2]` standard deviation over members of the mean: how unknown an arm is.
        penalty: scalar; the reward to learn from is what was rewarded minus `penalty * spread`.
    """

    mean: jax.Array
    std: jax.Array
    spread: jax.Array
    penalty: jax.Array


def reset(batch: int) -> BanditState:
    """`B` bandits of which nothing has been pulled."""
    first = jnp.zeros((batch, OBSERVATION)).at[:, 1].set(1.0)
    return BanditState(first, jnp.zeros((batch,), jnp.int32))


def observe(state: BanditState) -> jax.Array:
    """`[B, 4]`."""
    return state.observation


def _proceed(
    state: BanditState, action: jax.Array, rewarded: jax.Array, **fields: jax.Array
) -> tuple[BanditState, StepResult]:
    batch, time = action.shape[0], state.time + 1
    seen = [jnp.zeros((batch, 1)), jax.nn.one_hot(action, ARMS), rewarded[:, None]]
    out = step_result(batch, truncated=time >= PULLS, **fields)
    return BanditState(jnp.concatenate(seen, -1), time), out


def _bernoulli(
    chances: jax.Array, key: jax.Array, state: BanditState, action: jax.Array, member: jax.Array
) -> tuple[BanditState, StepResult]:
    rewarded = jax.random.uniform(key, action.shape) < chances[member, action]
    rewarded = rewarded.astype(jnp.float32)
    return _proceed(state, action, rewarded, reward=rewarded)


def _imagined(
    arms: Arms, key: jax.Array, state: BanditState, action: jax.Array, member: jax.Array
) -> tuple[BanditState, StepResult]:
    noise = jax.random.normal(key, action.shape)
    rewarded = arms.mean[member, action] + arms.std[member, action] * noise
    lost = arms.spread[action]
    return _proceed(
        state, action, rewarded, reward=rewarded - arms.penalty * lost, uncertainty=lost
    )


# Parameters `[M, 2]`: chances that each arm of each bandit pays 1; `member` is the bandit.
TRUE_BANDITS = Model(_bernoulli, observe)
# Parameters `Arms`. The last observed reward is what was rewarded, `reward` is penalised.
IMAGINED_BANDITS = Model(_imagined, observe)

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
    """

    returns: jax.Array
    unknown: jax.Array


def _start(key: jax.Array, batch: int) -> BanditState:
    del key
    return reset(batch)


@functools.cache
def bandit_task(members: int) -> Task:
    """Imagined bandits, row `i` of a rollout being member `i % members`'s opinion."""
    return Task(IMAGINED_BANDITS, _start, PULLS, OBSERVATION, ARMS, members)


@functools.partial(jax.jit, static_argnames=("agent", "episodes", "arms"))
def play(
    agent: Agent, params: Parts, keys: jax.Array, episodes: int, arms: tuple[float, ...] = TEST_ARMS
) -> BanditPlay:
    """Play true bandits greedily, for every seed.

    Args:
        keys: `[seeds]`.

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
        return BanditPlay(rewards.mean((0, 1)), actions.mean((0, 1), dtype=jnp.float32))

    return jax.vmap(one)(params, keys)

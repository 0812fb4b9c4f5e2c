"""Does a memory overwrite? A memory learns to walk the endless T-maze from an expert's walks.

The expert sees the cue all along, the memory only at the mouth of each corridor. Trained on chains
of one number of corridors it is tested on others: a memory that cannot let go of the first cue
fails at the second junction (Memory Rewriting benchmark, arXiv 2601.15086).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from helpers_t_maze import ACTIONS, OBSERVATION, Maze, MazeConfig, MazeState, make_t_maze

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.experiments.studies.bandit_dqn import RecurrentQ, make_recurrent_q
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig, Parts
from jaxrl_rollouts.offline.recurrent.tapes import masked_mean
from jaxrl_rollouts.rollouts import Trajectory, rollout
from jaxrl_rollouts.trees import PyTree


@dataclass(frozen=True)
class RewritingConfig:
    """Memory, maze and optimisation.

    Attributes:
        maze: of the walks to learn from.
        walks: new ones for every gradient step.
    """

    memory: MemoryConfig = field(
        default_factory=lambda: MemoryConfig("lru", width=32, state=32, layers=1)
    )
    head: tuple[int, ...] = (32,)
    maze: MazeConfig = field(default_factory=MazeConfig)
    walks: int = positive(16)
    learning_rate: float = 3e-3
    per_iteration: int = positive(50)


class RewritingState(NamedTuple):
    """State of one seed."""

    params: Parts
    moments: optax.OptState
    key: jax.Array


class Rewriting(NamedTuple):
    """Functions of one configuration; see `make_rewriting`.

    Attributes:
        init: `(key, data=None) -> RewritingState`.
        update: one iteration for `loop.train`, `(state, data) -> (state, metrics)`.
        network: scores of actions; its greedy choice is the policy that is tested.
    """

    init: Callable[..., RewritingState]
    update: Callable[[RewritingState, PyTree], tuple[RewritingState, dict[str, jax.Array]]]
    network: RecurrentQ


def expert_walks(maze: Maze, config: MazeConfig, key: jax.Array, walks: int) -> Trajectory:
    """Shortest walks through the chain; steps hold observations and the expert's actions.

    Returns:
        A `Trajectory` whose steps are `(observations [T, B, 3], actions [T, B])`.
    """
    start_key, roll_key = jax.random.split(key)

    def know(params: None, key: jax.Array, state: MazeState, memory: tuple) -> tuple:
        return jnp.where(state.position == state.length, state.cue, 0), memory

    whole = maze.model._replace(observe=lambda state: state)
    return rollout(
        whole,
        None,
        maze.start(start_key, walks),
        roll_key,
        horizon=config.horizon,
        policy=know,
        record=lambda step: (maze.model.observe(step.observations), step.actions),
    )


@functools.lru_cache(maxsize=32)
def make_rewriting(config: RewritingConfig) -> Rewriting:
    """Build the functions. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    maze = make_t_maze(config.maze)
    network = make_recurrent_q(config.memory, config.head, OBSERVATION, ACTIONS)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.learning_rate))

    def init(key: jax.Array, data: PyTree = None) -> RewritingState:
        del data
        network_key, key = jax.random.split(key)
        params = network.init(network_key)
        return RewritingState(params, optimiser.init(params), key)

    def loss(params: Parts, walked: Trajectory) -> jax.Array:
        observations, actions = walked.steps
        starts = jnp.arange(observations.shape[0]) == 0
        scores = jax.vmap(lambda o: network.tape(params, o, starts), 1, 1)(observations)
        each = optax.softmax_cross_entropy_with_integer_labels(scores, actions)
        # Junctions are rare: without their own mean the corridors would drown them.
        turn = walked.valid & (actions > 0)
        walk = walked.valid & (actions == 0)
        return masked_mean(each, turn) + masked_mean(each, walk)

    def update(state: RewritingState, data: PyTree) -> tuple[RewritingState, dict[str, jax.Array]]:
        del data
        learn_key, key = jax.random.split(state.key)

        def one(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            params, moments = carry
            walked = expert_walks(maze, config.maze, key, config.walks)
            value, gradient = jax.value_and_grad(loss)(params, walked)
            change, moments = optimiser.update(gradient, moments, params)
            return (optax.apply_updates(params, change), moments), value

        keys = jax.random.split(learn_key, config.per_iteration)
        (params, moments), losses = jax.lax.scan(one, (state.params, state.moments), keys)
        return RewritingState(params, moments, key), {"loss": losses.mean()}

    return Rewriting(init, update, network)


@functools.partial(jax.jit, static_argnames=("network", "config", "walks"))
def success(
    network: RecurrentQ, params: Parts, config: MazeConfig, key: jax.Array, walks: int
) -> jax.Array:
    """Share of walks through the whole chain without a wrong turn, greedily; a scalar.

    Args:
        network, params: of one seed; `vmap` over seeds.
        config: the chain to walk, whatever was learned from.
        key: consumed.
        walks: how many.
    """
    maze = make_t_maze(config)
    start_key, roll_key = jax.random.split(key)

    def greedy(params: Parts, key: jax.Array, seen: jax.Array, carry: PyTree) -> tuple:
        scores, carry = network.now(params, seen, carry)
        return scores.argmax(-1).astype(jnp.int32), carry

    walked = rollout(
        maze.model,
        None,
        maze.start(start_key, walks),
        roll_key,
        horizon=config.horizon,
        policy=greedy,
        policy_params=params,
        memory=network.start(walks),
        record=lambda step: (),
    )
    return (walked.state.corridor == config.corridors).mean(dtype=jnp.float32)

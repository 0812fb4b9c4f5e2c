"""Recurrent dueling double DQN: an agent with discrete actions that remembers its episode.

NEUBAY's bandit agent (Ni et al. 2025, arXiv 2512.04341). An
iteration rolls episodes in imagination, one ensemble member each, puts them in the token ring and
takes gradient steps on tapes cut from it. One network, shared by everything; its memory learns
slower than its head.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import at_least_one, discount_and_polyak
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.rollout import Members, Model, rollout
from jaxrl_rollouts.trees import PyTree

from ..parts import Parts, follow, parts_optimiser
from . import tapes
from .memory import MemoryConfig
from .q import RecurrentQ, make_recurrent_q
from .tapes import Tape, Tapes
from .tokens import Token, from_trajectory, token_of


@dataclass(frozen=True)
class DqnConfig:
    """Hyper-parameters; defaults are the paper's for the bandit.

    Attributes:
        memory, head: sizes; `head` are the hidden layers between memory and values.
        memory_rate, head_rate: learning rates of the two.
        clip: largest global norm of each one's gradient; None for no limit.
        reward_shift: subtracted from what is learned from, not from what is seen. Centred rewards
            spare the values their climb to `mean / (1 - discount)`.
        steps: gradient steps in all; `epsilon` is reached after `epsilon_share` of them.
        episodes: rolled per iteration, followed by `updates_per_token` gradient steps for each
            of their transitions.
        tape, capacity: tokens of a tape and of the ring.
        weighting: which episodes a tape is made of; see `tapes.sample`.
        real_weight: weight of real tokens in the loss; None means over all alike.
    """

    memory: MemoryConfig = field(default_factory=MemoryConfig)
    head: tuple[int, ...] = (256, 256)
    discount: float = 0.99
    polyak: float = 0.005
    memory_rate: float = 3e-6
    head_rate: float = 1e-4
    clip: float | None = 1.0
    reward_shift: float = 0.0
    steps: int = 20_000
    epsilon: float = 0.1
    epsilon_share: float = 0.1
    episodes: int = 100
    updates_per_token: float = 0.02
    tape: int = 1000
    capacity: int = 1_000_000
    weighting: Literal["episode", "token"] = "episode"
    real_weight: float | None = None

    def validate(self) -> None:
        at_least_one(self, "steps", "episodes")
        if not self.head:
            raise ConfigError("head", self.head, "at least one layer")
        discount_and_polyak(self)
        for name in ("epsilon_share", "updates_per_token"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(name, getattr(self, name), "in (0, 1]")
        if not 0 <= self.epsilon <= 1:
            raise ConfigError("epsilon", self.epsilon, "in [0, 1]")
        if self.clip is not None and self.clip <= 0:
            raise ConfigError("clip", self.clip, "above 0, or None")


class Task(NamedTuple):
    """What the agent is trained in.

    Attributes:
        model: the transition, usually learned; its parameters are the agent's `world`.
        start: `(key, batch) -> state`, where episodes begin.
        horizon: most steps of an episode.
        observation_size, actions: `D`, and how many actions there are.
        members: row `i` of a rollout is moved by member `i % members`; None for a single model.
    """

    model: Model
    start: Callable[[jax.Array, int], PyTree]
    horizon: int
    observation_size: int
    actions: int
    members: int | None = None


class DqnState(NamedTuple):
    """State of one seed. `world` is what the model takes as parameters; it does not change."""

    params: Parts
    target: Parts
    optimiser: Parts
    ring: Tapes
    world: PyTree
    step: jax.Array
    key: jax.Array


class Dqn(NamedTuple):
    """Functions of one agent; see `make_recurrent_dqn`.

    Attributes:
        init: `(key, world) -> DqnState`.
        update: one iteration, `(state, data) -> (state, metrics)`; `data` is ignored.
        learn: one gradient step, `(params, target, optimiser, tape) -> (params, target,
            optimiser, metrics)`.
        greedy: `(params, key, observation, memory) -> (action [B], memory)`.
        explore: the same for parameters `(params, epsilon)`.
        network: values of tapes and of single tokens; its `start` is the policies' memory.
        updates: gradient steps per iteration.
    """

    init: Callable[[jax.Array, PyTree], DqnState]
    update: Callable[[DqnState, PyTree], tuple[DqnState, dict[str, jax.Array]]]
    learn: Callable[..., tuple[Parts, Parts, PyTree, dict[str, jax.Array]]]
    greedy: Callable[..., tuple[jax.Array, PyTree]]
    explore: Callable[..., tuple[jax.Array, PyTree]]
    network: RecurrentQ
    updates: int


def ring_size(config: DqnConfig, horizon: int) -> tuple[int, int]:
    """Tokens and episodes of the ring: four times as many as it holds of full length."""
    return config.capacity, max(config.episodes, 4 * config.capacity // (horizon + 1))


def ring_bytes(config: DqnConfig, task: Task) -> int:
    """Bytes the token ring of one seed takes."""
    return tapes.bytes_of(_token(task), *ring_size(config, task.horizon))


def _token(task: Task) -> Token:
    return token_of(task.observation_size, jax.ShapeDtypeStruct((), jnp.int32))


@functools.lru_cache(maxsize=32)
def make_recurrent_dqn(config: DqnConfig, task: Task) -> Dqn:
    """Build the agent's functions. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range, or a tape or an iteration's episodes do not fit
            into the ring.
    """
    config.validate()
    network = make_recurrent_q(config.memory, config.head, task.observation_size, task.actions)
    updates = math.ceil(config.updates_per_token * config.episodes * task.horizon)

    optimiser = parts_optimiser(config.memory_rate, config.head_rate, config.clip)

    def loss(params: Parts, target: Parts, tape: Tape) -> tuple[jax.Array, dict[str, jax.Array]]:
        tokens = tape.tokens
        values = network.tape(params, tokens.observations, tape.starts)
        slow = network.tape(target, tokens.observations, tape.starts)
        rows = jnp.arange(values.shape[0])
        # The value after token t is that of token t + 1; where there is none the mask is False.
        best = jnp.roll(values.argmax(-1), -1)
        following = jnp.roll(slow, -1, axis=0)[rows, best]
        alive = 1.0 - tokens.terminations.astype(jnp.float32)
        reward = tokens.rewards - config.reward_shift
        wanted = jax.lax.stop_gradient(reward + config.discount * alive * following)
        chosen = values[rows, tokens.actions]
        each = optax.huber_loss(chosen, wanted, delta=1.0)
        total = tapes.weighted_mean(each, tape.mask, tokens.real, config.real_weight)
        return total, {"loss": total, "q_mean": tapes.masked_mean(chosen, tape.mask)}

    def learn(params: Parts, target: Parts, moments: PyTree, tape: Tape) -> tuple:
        gradient, metrics = jax.grad(loss, has_aux=True)(params, target, tape)
        params, moments = optimiser.step(params, gradient, moments)
        target = follow(params, target, config.polyak)
        return params, target, moments, metrics

    def greedy(params: Parts, key: jax.Array, observation: jax.Array, carry: PyTree) -> tuple:
        del key
        values, carry = network.now(params, observation, carry)
        return values.argmax(-1).astype(jnp.int32), carry

    def explore(
        params: tuple[Parts, jax.Array], key: jax.Array, observation: jax.Array, carry: PyTree
    ) -> tuple:
        coin_key, action_key = jax.random.split(key)
        best, carry = greedy(params[0], key, observation, carry)
        any_action = jax.random.randint(action_key, best.shape, 0, task.actions)
        explores = jax.random.uniform(coin_key, best.shape) < params[1]
        return jnp.where(explores, any_action, best), carry

    def init(key: jax.Array, world: PyTree) -> DqnState:
        network_key, key = jax.random.split(key)
        params = network.init(network_key)
        capacity, episodes = ring_size(config, task.horizon)
        ring = tapes.create(_token(task), capacity, episodes, tape=config.tape)
        return DqnState(params, params, optimiser.init(params), ring, world, jnp.int32(0), key)

    def update(state: DqnState, data: PyTree) -> tuple[DqnState, dict[str, jax.Array]]:
        del data
        start_key, roll_key, learn_key, key = jax.random.split(state.key, 4)
        members = None
        if task.members is not None:
            members = Members(jnp.arange(task.members), per="trajectory", shuffle=False)
        done = state.step / (config.epsilon_share * config.steps)
        epsilon = 1.0 - (1.0 - config.epsilon) * jnp.minimum(done, 1.0)
        rolled = rollout(
            task.model, state.world, task.start(start_key, config.episodes), roll_key,
            horizon=task.horizon, policy=explore, policy_params=(state.params, epsilon),
            memory=network.start(config.episodes), members=members,
        )  # fmt: skip
        tokens, lengths = from_trajectory(rolled, task.model.observe(rolled.state))
        ring = tapes.add(state.ring, tokens, lengths)

        def one(carry: tuple, key: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
            tape = tapes.sample(ring, key, config.tape, weighting=config.weighting)
            params, target, moments = carry
            params, target, moments, metrics = learn(params, target, moments, tape)
            return (params, target, moments), metrics

        carry = (state.params, state.target, state.optimiser)
        (params, target, moments), metrics = jax.lax.scan(
            one, carry, jax.random.split(learn_key, updates)
        )
        metrics = jax.tree.map(lambda x: x.mean(), metrics)
        valid = jnp.maximum(rolled.valid.sum(), 1)
        metrics["epsilon"] = epsilon
        metrics["imagined_reward"] = rolled.steps.rewards.sum() / valid
        metrics["imagined_length"] = rolled.lengths.mean(dtype=jnp.float32)
        state = DqnState(params, target, moments, ring, state.world, state.step + updates, key)
        return state, metrics

    return Dqn(init, update, learn, greedy, explore, network, updates)

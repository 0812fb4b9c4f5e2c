"""Recurrent dueling double DQN: an agent with discrete actions that remembers its episode.

NEUBAY's bandit agent (Ni et al. 2025, arXiv 2512.04341). An iteration rolls episodes in
imagination, one ensemble member each, and takes gradient steps on tapes of the buffer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from jaxrl_rollouts.configs import check, fraction, layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.networks import MLP, from_linen, uniform
from jaxrl_rollouts.offline.method import Agent, Learner, bound
from jaxrl_rollouts.offline.recurrent import tapes
from jaxrl_rollouts.offline.recurrent.memory import (
    MemoryConfig,
    Parts,
    make_memory,
    parts_optimiser,
)
from jaxrl_rollouts.offline.recurrent.sac import error_loss
from jaxrl_rollouts.offline.recurrent.tapes import Tape, TapeBuffer
from jaxrl_rollouts.offline.recurrent.timesteps import Timestep, from_trajectory, timestep_shapes
from jaxrl_rollouts.rollouts import Members, Model, Trajectory, rollout
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree


@dataclass(frozen=True)
class DqnConfig:
    """Hyper-parameters; defaults are the paper's for the bandit.

    Attributes:
        memory, head_dims: sizes; `head_dims` are the hidden layers between memory and values.
        discount: gamma: what a reward one step later counts.
        tau: update rate of the target networks (Polyak averaging).
        memory_lr, head_lr: learning rates of the two.
        max_grad_norm: largest global norm of each one's gradient; None for no limit.
        huber: errors beyond it count linearly, not squared; None squares all.
        reward_shift: subtracted from what is learned from, not from what is seen. Centred rewards
            spare the values their climb to `mean / (1 - discount)`.
        steps: gradient steps in all.
        epsilon, epsilon_share: how often an action is random, and the share of the steps after
            which it is no oftener than that.
        episodes: episodes per iteration.
        utd_ratio: gradient steps for each of their transitions.
        tape_length, capacity: timesteps of a tape and of the buffer.
    """

    memory: MemoryConfig = field(default_factory=MemoryConfig)
    head_dims: tuple[int, ...] = layers((256, 256))
    discount: float = number(0.99, least=0, below=1)
    tau: float = number(0.005, above=0, most=1)
    memory_lr: float = step_size(3e-6)
    head_lr: float = step_size(1e-4)
    max_grad_norm: float | None = number(1.0, above=0)
    huber: float | None = number(1.0, above=0)
    reward_shift: float = 0.0
    steps: int = positive(20_000)
    epsilon: float = fraction(0.1)
    epsilon_share: float = number(0.1, above=0, most=1)
    episodes: int = positive(100)
    utd_ratio: float = number(0.02, above=0, most=1)
    tape_length: int = positive(1000)
    capacity: int = positive(1_000_000)


class Task(NamedTuple):
    """What the agent is trained in.

    Attributes:
        model: the transition, usually learned; its parameters are the learner's data.
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
    """Everything the agent learns: values, the targets that follow them, Adam's moments."""

    params: Parts
    target: Parts
    moments: optax.OptState

    @property
    def actor(self) -> Parts:
        return self.params

    @property
    def critic(self) -> Parts:
        return self.params


class DqnLearnerState(NamedTuple):
    """State of one seed; `step` counts gradient steps."""

    agent: DqnState
    buffer: TapeBuffer
    step: jax.Array
    key: jax.Array


class RecurrentQ(NamedTuple):
    """Functions of one network.

    Attributes:
        init: `key -> Parts`.
        tape: `(params, observations [L, D], starts [L] bool) -> [L, actions]`.
        now: `(params, observation [B, D], carry) -> (values [B, actions], carry)`.
        start: `batch -> carry` of episodes that begin.
    """

    init: Callable[[jax.Array], Parts]
    tape: Callable[[Parts, jax.Array, jax.Array], jax.Array]
    now: Callable[[Parts, jax.Array, PyTree], tuple[jax.Array, PyTree]]
    start: Callable[[int], PyTree]


def dueling(value: jax.Array, advantage: jax.Array) -> jax.Array:
    """`Q = V + A - mean A`: `[..., 1]` and `[..., actions]` to `[..., actions]`."""
    return value + advantage - advantage.mean(-1, keepdims=True)


def make_recurrent_q(
    config: MemoryConfig, head_dims: tuple[int, ...], observation_size: int, actions: int
) -> RecurrentQ:
    """Build the functions; `head_dims` are the hidden layers between memory and values.

    Values start near zero: the last layers' weights are within `sqrt(0.01 / width)`.
    """
    memory = make_memory(config, observation_size)
    layers = MLP(
        head_dims,
        (1, actions),
        nn.leaky_relu,
        layer_norm=True,
        bias_init=None,
        head_init=uniform(math.sqrt(0.01 / head_dims[-1])),
        head_bias_init=jax.nn.initializers.zeros,
    )
    heads = from_linen(layers, jax.ShapeDtypeStruct((1, memory.features), jnp.float32))

    def init(key: jax.Array) -> Parts:
        memory_key, head_key = jax.random.split(key)
        return Parts(memory.init(memory_key), heads.init(head_key))

    def tape(params: Parts, observations: jax.Array, starts: jax.Array) -> jax.Array:
        features, _ = memory.scan(params.memory, observations, starts)
        return dueling(*heads.apply(params.head, features))

    def now(params: Parts, observation: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        features, carry = memory.step(params.memory, carry, observation)
        return dueling(*heads.apply(params.head, features)), carry

    return RecurrentQ(init, tape, now, memory.start)


class DqnNets(NamedTuple):
    """What the functions of this module are bound to."""

    config: DqnConfig
    task: Task
    network: RecurrentQ
    optimiser: optax.GradientTransformation
    per_iteration: int


def buffer_size(config: DqnConfig, horizon: int) -> tuple[int, int]:
    """Timesteps and episodes of the buffer: four times as many as it holds of full length."""
    return config.capacity, max(config.episodes, 4 * config.capacity // (horizon + 1))


def _timestep(task: Task) -> Timestep:
    return timestep_shapes(task.observation_size, jax.ShapeDtypeStruct((), jnp.int32))


@functools.lru_cache(maxsize=32)
def make_recurrent_dqn(config: DqnConfig, task: Task) -> Learner:
    """A learner whose data are the model's parameters. Equal arguments give the same functions.

    Its agent's `policy` is epsilon-greedy and takes `(params, epsilon)` for the actor; its `update`
    takes a `Tape` for a batch.
    """
    check(config)
    network = make_recurrent_q(config.memory, config.head_dims, task.observation_size, task.actions)
    optimiser = parts_optimiser(config.memory_lr, config.head_lr, config.max_grad_norm)
    updates = math.ceil(config.utd_ratio * config.episodes * task.horizon)
    nets = DqnNets(config, task, network, optimiser, updates)
    acts = bound(nets, init=init, update=update, policy=explore, greedy=greedy, q=q)
    agent = Agent(**acts, memory=network.start)
    own: Any = bound(nets, init=init_learner, update=iteration, imagine=imagine)
    return Learner(agent, per_iteration=updates, **own)


def init(nets: DqnNets, key: jax.Array, scaler: Scaler | None = None) -> DqnState:
    """Fresh values; timesteps are seen as they are."""
    del scaler
    params = nets.network.init(key)
    return DqnState(params, params, nets.optimiser.init(params))


def greedy(
    nets: DqnNets, params: Parts, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The action of the highest value, `[B]` int32."""
    del key
    values, memory = nets.network.now(params, observation, memory)
    return values.argmax(-1).astype(jnp.int32), memory


def explore(
    nets: DqnNets,
    params: tuple[Parts, jax.Array],
    key: jax.Array,
    observation: jax.Array,
    memory: PyTree,
) -> tuple[jax.Array, PyTree]:
    """Any action with probability epsilon, else the greedy one; `params` are values and epsilon."""
    coin_key, action_key = jax.random.split(key)
    best, memory = greedy(nets, params[0], key, observation, memory)
    any_action = jax.random.randint(action_key, best.shape, 0, nets.task.actions)
    explores = jax.random.uniform(coin_key, best.shape) < params[1]
    return jnp.where(explores, any_action, best), memory


def q(nets: DqnNets, params: Parts, timesteps: jax.Array, actions: jax.Array) -> jax.Array:
    """The value of first timesteps `[B, D]` and actions `[B]`: `[1, B]`."""
    values, _ = nets.network.now(params, timesteps, nets.network.start(timesteps.shape[0]))
    return jnp.take_along_axis(values, actions[:, None], 1).T


def loss(
    params: Parts, nets: DqnNets, target: Parts, tape: Tape
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`mean huber(Q(h, a) - r - gamma (1 - d) Q'(h', argmax_a' Q(h', a')))`: double Q-learning.

    van Hasselt et al. 2016, equation 4. The value after timestep t is that of timestep t + 1; where
    there is none its mask is False.
    """
    config, timesteps = nets.config, tape.timesteps
    values = nets.network.tape(params, timesteps.observations, tape.starts)
    slow = nets.network.tape(target, timesteps.observations, tape.starts)
    rows = jnp.arange(values.shape[0])
    best = jnp.roll(values.argmax(-1), -1)
    following = jnp.roll(slow, -1, axis=0)[rows, best]
    alive = 1.0 - timesteps.terminations.astype(jnp.float32)
    reward = timesteps.rewards - config.reward_shift
    bootstrapped = jax.lax.stop_gradient(reward + config.discount * alive * following)
    chosen = values[rows, timesteps.actions]
    each = error_loss(chosen - bootstrapped, config.huber)
    total = tapes.masked_mean(each, tape.mask)
    return total, {"loss": total, "q_mean": tapes.masked_mean(chosen, tape.mask)}


def update(
    nets: DqnNets, state: DqnState, key: jax.Array, tape: Tape
) -> tuple[DqnState, dict[str, jax.Array]]:
    """One gradient step, and the targets follow; nothing is drawn."""
    del key
    params, moments, _, metrics = gradient_step(
        nets.optimiser, loss, state.params, state.moments, nets, state.target, tape
    )
    target: Any = optax.incremental_update(params, state.target, nets.config.tau)
    return DqnState(params, target, moments), metrics


def init_learner(nets: DqnNets, key: jax.Array, world: PyTree) -> DqnLearnerState:
    """Fresh values and an empty buffer."""
    del world
    network_key, key = jax.random.split(key)
    capacity, episodes = buffer_size(nets.config, nets.task.horizon)
    buffer = tapes.create(
        _timestep(nets.task), capacity, episodes, tape_length=nets.config.tape_length
    )
    return DqnLearnerState(init(nets, network_key), buffer, jnp.int32(0), key)


def exploration(config: DqnConfig, step: jax.Array) -> jax.Array:
    """Epsilon after so many gradient steps: from 1 down to `epsilon`, linearly."""
    done = step / (config.epsilon_share * config.steps)
    return 1.0 - (1.0 - config.epsilon) * jnp.minimum(done, 1.0)


def imagine(nets: DqnNets, state: DqnLearnerState, keys: jax.Array, world: PyTree) -> Trajectory:
    """Episodes of the exploring policy in the model, one member each; `keys` are `[2]`."""
    config, task = nets.config, nets.task
    start_key, roll_key = keys
    members = None
    if task.members is not None:
        members = Members(jnp.arange(task.members), per="trajectory", shuffle=False)
    return rollout(
        task.model,
        world,
        task.start(start_key, config.episodes),
        roll_key,
        horizon=task.horizon,
        policy=functools.partial(explore, nets),
        policy_params=(state.agent.params, exploration(config, state.step)),
        memory=nets.network.start(config.episodes),
        members=members,
    )


def iteration(
    nets: DqnNets, state: DqnLearnerState, world: PyTree
) -> tuple[DqnLearnerState, dict[str, jax.Array]]:
    """Imagine episodes, put them in the buffer, take gradient steps on tapes cut from it."""
    config, task = nets.config, nets.task
    start_key, roll_key, learn_key, key = jax.random.split(state.key, 4)
    rolled = imagine(nets, state, jnp.stack([start_key, roll_key]), world)
    timesteps, lengths = from_trajectory(rolled, task.model.observe(rolled.state))
    buffer = tapes.add(state.buffer, timesteps, lengths)

    def learn(carry: DqnState, key: jax.Array) -> tuple[DqnState, dict[str, jax.Array]]:
        tape = tapes.sample(buffer, key, config.tape_length)
        return update(nets, carry, key, tape)

    keys = jax.random.split(learn_key, nets.per_iteration)
    agent, metrics = jax.lax.scan(learn, state.agent, keys)
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    valid = jnp.maximum(rolled.valid.sum(), 1)
    metrics["epsilon"] = exploration(config, state.step)
    metrics["imagined_reward"] = rolled.steps.rewards.sum() / valid
    metrics["imagined_length"] = rolled.lengths.mean(dtype=jnp.float32)
    return DqnLearnerState(agent, buffer, state.step + nets.per_iteration, key), metrics

"""Fitted Q evaluation (Le et al. 2019, arXiv:1903.08738): a policy's value from logged rows.

No simulator and no world model: critics are fitted to `r + gamma Q'(s', a')` with actions `a'` of
the policy. As in Fu et al. 2021 (DOPE, arXiv:2103.16596) values are bounded by the rewards, and
each of several critics weighs the episodes by a bootstrap of its own, so that they spread where the
data do not determine the value.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_rollouts.configs import check, layers, number, positive, step_size
from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree

from .data import Dataset, Transitions, to_device
from .data.offsets import in_order, with_offset
from .data.transitions import episodes
from .method import Agent
from .result import TrainResult
from .task import slug, starts_of

CONSTANTS = 3.0  # time constants of the critics before which a value is not read
PER_ITERATION = 500


@dataclass(frozen=True)
class FqeConfig:
    """Settings of fitted Q evaluation.

    Attributes:
        members: critics, each of a bootstrap of the episodes.
        hidden: widths of each.
        steps: gradient steps; at least three time constants, `steps tau (1 - gamma) >= 3`.
        batch_size: rows of a gradient step.
        lr, weight_decay: of AdamW.
        tau: how much of the critics goes into their targets at every step.
        discount: gamma; None takes that of the policy's training.
        draws: actions of the policy at each start state that a value is averaged over.
    """

    members: int = positive(5)
    hidden: tuple[int, ...] = layers((64, 64))
    steps: int = positive(50_000)
    batch_size: int = positive(256)
    lr: float = step_size(3e-4)
    weight_decay: float = number(1e-5, least=0)
    tau: float = number(0.01, above=0, most=1)
    discount: float | None = number(None, least=0, below=1)
    draws: int = positive(10)


class FqeValue(NamedTuple):
    """Discounted values of the policies of all seeds, from where the dataset's episodes start.

    Attributes:
        value: `[seeds]`, mean over the critics, in the dataset's own rewards.
        by_member: `[seeds, K]`, of each critic.
        clipped: `[seeds]`, share of the last targets that lay outside the bounds: above a fifth the
            critics have diverged.
    """

    value: np.ndarray
    by_member: np.ndarray
    clipped: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Deviation over the critics, `[seeds]`."""
        return self.by_member.std(1)


class FqeData(NamedTuple):
    """What is evaluated, of one policy, on which rows.

    Attributes:
        rows: with rewards over their deviation.
        weights: `[K, N]`, how often each critic's bootstrap has a row's episode.
        actor: the policy's parameters.
        scaler: of the observations.
        bounds: `[2]`, least and greatest value that the rewards allow.
    """

    rows: Transitions
    weights: jax.Array
    actor: PyTree
    scaler: Scaler
    bounds: jax.Array


class FqeState(NamedTuple):
    """State of one policy's evaluation; critics' leaves are `[K, ...]`."""

    critic: PyTree
    target: PyTree
    moments: optax.OptState
    key: jax.Array


class Fqe(NamedTuple):
    """Functions of this module, of one policy; those of values are of all of them, compiled."""

    init: Any
    update: Any
    state_values: Any
    action_values: Any


class FqeParts(NamedTuple):
    """What the functions of this module are bound to."""

    config: FqeConfig
    agent: Agent
    critics: Ensemble
    optimiser: optax.GradientTransformation
    discount: float


def fqe(
    result: TrainResult,
    dataset: Dataset | None = None,
    config: FqeConfig | None = None,
    *,
    seed: int = 0,
    context: RunContext | None = None,
) -> FqeValue:
    """Evaluate the policies of a training by fitted Q evaluation.

    Args:
        result: of a method without a memory; all its seeds are evaluated side by side.
        dataset: rows to evaluate on; None takes those that it learned from.
        config: settings.
        seed: of the bootstrap, the critics and the policies' actions.
        context: a run whose folder keeps checkpoints; None evaluates in memory.

    Returns:
        Values in the dataset's own rewards, whatever view of them the method learned from.

    Raises:
        ConfigError: a method with a memory, or fewer than three time constants of training.
        DivergenceError: the critics became non-finite.
    """
    config = config or FqeConfig()
    discount = result.config.discount if config.discount is None else config.discount
    own = result.source.dataset
    found = evaluated(
        result.agent,
        result.actors,
        own if dataset is None else with_offset(in_order(dataset, own.columns), own.offset),
        replace(config, discount=discount),
        name=result.about["method"],
        seed=seed,
        context=context,
    )
    return found.value()


class Evaluated(NamedTuple):
    """Critics of the policies of all seeds, and what gives their values.

    Attributes:
        functions, data, target: of this module; the target critics' leaves are `[seeds, K, ...]`.
        actors: `[seeds, ...]`.
        unit: of the values, in the dataset's own rewards.
        clipped: `[seeds]`, as `FqeValue` has it.
        starts: `[B, S]`, where the dataset's episodes start.
        key: of the policies' actions.
    """

    functions: Fqe
    data: FqeData
    target: PyTree
    actors: PyTree
    unit: float
    clipped: np.ndarray
    starts: np.ndarray
    key: jax.Array

    def at(self, states: np.ndarray) -> np.ndarray:
        """Values of states `[B, S]`, `[seeds, K, B]` in the dataset's own rewards."""
        keys = jax.random.split(self.key, len(self.clipped))
        given = self.target, self.actors, self.data.scaler, keys, jnp.asarray(states)
        return self.unit * np.asarray(self.functions.state_values(*given), np.float64)

    def of(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Values of actions `[B, A]` in states `[B, S]`, `[seeds, K, B]`, likewise."""
        given = self.target, self.data.scaler, jnp.asarray(states), jnp.asarray(actions)
        return self.unit * np.asarray(self.functions.action_values(*given), np.float64)

    def value(self) -> FqeValue:
        """Mean over the start states."""
        by_member = self.at(self.starts).mean(2)
        return FqeValue(by_member.mean(1), by_member, self.clipped)


def evaluated(
    agent: Agent,
    actors: PyTree,
    dataset: Dataset,
    config: FqeConfig,
    *,
    name: str = "policy",
    seed: int = 0,
    context: RunContext | None = None,
    on_divergence: OnDivergence = "raise",
) -> Evaluated:
    """`fqe` of any agent; `actors` are `[seeds, ...]`, and `config.discount` is a number."""
    check(config)
    if jax.tree.leaves(agent.memory(1)):
        raise ConfigError("result", name, "a method without a memory")
    discount = config.discount
    assert discount is not None, "of a training or of the settings"
    least = round(CONSTANTS / (config.tau * (1.0 - discount)))
    if config.steps < least:
        raise ConfigError("steps", config.steps, f"at least {least:,}: three time constants")
    policies = len(jax.tree.leaves(actors)[0])
    key, boot_key, act_key = jax.random.split(jax.random.key(seed), 3)
    data, unit = fqe_data(dataset, actors, discount, config.members, boot_key)
    sizes = tuple(int(x.shape[1]) for x in (data.rows.observations, data.rows.actions))
    functions = make_fqe(config, agent, sizes, discount)
    iterations = -(-config.steps // PER_ITERATION)
    trained = train(
        functions.update,
        functions.init,
        jax.random.split(key, policies),
        data,
        per_seed=FqeData(False, False, True, False, False),  # type: ignore[arg-type]
        iterations=iterations,
        stage=f"{slug(dataset.name)}-fqe-{slug(name)}",
        units_per_iteration=PER_ITERATION,
        context=context,
        about={"fqe": config, "method": name, "seed": seed},
        on_divergence=on_divergence,
    )
    clipped = np.asarray(trained.history.last("clipped"), np.float64)
    target, starts = trained.state.target, starts_of(dataset)
    return Evaluated(functions, data, target, actors, unit, clipped, starts, act_key)


def fqe_data(
    dataset: Dataset, actors: PyTree, discount: float, members: int, key: jax.Array
) -> tuple[FqeData, float]:
    """Rows with rewards over their deviation, a bootstrap of the episodes, and that deviation."""
    rows = dataset.with_successors
    rewards = np.asarray(rows.rewards, np.float64)
    unit = float(rewards.std()) or max(float(np.abs(rewards).max()), 1.0)
    parts = episodes(rows)
    count = len(parts.starts)
    drawn = jax.random.randint(key, (members, count), 0, count)
    times = jax.vmap(lambda x: jnp.bincount(x, length=count))(drawn)
    weights = jnp.repeat(times.astype(jnp.float32), jnp.asarray(parts.lengths), axis=1)
    low, high = rewards.min() / unit, rewards.max() / unit
    # The rewards for ever; where an episode terminates, a value may be that of a single step.
    lengths = [1.0 / (1.0 - discount)] + [1.0] * bool(np.asarray(rows.terminations).any())
    sums = np.outer((low, high), lengths)
    bounds = jnp.asarray([sums.min(), sums.max()], jnp.float32)
    device = to_device(rows._replace(rewards=(rewards / unit).astype(np.float32)))
    return FqeData(device, weights, actors, fit_scaler(device.observations), bounds), unit


@functools.lru_cache(maxsize=16)
def make_fqe(config: FqeConfig, agent: Agent, sizes: tuple[int, int], discount: float) -> Fqe:
    """Bind the functions of this module. Equal arguments give the same ones."""
    shapes = (jax.ShapeDtypeStruct((1, size), jnp.float32) for size in sizes)
    critics = ensemble(from_linen(MLP(config.hidden, (1,)), *shapes), config.members)
    optimiser = optax.adamw(config.lr, weight_decay=config.weight_decay)
    parts = FqeParts(config, agent, critics, optimiser, discount)
    begin, step, state, pair = (functools.partial(f, parts) for f in (init, update, v, q))
    of_states = jax.jit(jax.vmap(state, in_axes=(0, 0, None, 0, None)))
    return Fqe(begin, step, of_states, jax.jit(jax.vmap(pair, in_axes=(0, None, None, None))))


def init(parts: FqeParts, key: jax.Array, data: FqeData) -> FqeState:
    """Fresh critics."""
    del data
    critic_key, key = jax.random.split(key)
    critic = parts.critics.init(critic_key)
    return FqeState(critic, critic, parts.optimiser.init(critic), key)


def q(
    parts: FqeParts, critic: PyTree, scaler: Scaler, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Every critic's value, `[K, B]`; the network predicts `(1 - gamma) Q`, of a reward's size."""
    seen = scaler.normalise(observations)
    return parts.critics.apply_all(critic, seen, actions)[..., 0] / (1.0 - parts.discount)


def bellman_target(
    parts: FqeParts, target: PyTree, data: FqeData, key: jax.Array, batch: Transitions
) -> tuple[jax.Array, jax.Array]:
    """`r + gamma (1 - d) Q'_k(s', a')` with `a' ~ pi`, `[K, B]`, within the bounds.

    Also the share of targets that lay outside.
    """
    after = batch.next_observations
    actions, _ = parts.agent.policy(data.actor, key, after, parts.agent.memory(len(after)))
    value = q(parts, target, data.scaler, after, actions)
    alive = 1.0 - batch.terminations.astype(jnp.float32)
    raw = batch.rewards + parts.discount * alive * value
    # Rounding at a bound is no divergence.
    slack = 0.01 * jnp.abs(data.bounds).max()
    outside = (raw < data.bounds[0] - slack) | (raw > data.bounds[1] + slack)
    return jax.lax.stop_gradient(jnp.clip(raw, *data.bounds)), outside.mean(dtype=jnp.float32)


def loss(
    critic: PyTree,
    parts: FqeParts,
    data: FqeData,
    batch: Transitions,
    weights: jax.Array,
    target: jax.Array,
) -> tuple[jax.Array, None]:
    """`sum_k mean w_k ((1 - gamma) (Q_k(s, a) - y_k))^2`, with the bootstrap's weights `[K, B]`."""
    error = q(parts, critic, data.scaler, batch.observations, batch.actions) - target
    return (weights * jnp.square((1.0 - parts.discount) * error)).mean(1).sum(), None


def update(
    parts: FqeParts, state: FqeState, data: FqeData
) -> tuple[FqeState, dict[str, jax.Array]]:
    """`PER_ITERATION` gradient steps."""
    config = parts.config

    def one(state: FqeState, key: jax.Array) -> tuple[FqeState, dict[str, jax.Array]]:
        row_key, act_key = jax.random.split(key)
        index = jax.random.randint(row_key, (config.batch_size,), 0, len(data.rows.rewards))
        batch = jax.tree.map(lambda x: x[index], data.rows)
        target, clipped = bellman_target(parts, state.target, data, act_key, batch)
        critic, moments, value, _ = descend(
            parts.optimiser,
            loss,
            state.critic,
            state.moments,
            parts,
            data,
            batch,
            data.weights[:, index],
            target,
        )
        slow = optax.incremental_update(critic, state.target, config.tau)
        metrics = {"fqe_loss": value, "clipped": clipped, "target_mean": target.mean()}
        return FqeState(critic, slow, moments, state.key), metrics

    learn_key, key = jax.random.split(state.key)
    state, metrics = jax.lax.scan(one, state, jax.random.split(learn_key, PER_ITERATION))
    return state._replace(key=key), jax.tree.map(lambda x: x.mean(), metrics)


def v(
    parts: FqeParts,
    target: PyTree,
    actor: PyTree,
    scaler: Scaler,
    key: jax.Array,
    states: jax.Array,
) -> jax.Array:
    """Mean of every target critic over `draws` actions in states `[B, S]`, `[K, B]`."""

    def drawn(key: jax.Array) -> jax.Array:
        actions, _ = parts.agent.policy(actor, key, states, parts.agent.memory(len(states)))
        return q(parts, target, scaler, states, actions)

    return jax.vmap(drawn)(jax.random.split(key, parts.config.draws)).mean(0)

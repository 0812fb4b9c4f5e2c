"""Fitted Q evaluation (Le et al. 2019, arXiv:1903.08738): a policy's value from logged rows.

No simulator and no world model: critics are fitted to `r + gamma Q'(s', a')` with actions `a'` of
the policy. As in Fu et al. 2021 (DOPE, arXiv:2103.16596) values are bounded by the rewards, and
each of several critics weighs the episodes by a bootstrap of its own, so that they spread where the
data do not determine the value.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from .data import Transitions
from .method import Agent

CONSTANTS = 3.0  # time constants of the critics before which a value is not read
PER_ITERATION = 500


@dataclass(frozen=True)
class FqeConfig:
    """Settings of fitted Q evaluation.

    Attributes:
        members: critics, each of a bootstrap of the episodes.
        hidden_dims: widths of each.
        steps: gradient steps; at least three time constants, `steps tau (1 - gamma) >= 3`.
        batch_size: rows of a gradient step.
        lr, weight_decay: settings of AdamW.
        tau: update rate of the target critics (Polyak averaging).
        discount: gamma; None takes that of the policy's training.
        draws: sampled actions per start state over which a value is averaged.
    """

    members: int = positive(5)
    hidden_dims: tuple[int, ...] = layers((64, 64))
    steps: int = positive(50_000)
    batch_size: int = positive(256)
    lr: float = step_size(3e-4)
    weight_decay: float = number(1e-5, least=0)
    tau: float = number(0.01, above=0, most=1)
    discount: float | None = number(None, least=0, below=1)
    draws: int = positive(10)


class FqeData(NamedTuple):
    """What is evaluated, of one policy, on which rows.

    Attributes:
        rows: with rewards over their deviation.
        weights: `[K, N]`, how often each critic's bootstrap has a row's episode.
        actor: the policy's parameters.
        scaler: scaler of the observations.
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


@functools.lru_cache(maxsize=16)
def make_fqe(config: FqeConfig, agent: Agent, sizes: tuple[int, int], discount: float) -> Fqe:
    """Bind the functions of this module. Equal arguments give the same ones."""
    shapes = (jax.ShapeDtypeStruct((1, size), jnp.float32) for size in sizes)
    critics = ensemble(from_linen(MLP(config.hidden_dims, (1,)), *shapes), config.members)
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
        critic, moments, value, _ = gradient_step(
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

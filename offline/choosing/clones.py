"""Clones of the behaviours in a log: a tanh-squashed normal for each of its parts.

Fitted by maximum likelihood; of every clone the parameters with the best likelihood of held-out
rows are kept. Actions at a bound count as just inside (`actors.INSIDE`).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.fit_data import rows_of_groups
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree

from ..agents.actors import INSIDE, Actor, gaussian_actor, log_prob
from ..data import Transitions
from ..method import Agent, Scaled
from .policies import Entry, no_training

HIDDEN, RATE, DECAY, BATCH = (64, 64), 1e-3, 1e-4, 256
PER_ITERATION = 250
HELD_OUT = 0.1  # of a part's rows


class CloneData(NamedTuple):
    """Rows, and which are each clone's own: `[G, R]` and `[G, H]`."""

    observations: jax.Array
    actions: jax.Array
    learned: jax.Array
    held: jax.Array
    scaler: Scaler


class CloneState(NamedTuple):
    """State of one clone; `best` are the parameters of the lowest held-out loss so far."""

    net: PyTree
    moments: optax.OptState
    best: PyTree
    lowest: jax.Array
    key: jax.Array


def clone(
    rows: Transitions,
    part: np.ndarray,
    key: jax.Array,
    *,
    steps: int,
    stage: str = "clones",
    context: RunContext | None = None,
) -> Entry:
    """Fit a clone to each of `G` parts of a log, side by side.

    Args:
        rows: `[N, ...]`.
        part: `[N]` int, 0 to G - 1, which part a row is of.
        key: consumed.
        steps: gradient steps.

    Returns:
        `G` policies, whose `policy` draws actions and whose `density` is theirs.
    """
    total = int(part.max()) + 1
    chosen = np.random.default_rng(0).random(len(part)) < HELD_OUT
    learned, held = (
        jnp.asarray(_rows_of(part, np.flatnonzero(x), total)) for x in (~chosen, chosen)
    )
    observations, actions = (jnp.asarray(x) for x in (rows.observations, rows.actions))
    scaler = fit_scaler(observations)
    inside = jnp.clip(actions, -INSIDE, INSIDE)
    init, update, agent = _functions(observations.shape[1], actions.shape[1])
    trained = train_loop(
        update,
        init,
        jax.random.split(key, total),
        CloneData(observations, inside, learned, held, scaler),
        per_seed=CloneData(False, False, True, True, False),  # type: ignore[arg-type]
        iterations=max(round(steps / PER_ITERATION), 1),
        units_per_iteration=PER_ITERATION,
        stage=stage,
        context=context,
    )
    every = jax.tree.map(lambda x: jnp.broadcast_to(x, (total, *x.shape)), scaler)
    names = tuple(f"part {i + 1}" for i in range(total))
    return Entry("data", names, agent, Scaled(trained.state.best, every))


def _rows_of(part: np.ndarray, chosen: np.ndarray, total: int) -> np.ndarray:
    table, _ = rows_of_groups(part[chosen], total)
    return chosen[table]


@functools.lru_cache(maxsize=8)
def _functions(observation_size: int, action_size: int) -> tuple[Any, Any, Agent]:
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    network = from_linen(MLP(HIDDEN, (action_size, action_size)), s)
    actor = gaussian_actor(network, action_size, "exact")
    optimiser = optax.adamw(RATE, weight_decay=DECAY)
    bind = functools.partial

    def policy(params: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree) -> tuple:
        seen = params.scaler.normalise(observation)
        return actor.sample(params.net, key, seen)[0], memory

    def density(params: Scaled, observations: jax.Array, actions: jax.Array) -> jax.Array:
        inside = jnp.clip(actions, -INSIDE, INSIDE)
        return _log_likelihood(actor, params.net, params.scaler, observations, inside)

    agent = Agent(no_training, no_training, policy, policy, None, density=density)
    return bind(_begin, actor, optimiser), bind(_update, actor, optimiser), agent


def _begin(
    actor: Actor, optimiser: optax.GradientTransformation, key: jax.Array, data: CloneData
) -> CloneState:
    del data
    net_key, key = jax.random.split(key)
    net = actor.init(net_key)
    return CloneState(net, optimiser.init(net), net, jnp.float32(jnp.inf), key)


def _log_likelihood(
    actor: Actor, net: PyTree, scaler: Scaler, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    assert actor.heads is not None
    return log_prob(actions, *actor.heads(net, scaler.normalise(observations)), "exact")


def _loss(net: PyTree, actor: Actor, data: CloneData, index: jax.Array) -> tuple[jax.Array, None]:
    """`-mean log pi(a | s)` over rows."""
    rows = data.scaler, data.observations[index], data.actions[index]
    return -_log_likelihood(actor, net, *rows).mean(), None


def _update(
    actor: Actor, optimiser: optax.GradientTransformation, state: CloneState, data: CloneData
) -> tuple[CloneState, dict[str, jax.Array]]:
    """`PER_ITERATION` gradient steps, and a look at the held-out rows."""

    def one(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        index = data.learned[jax.random.randint(key, (BATCH,), 0, data.learned.shape[0])]
        net, moments, value, _ = gradient_step(optimiser, _loss, *carry, actor, data, index)
        return (net, moments), value

    learn_key, key = jax.random.split(state.key)
    carry = state.net, state.moments
    (net, moments), losses = jax.lax.scan(one, carry, jax.random.split(learn_key, PER_ITERATION))
    held = _loss(net, actor, data, data.held)[0]
    best = jax.tree.map(lambda a, b: jnp.where(held < state.lowest, a, b), net, state.best)
    state = CloneState(net, moments, best, jnp.minimum(held, state.lowest), key)
    return state, {"loss": losses.mean(), "held_out": held}

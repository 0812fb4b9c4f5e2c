"""Exact values on the plane, and measurements of a learner there.

Rollouts of k steps end at a Chebyshev distance of at most k from the data, since an action moves
each coordinate by at most one. States at a distance in (k - 1, k] are reached in exactly k steps
and in no fewer: values are bootstrapped from them and never updated (RAVL, Sims et al. 2024,
simple environment).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import coefficients, number
from jaxrl_rollouts.offline.agents.critics import critic_view
from jaxrl_rollouts.offline.agents.sac import SacState
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.plane import GOAL, MAX_EPISODE_STEPS, PLANE, WIDTH
from jaxrl_rollouts.offline.method import Agent, Learner
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import (
    Given,
    Imagination,
    Learned,
    Learning,
    ModelBased,
    ModelBasedState,
)
from jaxrl_rollouts.offline.training import Evaluate
from jaxrl_rollouts.rollouts import rollout
from jaxrl_rollouts.trees import PyTree

WIDEST = 32.0  # half the side of the square that states of a region are drawn from
LONG = 600  # steps after which 0.99^n leaves a quarter of a percent of a value
# What `train` calls `per_seed`: every seed in a world of its own, on the same rows.
OWN_WORLDS: Any = Imagination._make((False, True, False, False, False))
Look = Callable[[ModelBasedState], dict[str, jax.Array]]


def optimal_return(
    state: jax.Array, *, discount: float = 1.0, horizon: int | None = MAX_EPISODE_STEPS
) -> jax.Array:
    """Exact optimal (discounted) return from `[..., 2]` positions.

    Returns:
        `[...]`, the sum over time of what going straight to the goal in each coordinate earns. The
        reward falls with each coordinate's distance and the coordinates move independently, so the
        policy that is nearest in both at every time is optimal for any horizon and discount.
        Without a horizon the sum is exact up to 128 steps from the goal; beyond, that far is taken.
    """
    if horizon is None and discount >= 1.0:
        raise ValueError(f"discount: found {discount}, expected below 1 without a horizon")
    steps = 128 if horizon is None else horizon
    distance = jnp.abs(state - jnp.array(GOAL))
    if horizon is None:
        distance = jnp.minimum(distance, float(steps))
    time = jnp.arange(steps, dtype=jnp.float32)
    left = jnp.maximum(distance[..., None, :] - (time[:, None] + 1.0), 0.0)
    rewards = jnp.exp(-(left**2).sum(-1) / (2 * WIDTH**2))
    total = (rewards * discount**time).sum(-1)
    return total if horizon is not None else total + discount**steps / (1.0 - discount)


class Reach(NamedTuple):
    """Where `horizon` steps (k) lead from a box `[-half_width, half_width]^2` full of data."""

    half_width: float
    horizon: int

    def distance(self, states: jax.Array) -> jax.Array:
        """Chebyshev distance of `[..., 2]` states from the box, `[...]`."""
        return jnp.maximum(jnp.abs(states).max(-1) - self.half_width, 0.0)

    def within(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in fewer than k steps, `[...]` bool."""
        return self.distance(states) <= self.horizon - 1

    def edge(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in exactly k steps only, `[...]` bool."""
        distance = self.distance(states)
        return (distance > self.horizon - 1) & (distance <= self.horizon)


def sample_region(
    member: Callable[[jax.Array], jax.Array], count: int, *, seed: int = 0
) -> jax.Array:
    """`[count, 2]` states drawn uniformly from where `member` (of a `Reach`) is true."""
    drawn = np.random.default_rng(seed).uniform(-WIDEST, WIDEST, (200 * count, 2))
    drawn = drawn.astype(np.float32)
    return jnp.asarray(drawn[np.asarray(member(jnp.asarray(drawn)))][:count])


def imagination(method: ModelBased, rows: Transitions, world: PyTree) -> Imagination:
    """What `method` learns from: rows, parameters of the dynamics, its own coefficients."""
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    return Imagination(to_device(rows), world, own, jnp.ones(()))


@dataclass(frozen=True, kw_only=True)
class OraclePatch(Base):
    """MBPO whose targets bootstrap from the true optimal value at edge-of-reach states.

    Attributes:
        half_width: half width of the box that holds the data.
    """

    name: ClassVar[str] = "oracle patch"
    half_width: float = number(6.0, above=0)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        reach = Reach(self.half_width, self.rollouts.length)

        def next_value(states: jax.Array, value: jax.Array) -> jax.Array:
            optimum = optimal_return(states, discount=self.agent.discount, horizon=None)
            return jnp.where(reach.edge(states), optimum, value)

        update = partial(given.agent.update, next_value=next_value)
        given = given._replace(agent=given.agent._replace(update=update))
        return super().learn(state, given, **moves)


def plane_evaluator(
    learner: Learner, key: jax.Array, starts: int, discount: float, extra: Look | None = None
) -> Evaluate:
    """An `evaluate` for `train_learner` on the plane; every metric is `[seeds]`.

    `percent`: return of the mean action over 30 steps, in % of the optimum from the same starts.
    `true_value`, `estimated_value`: discounted value of that policy, measured (over 600 steps) and
    as promised by the critics (mean over critics), from the same starts. `extra` measures more.
    """
    begin = PLANE.observe(PLANE.reset(key, starts))
    best, agent = optimal_return(begin), learner.agent

    def look(state: ModelBasedState) -> dict[str, jax.Array]:
        played = rollout(
            true_model(PLANE),
            None,
            begin,
            key,
            horizon=LONG,
            policy=agent.greedy,
            policy_params=state.agent.actor,
            record=lambda step: step.rewards,
        )
        weights = discount ** jnp.arange(LONG, dtype=jnp.float32)
        metrics = {
            "percent": 100.0 * played.steps[:MAX_EPISODE_STEPS].sum() / best.sum(),
            "true_value": (weights @ played.steps).mean(),
            "estimated_value": critic_view(agent, state.agent, begin).mean,
        }
        return metrics | (extra(state) if extra else {})

    every = jax.jit(jax.vmap(look))
    return lambda state, iteration: {name: np.asarray(x) for name, x in every(state).items()}


def critics_look(agent: Agent, reach: Reach, probes: int) -> Look:
    """How much the critics disagree within reach and at its edge, and how rare edge states are.

    `q_*`, `spread_*`, `gap_*` with `within` and `edge`: the critics' mean, their standard
    deviation and how far their minimum lies below their mean, uniformly over the states of the
    region. `edge_share`: of next states in the buffer.
    """
    regions = {"within": reach.within, "edge": reach.edge}
    states = {name: sample_region(member, probes) for name, member in regions.items()}

    def look(state: ModelBasedState) -> dict[str, jax.Array]:
        metrics, imagined = {}, state.imagined
        for name in regions:
            view = critic_view(agent, state.agent, states[name])
            metrics |= {f"q_{name}": view.mean, f"spread_{name}": view.spread}
            metrics[f"gap_{name}"] = view.pessimism
        written = jnp.arange(imagined.capacity) < imagined.size
        at_edge = reach.edge(imagined.rows.next_observations) & written
        return metrics | {"edge_share": at_edge.sum() / jnp.maximum(written.sum(), 1)}

    return look


def square(half_width: float, points: int) -> jax.Array:
    """States of the plane `[points, points, 2]`; the first index is the first coordinate."""
    axis = jnp.linspace(-half_width, half_width, points)
    return jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)


def value_map(agent: Agent, states: SacState, where: jax.Array) -> np.ndarray:
    """What the agent expects `where`, states `[..., 2]`: `[seeds, ...]`.

    The minimum over critics (what targets and actor use) under the policy's mean action.
    """
    rows = where.reshape(-1, 2)

    def one(state: SacState) -> jax.Array:
        actions, _ = agent.greedy(state.actor, jax.random.key(0), rows, ())
        return agent.q(state.critic, rows, actions).min(0).reshape(where.shape[:-1])

    return np.asarray(jax.jit(jax.vmap(one))(states))

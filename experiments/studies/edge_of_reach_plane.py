"""What goes wrong at the edge of reach: a learner diagnosed on the plane, whose optimum is known.

RAVL (Sims et al. 2024), simple environment: what a policy earns and what its critics promise, how
much they disagree within reach and at its edge, and an oracle for the states at the edge alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import coefficients, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.critics import critic_view
from jaxrl_rollouts.offline.agents.sac import SacConfig, SacState
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.plane import (
    MAX_EPISODE_STEPS,
    PLANE,
)
from jaxrl_rollouts.offline.method import Agent, Learner
from jaxrl_rollouts.offline.methods.model_based import (
    Given,
    Imagination,
    Learned,
    Learning,
    ModelBased,
    ModelBasedState,
)
from jaxrl_rollouts.offline.training import Evaluate, train_learner
from jaxrl_rollouts.rollouts import rollout
from jaxrl_rollouts.trees import PyTree

from .plane import Reach, ValueGrid, optimal_return, sample_region

LONG = 600  # steps after which 0.99^n leaves a quarter of a percent of a value
# What `train` calls `per_seed`: every seed in a world of its own, on the same rows.
OWN_WORLDS = Imagination._make((False, True, False, False))
Look = Callable[[ModelBasedState], dict[str, jax.Array]]


def imagination(method: ModelBased, rows: Transitions, world: PyTree) -> Imagination:
    """What `method` learns from: rows, parameters of the dynamics, its own coefficients."""
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    return Imagination(to_device(rows), world, own, jnp.ones(()))


@dataclass(frozen=True)
class PlaneBudget:
    """Data, agent and evaluations on the plane.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        rows: transitions of a uniformly random policy; the goal is at (7, 7).
        agent: the actor-critic.
        epochs: rounds of model rollouts followed by updates.
        evaluations: of the agents, spread evenly over the `epochs`.
        starts: start states of an evaluation.
    """

    seeds: int = positive(5)
    rows: int = positive(20_000)
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden_dims=(64, 64)))
    epochs: int = positive(100)
    evaluations: int = positive(20)
    starts: int = positive(128)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")


def oracle_patch(method: ModelBased, reach: Reach, optimum: ValueGrid) -> ModelBased:
    """`method` whose targets bootstrap from the true optimal value at edge-of-reach states."""

    def next_value(next_observations: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.where(reach.edge(next_observations), optimum(next_observations), value)

    @dataclass(frozen=True, kw_only=True)
    class OraclePatch(type(method)):  # type: ignore[misc]
        """The method with corrected targets."""

        name: ClassVar[str] = "oracle patch"

        def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
            update = partial(given.agent.update, next_value=next_value)
            agent = given.agent._replace(update=update)
            return super().learn(state, given._replace(agent=agent), **moves)

    return OraclePatch(**{f.name: getattr(method, f.name) for f in fields(method)})


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


def train_on_plane(
    budget: PlaneBudget,
    learner: Learner,
    data: Imagination,
    keys: jax.Array,
    extra: Look | None = None,
    **training: Any,
) -> Trained:
    """Train all seeds side by side.

    Args:
        learner, data: of `model_based.bind` and `imagination`, with a world per seed or `()`.
        keys: `[2]`, for training and for evaluation.
    """
    discount = budget.agent.discount
    return train_learner(
        learner,
        data,
        keys[0],
        seeds=budget.seeds,
        per_seed=OWN_WORLDS if jax.tree.leaves(data.world) else False,
        iterations=budget.epochs,
        evaluate=plane_evaluator(learner, keys[1], budget.starts, discount, extra),
        evaluate_every=budget.epochs // budget.evaluations,
        **training,
    )


def critics_look(agent: Agent, reach: Reach, probes: int) -> Look:
    """How much the critics disagree within reach and at its edge, and how rare edge states are.

    `q_*`, `spread_*`, `gap_*` with `within` and `edge`: the critics' mean, their standard
    deviation and how far their minimum lies below their mean, uniformly over the states of the
    region. `edge_share`: of next states in the buffer.
    """
    regions = {"within": reach.within, "edge": reach.edge}
    states = {name: sample_region(reach, member, probes) for name, member in regions.items()}

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

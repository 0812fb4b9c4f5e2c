"""What experiments on the plane share: the reach of the data, an oracle at its edge, training.

Reach: a rollout of k steps from dataset states ends at a Chebyshev distance of at most k from the
data (an action moves each coordinate by at most one). States at a distance in (k - 1, k] can be
reached in exactly k steps and in no fewer: they are bootstrapped from and never updated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.agent import Agent, Learner
from jaxrl_rollouts.offline.agents.critic_view import critic_view
from jaxrl_rollouts.offline.agents.sac import SacConfig, SacState
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.plane import (
    MAX_EPISODE_STEPS,
    PLANE,
    ValueGrid,
    optimal_return,
)
from jaxrl_rollouts.offline.methods.scheme import (
    OWN_WORLDS,
    Method,
    ModelBasedConfig,
    ModelBasedState,
    imagination,
    make_model_based,
)
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollout import rollout
from jaxrl_rollouts.trees import PyTree

LONG = 600  # steps after which 0.99^n leaves a quarter of a percent of a value


class Reach(NamedTuple):
    """Where `horizon` steps from the data can lead.

    Attributes:
        distance: Chebyshev distance from the data, as a function on the plane.
        horizon: k.
    """

    distance: ValueGrid
    horizon: int

    def within(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in fewer than k steps, `[...]` bool."""
        return self.distance(states) <= self.horizon - 1

    def edge(self, states: jax.Array) -> jax.Array:
        """Which of `[..., 2]` states can be reached in exactly k steps only, `[...]` bool."""
        distance = self.distance(states)
        return (distance > self.horizon - 1) & (distance <= self.horizon)


def measure_reach(
    observations: np.ndarray, horizon: int, *, half_width: int = 32, per_unit: int = 8
) -> Reach:
    """Distances from `[N, 2]` dataset states on a grid, exact within half its spacing.

    Raises:
        ValueError: data outside the grid.
    """
    if np.abs(observations).max() > half_width:
        raise ValueError(f"observations: found some beyond +-{half_width}, expected none")
    size = 2 * half_width * per_unit + 1
    occupied = np.zeros((size, size), bool)
    cells = np.rint((observations + half_width) * per_unit).astype(int)
    occupied[cells[:, 0], cells[:, 1]] = True
    # The Chebyshev distance is a minimum over rows of a maximum, so one axis goes after the other.
    gaps = np.abs(np.arange(size)[:, None] - np.arange(size)).astype(np.float32)
    along = np.stack([np.where(row, gaps, np.inf).min(1) for row in occupied])  # [row, column]
    distance = np.stack([np.maximum(gap[:, None], along).min(0) for gap in gaps])
    grid = ValueGrid(jnp.asarray(distance / per_unit), float(-half_width), 1.0 / per_unit)
    return Reach(grid, horizon)


def sample_region(
    reach: Reach, member: Callable[[jax.Array], jax.Array], count: int, *, seed: int = 0
) -> jax.Array:
    """`[count, 2]` states drawn uniformly from where `member` (of `reach`) is true."""
    width = -reach.distance.low
    drawn = np.random.default_rng(seed).uniform(-width, width, (200 * count, 2)).astype(np.float32)
    return jnp.asarray(drawn[np.asarray(member(jnp.asarray(drawn)))][:count])


def patch(method: Method, reach: Reach, optimum: ValueGrid) -> Method:
    """`method` told the true optimal value of edge-of-reach states and of no others."""

    def next_value(next_observations: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.where(reach.edge(next_observations), optimum(next_observations), value)

    return method._replace(name="oracle patch", next_value=next_value)


def plane_evaluator(
    agent: Learner, reach: Reach, key: jax.Array, *, starts: int, discount: float, probes: int
) -> Callable[[ModelBasedState, int], dict[str, np.ndarray]]:
    """An `evaluate` for `train_learner` on the plane; every metric is `[seeds]`.

    `percent`: return of the mean action over 30 steps, in % of the optimum from the same starts.
    `true_value`, `estimated_value`: discounted value of that policy, measured (over 600 steps) and
    as promised by the critics (mean over critics), from the same starts.
    `q_*`, `spread_*`, `gap_*` with `within` and `edge`: the critics' mean, their standard
    deviation and how far their minimum lies below their mean, uniformly over the states within
    reach and at its edge. `edge_share`: of next states in the buffer.
    """
    begin = PLANE.observe(PLANE.reset(key, starts))
    best = optimal_return(begin)
    regions = {
        "within": sample_region(reach, reach.within, probes),
        "edge": sample_region(reach, reach.edge, probes),
    }

    def look(state: ModelBasedState) -> dict[str, jax.Array]:
        played = rollout(
            true_model(PLANE), None, begin, key, horizon=LONG, policy=agent.agent.greedy,
            policy_params=state.agent.actor, record=lambda step: step.rewards,
        )  # fmt: skip
        weights = discount ** jnp.arange(LONG, dtype=jnp.float32)
        metrics = {
            "percent": 100.0 * played.steps[:MAX_EPISODE_STEPS].sum() / best.sum(),
            "true_value": (weights @ played.steps).mean(),
            "estimated_value": critic_view(agent.agent, state.agent, begin).mean,
        }
        for name, states in regions.items():
            view = critic_view(agent.agent, state.agent, states)
            metrics |= {f"q_{name}": view.mean, f"spread_{name}": view.spread}
            metrics[f"gap_{name}"] = view.pessimism
        written = jnp.arange(state.imagined.capacity) < state.imagined.size
        at_edge = reach.edge(state.imagined.rows.next_observations) & written
        metrics["edge_share"] = at_edge.sum() / jnp.maximum(written.sum(), 1)
        return metrics

    every = jax.jit(jax.vmap(look))

    def evaluate(state: ModelBasedState, iteration: int) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in every(state).items()}

    return evaluate


def value_map(agent: Agent, states: SacState, half_width: float, points: int) -> np.ndarray:
    """What the agent expects on a square of the plane: `[seeds, points, points]`.

    The minimum over critics (what targets and actor use) under the policy's mean action; first
    index is the first coordinate.
    """
    axis = jnp.linspace(-half_width, half_width, points)
    plane = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)

    def one(state: SacState) -> jax.Array:
        actions, _ = agent.greedy(state.actor, jax.random.key(0), plane, ())
        return agent.q(state.critic, plane, actions).min(0).reshape(points, points)

    return np.asarray(jax.jit(jax.vmap(one))(states))


@dataclass(frozen=True)
class PlaneBudget:
    """Data, agent and evaluations on the plane.

    Attributes:
        rows: transitions of a uniformly random policy; the goal is at (7, 7).
        evaluations: of the agents, spread evenly over the `epochs`.
        starts: start states of an evaluation.
    """

    seeds: int = positive(5)
    rows: int = positive(20_000)
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden=(64, 64)))
    epochs: int = positive(100)
    evaluations: int = positive(20)
    starts: int = positive(128)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")


def train_on_plane(
    budget: PlaneBudget,
    rollouts: ModelBasedConfig,
    method: Method,
    dynamics: Dynamics,
    worlds: PyTree,
    data: Transitions,
    reach: Reach,
    keys: jax.Array,
    *,
    probes: int = 256,
    stage: str,
    context: RunContext | None,
) -> tuple[Learner, Trained]:
    """Train one method, all seeds side by side.

    Args:
        budget: seeds, epochs and evaluations.
        rollouts: cadence.
        method: what to train.
        dynamics: what it imagines with.
        worlds: their parameters, one per seed, or `()`.
        data: of the plane.
        reach: of the data.
        keys: for training and for evaluation, `[2]`.
        probes: states of each region on which critics are compared.
        stage, context: as for `loop.train`.
    """
    learner = make_model_based(rollouts, method, dynamics, 2, 2)
    discount = method.agent.discount
    evaluate = plane_evaluator(
        learner, reach, keys[1], starts=budget.starts, discount=discount, probes=probes
    )
    trained = train_learner(
        learner,
        imagination(method, data, worlds),
        keys[0],
        seeds=budget.seeds,
        per_seed=OWN_WORLDS if jax.tree.leaves(worlds) else False,
        iterations=budget.epochs,
        evaluate=evaluate,
        evaluate_every=budget.epochs // budget.evaluations,
        stage=stage,
        context=context,
    )
    return learner, trained

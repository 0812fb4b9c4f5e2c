"""What `edge_of_reach_toy` trains: base, base with the truth at the edge, and RAVL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.plane import PLANE, reward
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import ModelBased, Rollouts, bind
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.record.context import RunContext

from .plane import (
    OraclePatch,
    Reach,
    critics_look,
    imagination,
    optimal_return,
    plane_evaluator,
    sample_region,
    square,
    value_map,
)

BASE, PATCHED = "base", "oracle patch"
# V*, which the oracle tells, counts no entropy: targets that do (a cost, where a policy is narrow)
# make staying look worse than the edge, and the patched policy walks there.
HARD = SacConfig(hidden_dims=(64, 64), tau=0.02, backup_entropy=False)


@dataclass(frozen=True)
class Config:
    """Data, nets and cadence; the same for every method.

    Attributes:
        seeds, seed: runs side by side, and the random seed.
        rows: single steps of random actions; the goal is at (7, 7).
        agent: the actor-critic.
        epochs: rounds of model rollouts followed by updates.
        evaluations: evaluations of the agents, spread evenly over the `epochs`.
        starts: start states of an evaluation.
        half_width: half width of the box that holds the data, and the start states.
        horizons: steps of rollouts (k); at the last one the diagnosis is made.
        ravl: numbers of critics (N) and strengths of their diversity (eta).
        rollouts: numbers of model rollouts, and gradient steps between them.
        batch_size: rows of a gradient step; all of them are imagined.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    seeds: int = positive(5)
    seed: int = 0
    rows: int = positive(5_000)
    agent: SacConfig = HARD
    epochs: int = positive(100)
    evaluations: int = positive(20)
    starts: int = positive(128)
    half_width: float = number(6.0, above=0)
    horizons: tuple[int, ...] = positive((4, 6, 8))
    ravl: tuple[tuple[int, float], ...] = ((5, 1.0), (10, 1.0), (10, 10.0), (20, 10.0))
    rollouts: Rollouts = Rollouts(batch_size=1000, every=500)
    batch_size: int = positive(128)
    probes: int = positive(1024)

    def validate(self) -> None:
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")
        if not self.horizons or not self.ravl:
            raise ConfigError("horizons, ravl", (self.horizons, self.ravl), "at least one of each")

    @property
    def arms(self) -> dict[str, ModelBased]:
        """Every method that is trained, by what it is called."""
        names = ("agent", "rollouts", "batch_size")
        same: Any = {name: getattr(self, name) for name in names} | {"real_ratio": 0.0}
        patched = OraclePatch(**same, half_width=self.half_width)
        found: dict[str, ModelBased] = {BASE: Base(**same), PATCHED: patched}
        for n, eta in self.ravl:
            agent = replace(self.agent, num_critics=n, eta=eta)
            found[f"ravl {n}, {eta:g}"] = Ravl(**same | {"agent": agent})
        return found


SQUARE = square(18.0, 109)  # states on the maps


def plane_box(key: jax.Array, steps: int, half_width: float) -> Transitions:
    """Single steps of random actions from states uniform in a box: data with a sharp edge."""
    state_key, action_key = jax.random.split(key)
    states = jax.random.uniform(state_key, (steps, 2), minval=-half_width, maxval=half_width)
    actions = jax.random.uniform(action_key, (steps, 2), minval=-1.0, maxval=1.0)
    following, no = states + actions, np.zeros(steps, bool)
    rows = (states, actions, reward(states, actions, following), following)
    return Transitions(*map(np.asarray, rows), terminations=no, truncations=~no)


def optimum(config: Config, states: jax.Array) -> np.ndarray:
    """V* of `[..., 2]` states, exactly."""
    return np.asarray(optimal_return(states, discount=config.agent.discount, horizon=None))


def train_all(config: Config, context: RunContext | None) -> Grid:
    """Every method at every horizon, all seeds side by side; all in true dynamics.

    At the last horizon the cells also hold a `map`, the value of every state of the plane.
    """
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    rows = plane_box(jax.random.key(config.seed), config.rows, config.half_width)
    methods = config.arms

    def train(name: str, horizon: int, stage: str) -> Cell:
        reach = Reach(config.half_width, horizon)
        method = replace(methods[name], rollouts=replace(config.rollouts, length=horizon))
        learner = bind(method.program(), true_dynamics(PLANE), 2, 2)
        look = critics_look(learner.agent, reach, config.probes)
        trained = train_learner(
            learner,
            imagination(method, rows, ()),
            train_key,
            seeds=config.seeds,
            iterations=config.epochs,
            evaluate=plane_evaluator(learner, play_key, config.starts, config.agent.discount, look),
            evaluate_every=config.epochs // config.evaluations,
            stage=stage,
            context=context,
        )
        truth = optimum(config, sample_region(reach.edge, config.probes)).mean()

        def measure() -> dict[str, np.ndarray]:
            said, states = trained.history.last, trained.state.agent
            found = {"excess": said("q_edge") - said("gap_edge") - truth}
            if horizon == config.horizons[-1]:
                found["map"] = value_map(learner.agent, states, SQUARE)
            return found

        updates, rate = config.rollouts.every, bootstrap_rate(config.agent)
        return Cell.of(trained, measure=measure, per_iteration=updates, rate=rate)

    axes = {"method": list(methods), "k": config.horizons}
    return run_grid(axes, train, context, seeds=config.seeds)

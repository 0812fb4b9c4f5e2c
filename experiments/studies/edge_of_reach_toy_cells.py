"""What `edge_of_reach_toy` trains: base, base with the truth at the edge, and RAVL."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

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
from jaxrl_rollouts.offline.worlds.dynamics import true_dynamics
from jaxrl_rollouts.record.context import RunContext

from . import edge_of_reach_plane as edge_of_reach
from .plane import BoxDistance, Reach, ValueGrid, optimal_value, sample_region

BASE, PATCHED = "base", "oracle patch"
# V*, which the oracle tells, counts no entropy: targets that do (a cost, where a policy is narrow)
# make staying look worse than the edge, and the patched policy walks there.
HARD = SacConfig(hidden_dims=(64, 64), tau=0.02, backup_entropy=False)


@dataclass(frozen=True)
class Config(edge_of_reach.PlaneBudget):
    """Data, nets and cadence; the same for every method.

    Attributes:
        seed: of the random numbers; the same one gives the same numbers.
        half_width: of the box that holds the data, and the start states.
        horizons: steps of rollouts (k); at the last one the diagnosis is made.
        ravl: numbers of critics (N) and strengths of their diversity (eta).
        rollouts: numbers of model rollouts, and gradient steps between them.
        batch_size: rows of a gradient step; all of them are imagined.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    rows: int = positive(5_000)
    seed: int = 0
    agent: SacConfig = HARD
    half_width: float = number(6.0, above=0)
    horizons: tuple[int, ...] = positive((4, 6, 8))
    ravl: tuple[tuple[int, float], ...] = ((5, 1.0), (10, 1.0), (10, 10.0), (20, 10.0))
    rollouts: Rollouts = Rollouts(batch_size=1000, every=500)
    batch_size: int = positive(128)
    probes: int = positive(1024)

    def validate(self) -> None:
        super().validate()
        if not self.horizons or not self.ravl:
            raise ConfigError("horizons, ravl", (self.horizons, self.ravl), "at least one of each")

    @property
    def arms(self) -> dict[str, ModelBased]:
        """Every method that is trained, by what it is called."""
        names = ("agent", "rollouts", "batch_size")
        base = Base(real_ratio=0.0, **{name: getattr(self, name) for name in names})
        same: dict[str, Any] = {f.name: getattr(base, f.name) for f in fields(base)}
        ravl = {}
        for n, eta in self.ravl:
            same["agent"] = replace(self.agent, num_critics=n, eta=eta)
            ravl[f"ravl {n}, {eta:g}"] = Ravl(**same)
        return {BASE: base, PATCHED: base, **ravl}


class PlaneData(NamedTuple):
    """What every run shares; `square` `[N, N, 2]` are the states on the maps."""

    rows: Transitions
    optimum: ValueGrid
    square: jax.Array


def plane_box(key: jax.Array, steps: int, half_width: float) -> Transitions:
    """Single steps of random actions from states uniform in a box: data with a sharp edge."""
    state_key, action_key = jax.random.split(key)
    states = jax.random.uniform(state_key, (steps, 2), minval=-half_width, maxval=half_width)
    actions = jax.random.uniform(action_key, (steps, 2), minval=-1.0, maxval=1.0)
    following, no = states + actions, np.zeros(steps, bool)
    rows = (states, actions, reward(states, actions, following), following)
    return Transitions(*map(np.asarray, rows), terminations=no, truncations=~no)


def prepare(config: Config) -> PlaneData:
    """Data in the box, and the optimum."""
    rows = plane_box(jax.random.key(config.seed), config.rows, config.half_width)
    optimum = jax.jit(optimal_value, static_argnums=0)(config.agent.discount)
    return PlaneData(rows, optimum, edge_of_reach.square(18.0, 109))


def reach_of(config: Config, horizon: int) -> Reach:
    """Where so many steps from the box lead."""
    return Reach(BoxDistance(config.half_width), horizon)


def train_all(config: Config, data: PlaneData, context: RunContext | None) -> Grid:
    """Every method at every horizon, all seeds side by side; all in true dynamics.

    At the last horizon the cells also hold a `map`, the value of every state of the plane.
    """
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    methods = config.arms

    def train(name: str, horizon: int, stage: str) -> Cell:
        reach, method = reach_of(config, horizon), methods[name]
        if name == PATCHED:
            method = edge_of_reach.oracle_patch(method, reach, data.optimum)
        method = replace(method, rollouts=replace(config.rollouts, length=horizon))
        learner = bind(method.program(), true_dynamics(PLANE), 2, 2)
        imagined = edge_of_reach.imagination(method, data.rows, ())
        look = edge_of_reach.critics_look(learner.agent, reach, config.probes)
        trained = edge_of_reach.train_on_plane(
            config, learner, imagined, keys, look, stage=stage, context=context
        )
        truth = float(data.optimum(sample_region(reach, reach.edge, config.probes)).mean())

        def measure() -> dict[str, np.ndarray]:
            said, states = trained.history.last, trained.state.agent
            found = {"excess": said("q_edge") - said("gap_edge") - truth}
            if horizon == config.horizons[-1]:
                found["map"] = edge_of_reach.value_map(learner.agent, states, data.square)
            return found

        updates, rate = config.rollouts.every, bootstrap_rate(config.agent)
        return Cell.of(trained, measure=measure, per_iteration=updates, rate=rate)

    axes = {"method": list(methods), "k": config.horizons}
    return run_grid(axes, train, context, seeds=config.seeds)

"""What `edge_of_reach_toy` trains: base, base with the truth at the edge, and RAVL."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_box
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments import plane
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid
from jaxrl_rollouts.offline.environments.reach import BoxDistance, Reach, sample_region
from jaxrl_rollouts.offline.methods import scheme
from jaxrl_rollouts.offline.methods.registry import base, ravl
from jaxrl_rollouts.offline.methods.scheme import Method, ModelBasedConfig
from jaxrl_rollouts.offline.study import edge_of_reach
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.record.context import RunContext

BASE, PATCHED = "base", "oracle patch"
# V*, which the oracle tells, counts no entropy: targets that do (a cost, where a policy is narrow)
# make staying look worse than the edge, and the patched policy walks there.
HARD = SacConfig(hidden=(64, 64), polyak=0.02, backup_entropy=False)


@dataclass(frozen=True)
class Config(edge_of_reach.PlaneBudget):
    """Data, nets and cadence; the same for every method.

    Attributes:
        seed: of the random numbers; the same one gives the same numbers.
        half_width: of the box that holds the data, and the start states.
        horizons: steps of rollouts (k); at the last one the diagnosis is made.
        ravl: numbers of critics (N) and strengths of their diversity (eta).
        rollouts: numbers of model rollouts, and updates between them.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    rows: int = positive(5_000)
    seed: int = 0
    agent: SacConfig = HARD
    half_width: float = number(6.0, above=0)
    horizons: tuple[int, ...] = positive((4, 6, 8))
    ravl: tuple[tuple[int, float], ...] = ((5, 1.0), (10, 1.0), (10, 10.0), (20, 10.0))
    rollouts: ModelBasedConfig = field(
        default_factory=lambda: ModelBasedConfig(
            rollouts_per_epoch=1000, updates_per_epoch=500, batch_size=128, real_share=0.0
        )
    )
    probes: int = positive(1024)

    def validate(self) -> None:
        super().validate()
        if not self.horizons or not self.ravl:
            raise ConfigError("horizons, ravl", (self.horizons, self.ravl), "at least one of each")

    @property
    def arms(self) -> dict[str, Method]:
        """Every method that is trained, by what it is called."""
        many = {f"ravl {n}, {eta:g}": (n, eta) for n, eta in self.ravl}
        agents = {name: ravl(self.agent, critics=n, diversity=e) for name, (n, e) in many.items()}
        return {BASE: base(self.agent), PATCHED: base(self.agent), **agents}


class PlaneData(NamedTuple):
    """What every run shares; `square` `[N, N, 2]` are the states on the maps."""

    rows: Transitions
    optimum: ValueGrid
    square: jax.Array


def prepare(config: Config) -> PlaneData:
    """Data in the box, and the optimum."""
    rows = plane_box(jax.random.key(config.seed), config.rows, config.half_width)
    optimum = jax.jit(plane.optimal_value, static_argnums=0)(config.agent.discount)
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
        rollouts = replace(config.rollouts, horizon=horizon)
        learner = scheme.make_model_based(rollouts, method, true_dynamics(PLANE), 2, 2)
        imagined = scheme.imagination(method, data.rows, ())
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

        updates, rate = rollouts.updates_per_epoch, bootstrap_rate(config.agent)
        return Cell.of(trained, measure=measure, updates=updates, rate=rate)

    axes = {"method": list(methods), "k": config.horizons}
    return run_grid(axes, train, context, seeds=config.seeds)

"""Data of a random policy on the plane, and methods trained on it: `edge_of_reach_toy`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid, optimal_value
from jaxrl_rollouts.offline.methods.registry import MethodConfig, Mopo, make_method
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds, fit_worlds
from jaxrl_rollouts.record.context import RunContext

from ..kit.grid import Cell, Grid, run_grid
from .plane import PlaneBudget, Reach, measure_reach, patch, train_on_plane, value_map

# What is trained. With true dynamics MOPO and MOBILE are base exactly.
RUNS = (
    *((method, "true") for method in ("base", "oracle patch", "ravl")),
    *((method, "learned") for method in ("base", "mopo", "ravl")),
)
HALF, POINTS = 18.0, 109  # of the maps of the plane: half its width, points along a side


@dataclass(frozen=True)
class Config(PlaneBudget):
    """Data, nets and cadence; the same for every method.

    Attributes:
        learned: also train with learned dynamics.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    seed: int = 0
    learned: bool = True
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    rollouts: ModelBasedConfig = field(
        default_factory=lambda: ModelBasedConfig(
            horizon=10, rollouts_per_epoch=1000, updates_per_epoch=500, real_share=0.0
        )
    )
    methods: MethodConfig = field(default_factory=lambda: MethodConfig(mopo=Mopo(2.0)))
    probes: int = positive(1024)


class Setting(NamedTuple):
    """What every run shares; no `fitted` without learned dynamics."""

    data: Transitions
    reach: Reach
    optimum: ValueGrid
    fitted: FittedWorlds | None


def prepare(config: Config, context: RunContext | None) -> Setting:
    """Data of a random policy, its reach, the optimum, and a world model per seed."""
    data_key, fit_key = jax.random.split(jax.random.key(config.seed))
    data = plane_random(data_key, config.rows)
    reach = measure_reach(np.asarray(data.observations), config.rollouts.horizon)
    optimum = jax.jit(optimal_value, static_argnums=0)(config.agent.discount)
    fitted = None
    if config.learned:
        fitted = fit_worlds(
            config.ensemble, data, fit_key, seeds=config.seeds, targets="change", context=context
        )
    return Setting(data, reach, optimum, fitted)


def train_all(config: Config, setting: Setting, context: RunContext | None) -> Grid:
    """Every method with every kind of dynamics, all seeds side by side.

    With true dynamics the cells also hold a `map`, the value of every state of the plane.
    """
    data, reach, optimum, fitted = setting
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))

    def train(name: str, kind: str, stage: str) -> Cell:
        patched = name == "oracle patch"
        method = make_method("base" if patched else name, config.agent, config.methods)
        if patched:
            method = patch(method, reach, optimum)
        dynamics, worlds = true_dynamics(PLANE), ()
        if kind == "learned":
            assert fitted is not None
            dynamics, worlds = fitted.dynamics(PLANE, method.disagreement), fitted.worlds
        learner, trained = train_on_plane(
            config, config.rollouts, method, dynamics, worlds, data, reach, keys,
            probes=config.probes, stage=stage, context=context,
        )  # fmt: skip

        def measure() -> dict[str, np.ndarray]:
            return {"map": value_map(learner.agent, trained.state.agent, HALF, POINTS)}

        maps, updates = measure if kind == "true" else None, config.rollouts.updates_per_epoch
        return Cell.of(trained, measure=maps, updates=updates)

    points = [point for point in RUNS if config.learned or point[1] == "true"]
    return run_grid(("method", "dynamics"), train, context, seeds=config.seeds, points=points)

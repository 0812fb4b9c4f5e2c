"""Data of a random policy on the plane, and methods trained on it: `edge_of_reach_toy`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.agent import Agent
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid, optimal_value
from jaxrl_rollouts.offline.methods import MethodConfig, Mopo, make_method
from jaxrl_rollouts.offline.methods.scheme import (
    OWN_WORLDS,
    ModelBasedConfig,
    imagination,
    make_model_based,
)
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds, fit_worlds
from jaxrl_rollouts.record.context import RunContext

from .plane import Reach, measure_reach, patch, plane_evaluator

# What is trained: (method, whose dynamics). With true dynamics MOPO and MOBILE are base exactly.
RUNS = (
    ("base", "true"), ("oracle patch", "true"), ("ravl", "true"),
    ("base", "learned"), ("mopo", "learned"), ("ravl", "learned"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Data, nets and cadence; the same for every method.

    Attributes:
        rows: transitions of a uniformly random policy; the goal is at (7, 7).
        learned: also train with learned dynamics.
        evaluations: looks at the agents, spread evenly over the `epochs`.
        starts: start states of an evaluation.
        probes: states on which the critics are compared, within reach and at its edge.
    """

    seeds: int = 5
    seed: int = 0
    rows: int = 20_000
    learned: bool = True
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden=(64, 64)))
    rollouts: ModelBasedConfig = field(
        default_factory=lambda: ModelBasedConfig(
            horizon=10, rollouts_per_epoch=1000, updates_per_epoch=500, real_share=0.0
        )
    )
    methods: MethodConfig = field(default_factory=lambda: MethodConfig(mopo=Mopo(2.0)))
    epochs: int = 100
    evaluations: int = 20
    starts: int = 128
    probes: int = 1024

    def validate(self) -> None:
        at_least_one(self, "seeds", "rows", "epochs", "evaluations", "starts", "probes")
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")


class Cell(NamedTuple):
    """A trained run: the agent's functions and what became of its seeds."""

    agent: Agent
    trained: Trained


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


def train_cell(
    name: str, dynamics_name: str, config: Config, setting: Setting, context: RunContext | None
) -> Cell:
    """Train one method with one kind of dynamics, all seeds side by side."""
    base_name = "base" if name == "oracle patch" else name
    method = make_method(base_name, config.agent, config.methods)
    if name == "oracle patch":
        method = patch(method, setting.reach, setting.optimum)
    dynamics, worlds, per_seed = true_dynamics(PLANE), (), False
    if dynamics_name == "learned":
        assert setting.fitted is not None
        model, worlds, per_seed = setting.fitted.model, setting.fitted.worlds, OWN_WORLDS
        dynamics = learned_dynamics(
            model.fitter, model.elites, termination=PLANE.termination, reward=PLANE.reward,
            disagreement=method.disagreement,
        )  # fmt: skip
    agent = make_model_based(config.rollouts, method, dynamics, 2, 2)
    train_key, look_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    trained = train_learner(
        agent, imagination(method, setting.data, worlds), train_key, seeds=config.seeds,
        per_seed=per_seed, iterations=config.epochs,
        evaluate=plane_evaluator(
            agent, setting.reach, look_key, starts=config.starts,
            discount=config.agent.discount, probes=config.probes,
        ),
        evaluate_every=config.epochs // config.evaluations,
        stage=f"{name.replace(' ', '-')}-{dynamics_name}", context=context,
    )  # fmt: skip
    return Cell(agent.agent, trained)

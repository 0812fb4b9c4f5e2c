"""The edge-of-reach problem on a plane: seen, located by an oracle, and cured by RAVL.

Model rollouts of k steps start from data that stay around the origin; the goal is away. States
reached in exactly k steps are bootstrapped from and never updated. With true dynamics nothing but
that can be wrong: base fails, base told the true value of those states (and of no others) does
not, and RAVL does not. The same again with a learned model, where MOPO has an error to penalise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiment import Experiment, RunContext
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.blend import true_dynamics
from jaxrl_rollouts.offline.collect import plane_random
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.plane import PLANE, ValueGrid, optimal_value
from jaxrl_rollouts.offline.methods import MethodConfig, make_method
from jaxrl_rollouts.offline.model_based import ModelBasedConfig, make_model_based
from jaxrl_rollouts.offline.sac import Sac, SacConfig
from jaxrl_rollouts.offline.training import FittedWorlds, fit_worlds, train_agents
from jaxrl_rollouts.offline.world_model import learned_dynamics
from jaxrl_rollouts.report import Report

from .edge_of_reach_report import make_report
from .plane_study import Reach, measure_reach, patch, plane_evaluator

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
    methods: MethodConfig = field(default_factory=lambda: MethodConfig(mopo_penalty=2.0))
    epochs: int = 100
    evaluations: int = 20
    starts: int = 128
    probes: int = 1024

    def validate(self) -> None:
        for name in ("seeds", "rows", "epochs", "evaluations", "starts", "probes"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "at least 1")
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")


class Cell(NamedTuple):
    """A trained run: the agent's functions and what became of its seeds."""

    agent: Sac
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
            config.ensemble, data, fit_key, seeds=config.seeds, scale_targets=True, context=context
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
    dynamics, worlds = true_dynamics(PLANE), jnp.zeros(config.seeds)
    if dynamics_name == "learned":
        assert setting.fitted is not None
        model, worlds = setting.fitted.model, setting.fitted.worlds
        dynamics = learned_dynamics(
            model.fitter, model.elites, termination=PLANE.termination, reward=PLANE.reward,
            disagreement=method.disagreement,
        )  # fmt: skip
    agent = make_model_based(config.rollouts, method, dynamics, 2, 2)
    train_key, look_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))
    trained = train_agents(
        agent, worlds, setting.data, train_key, epochs=config.epochs,
        updates_per_epoch=config.rollouts.updates_per_epoch,
        evaluate=plane_evaluator(
            agent, setting.reach, look_key, starts=config.starts,
            discount=config.agent.discount, probes=config.probes,
        ),
        evaluate_every=config.epochs // config.evaluations,
        stage=f"{name.replace(' ', '-')}-{dynamics_name}", context=context,
    )  # fmt: skip
    return Cell(agent.agent, trained)


def run(config: Config, context: RunContext) -> Report:
    """Train every run, compare, draw."""
    setting = prepare(config, context)
    runs = [pair for pair in RUNS if config.learned or pair[1] == "true"]
    cells = {pair: train_cell(*pair, config, setting, context) for pair in runs}
    report = Report.of(context, config.seeds)
    make_report(report, config, setting, cells)
    parts = [cell.trained for cell in cells.values()]
    parts += [setting.fitted.trained] if setting.fitted else []
    report.compile_seconds = sum(part.compile_seconds for part in parts)
    report.wall_seconds = sum(part.wall_seconds for part in parts)
    return report


_ENSEMBLE = EnsembleConfig(
    members=5, elites=3, hidden=(64, 64), weight_decay=(2.5e-5,), max_epochs=20
)
EXPERIMENT = Experiment(
    name="edge_of_reach_toy",
    summary="why model-based offline RL explodes with perfect dynamics, and how RAVL cures it",
    source="Sims et al. 2024 (arXiv 2402.12527), the simple environment",
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, rows=600, learned=False,
            ensemble=EnsembleConfig(
                members=2, elites=1, hidden=(16,), weight_decay=(2.5e-5,), max_epochs=1
            ),
            agent=SacConfig(hidden=(16,)),
            rollouts=ModelBasedConfig(
                horizon=4, rollouts_per_epoch=100, updates_per_epoch=5, batch_size=32
            ),
            epochs=2, evaluations=2, starts=8, probes=64,
        ),
        "cpu": Config(
            ensemble=_ENSEMBLE,
            rollouts=ModelBasedConfig(
                horizon=7, rollouts_per_epoch=1000, updates_per_epoch=500, batch_size=128,
                real_share=0.0,
            ),
            epochs=120, evaluations=30,
        ),
        "paper": Config(seeds=10, rows=30_000, epochs=200),
    },
    run=run,
)  # fmt: skip

"""The first task of `horizon_overestimation`: a random policy's data on the plane.

They end before the goal. The same agent, without any pessimism, learns in one ensemble from
rollouts of several fixed lengths and from rollouts that go on until the members disagree more than
they do on the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.disagreement import spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.collect import plane_random
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS, PLANE, optimal_return
from jaxrl_rollouts.offline.methods import base
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig, make_model_based
from jaxrl_rollouts.offline.training import FittedWorlds, fit_worlds, train_agents
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, learned_dynamics
from jaxrl_rollouts.offline.worlds.trust import Trust, measure_trusts, threshold
from jaxrl_rollouts.plugins import RunContext
from jaxrl_rollouts.reports.report import Report

from ..ravl.plane import measure_reach, plane_evaluator
from .horizon_plane_report import Arm, show


@dataclass(frozen=True)
class PlaneConfig:
    """Arms and what they share.

    Attributes:
        rows: transitions of a uniformly random policy.
        fixed: horizons that nothing cuts short.
        levels: quantiles at which rollouts of at most `longest` steps stop; the last is the one
            claims are about.
        penalties: of the last level's conservative versions.
        steps_per_epoch: imagined at most.
        starts: start states of an evaluation.
    """

    seeds: int = 4
    rows: int = 20_000
    ensemble: EnsembleConfig = field(
        default_factory=lambda: replace(
            NEUBAY_ENSEMBLE, members=12, elites=10, hidden=(64, 64), max_epochs=30
        )
    )
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden=(64, 64)))
    fixed: tuple[int, ...] = (1, 2, 5, 10, 30)
    levels: tuple[float, ...] = (0.9, 0.99, 1.0)
    penalties: tuple[float, ...] = (0.2, 1.0)
    longest: int = MAX_EPISODE_STEPS
    steps_per_epoch: int = 6000
    updates_per_epoch: int = 500
    batch_size: int = 128
    real_share: float = 0.05
    epochs: int = 100
    evaluations: int = 20
    starts: int = 128

    def validate(self) -> None:
        at_least_one(self, "seeds", "rows", "epochs", "evaluations", "starts", "longest")
        if self.epochs % self.evaluations:
            raise ConfigError("evaluations", self.evaluations, f"a divisor of epochs {self.epochs}")
        if not self.fixed or not self.levels:
            raise ConfigError("fixed, levels", (self.fixed, self.levels), "at least one of each")
        if any(not 0 <= level <= 1 for level in self.levels):
            raise ConfigError("levels", self.levels, "each from 0 to 1")
        longest = max(*self.fixed, self.longest)
        if self.steps_per_epoch < longest:
            expected = f"at least the longest rollout ({longest})"
            raise ConfigError("steps_per_epoch", self.steps_per_epoch, expected)

    def arms(self) -> list[Arm]:
        """Every arm, in the order of the tables."""
        adaptive = [Arm(self.longest, level) for level in self.levels]
        penalised = [Arm(self.longest, self.levels[-1], penalty) for penalty in self.penalties]
        return [*(Arm(h) for h in self.fixed), *adaptive, *penalised]


def train_arm(
    arm: Arm, config: PlaneConfig, data: Transitions, fitted: FittedWorlds, trust: Trust,
    keys: tuple[jax.Array, jax.Array], context: RunContext,
) -> Trained:  # fmt: skip
    """Train one arm, all seeds side by side, each in its own ensemble; the arms share `keys`."""
    measured = arm.level is not None or arm.penalty > 0
    dynamics = learned_dynamics(
        fitted.model.fitter, fitted.model.elites, termination=PLANE.termination,
        reward=PLANE.reward, disagreement=spread_of_means if measured else None, normalised=True,
    )  # fmt: skip
    cadence = ModelBasedConfig(
        horizon=arm.horizon, rollouts_per_epoch=config.steps_per_epoch // arm.horizon,
        updates_per_epoch=config.updates_per_epoch, batch_size=config.batch_size,
        real_share=config.real_share, member="trajectory", adaptive=arm.level is not None,
    )  # fmt: skip
    # One number for all seeds: methods are static. The mean spread hardly differs between them.
    penalty = arm.penalty / float(np.mean(trust.mean)) if arm.penalty else 0.0
    method = base(config.agent)._replace(reward_penalty=penalty)
    agent = make_model_based(cadence, method, dynamics, 2, 2)
    worlds = fitted.worlds
    if arm.level is not None:
        worlds = worlds._replace(limit=threshold(trust, arm.level))
    train_key, look_key = keys
    reach = measure_reach(np.asarray(data.observations), arm.horizon)
    return train_agents(
        agent, worlds, data, train_key, epochs=config.epochs,
        updates_per_epoch=config.updates_per_epoch,
        evaluate=plane_evaluator(
            agent, reach, look_key, starts=config.starts, discount=config.agent.discount,
            probes=256,
        ),
        evaluate_every=config.epochs // config.evaluations,
        stage=arm.name.replace(" ", "-").replace(",", ""), context=context,
    )  # fmt: skip


def run_plane(report: Report, config: PlaneConfig, seed: int, context: RunContext) -> None:
    """Fit, train every arm, compare; tables, picture and claims go into the report."""
    data_key, fit_key = jax.random.split(jax.random.key(seed))
    data = plane_random(data_key, config.rows)
    fitted = fit_worlds(
        config.ensemble, data, fit_key, seeds=config.seeds, targets="observations", context=context
    )
    rows, levels = to_device(data), tuple(sorted({*config.levels, 1.0}))
    trust = measure_trusts(fitted.model.fitter, fitted.worlds, rows, levels)
    keys = tuple(jax.random.split(jax.random.fold_in(jax.random.key(seed), 1)))
    trained = {
        arm: train_arm(arm, config, data, fitted, trust, keys, context) for arm in config.arms()
    }
    begin = PLANE.observe(PLANE.reset(keys[1], config.starts))
    best = float(optimal_return(begin, discount=config.agent.discount, horizon=None).mean())
    show(report, config, trained, best)
    report.note(
        f"No policy earns more than {best:.1f} (discounted, from the start states). Promised: mean "
        "of the critics under the policy's mean action; earned: the same policy for 600 steps in "
        f"the true environment. {config.epochs * config.updates_per_epoch} gradient steps, at "
        f"most {config.steps_per_epoch} imagined steps every {config.updates_per_epoch}."
    )

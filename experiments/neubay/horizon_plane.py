"""The first task of `horizon_overestimation`: a random policy's data on the plane.

They end before the goal. The same agent, without any pessimism, learns in one ensemble from
rollouts of several fixed lengths and from rollouts that go on until the members disagree more than
they do on the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import plane_random
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.plane import MAX_EPISODE_STEPS, PLANE, optimal_return
from jaxrl_rollouts.offline.methods import base
from jaxrl_rollouts.offline.methods.scheme import (
    OWN_WORLDS,
    ModelBasedConfig,
    imagination,
    make_model_based,
)
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, FittedWorlds, fit_worlds
from jaxrl_rollouts.offline.worlds.trust import Trust, measure_trusts, threshold
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..ravl.plane import measure_reach, plane_evaluator


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
    # One number for all seeds: the mean spread hardly differs between them.
    penalty = arm.penalty / float(np.mean(trust.mean)) if arm.penalty else 0.0
    method = base(config.agent)._replace(coefficient=penalty, penalise_rewards=penalty > 0)
    agent = make_model_based(cadence, method, dynamics, 2, 2)
    worlds = fitted.worlds
    if arm.level is not None:
        worlds = worlds._replace(limit=threshold(trust, arm.level))
    train_key, look_key = keys
    reach = measure_reach(np.asarray(data.observations), arm.horizon)
    return train_learner(
        agent, imagination(method, data, worlds), train_key, seeds=len(worlds.inputs.mean),
        per_seed=OWN_WORLDS, iterations=config.epochs,
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


SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), figure 1"


class Arm(NamedTuple):
    """One way to roll: a fixed horizon, or a quantile of the data's spread to stop at.

    Attributes:
        horizon: most steps.
        level: quantile over the dataset; None never stops.
        penalty: of the spread, in units of its mean over the dataset (NEUBAY).
    """

    horizon: int
    level: float | None = None
    penalty: float = 0.0

    @property
    def name(self) -> str:
        how = f"H {self.horizon}" if self.level is None else f"adaptive {self.level:g}"
        return how + (f", penalty {self.penalty:g}" if self.penalty else "")


def show(report: Report, config: PlaneConfig, trained: Mapping[Arm, Trained], best: float) -> None:
    """Put into the report what was found; `best` is the most any policy can earn."""
    report.table("values", [_row(arm, t, best) for arm, t in trained.items()])
    _claims(report, config, trained, best)
    _draw(report, trained, best)


def gap(trained: Trained) -> np.ndarray:
    """Promised minus earned value at the end, `[seeds]`."""
    last = trained.history.last
    return last("estimated_value") - last("true_value")


def _row(arm: Arm, trained: Trained, best: float) -> dict[str, Any]:
    last = trained.history.last
    return {
        "rollouts": arm.name,
        "mean length": summarize(last("imagined_length")),
        "return, % of the best": summarize(last("percent")),
        "earned": summarize(last("true_value")),
        "promised": summarize(last("estimated_value")),
        "promised - earned": summarize(gap(trained)),
        "promised, % of the best": summarize(100.0 * last("estimated_value") / best),
    }


def _claims(
    report: Report, config: PlaneConfig, trained: Mapping[Arm, Trained], best: float
) -> None:
    adaptive = Arm(config.longest, config.levels[-1])
    short = [Arm(h) for h in config.fixed if 1 < h <= 10] or [Arm(config.fixed[0])]
    report.claim(
        Claim.at_least(
            "short rollouts promise more than they earn", source=SOURCE, threshold=0.2,
            values=np.stack([gap(trained[arm]) for arm in short], 1) / best,
            expected="promised minus earned, as a share of the best value",
        )
    )  # fmt: skip
    report.claim(
        Claim.between(
            "adaptive rollouts are calibrated", source=SOURCE, low=-0.2, high=0.2,
            values=gap(trained[adaptive]) / best,
            expected="the same for rollouts that stop at the data's largest spread",
        )
    )  # fmt: skip
    earned = {arm: t.history.last("percent") for arm, t in trained.items()}
    others = np.max([earned[Arm(h)] for h in config.fixed], 0)
    report.claim(
        Claim.at_least(
            "adaptive rollouts earn as much as the best fixed length", source=SOURCE,
            values=earned[adaptive] - others, threshold=-5.0,
            expected="return in % of the best, minus that of each seed's best fixed length",
        )
    )  # fmt: skip
    if len(config.levels) > 1:
        lengths = [
            trained[Arm(config.longest, level)].history.last("imagined_length")
            for level in (config.levels[-1], config.levels[0])
        ]
        report.claim(
            Claim.at_least(
                "a higher quantile means longer rollouts", source=SOURCE, threshold=2.0,
                values=lengths[0] / lengths[1],
                expected=f"length at {config.levels[-1]:g} over that at {config.levels[0]:g}",
            )
        )  # fmt: skip
    if config.penalties:
        strict = adaptive._replace(penalty=max(config.penalties))
        report.claim(
            Claim.at_most(
                "a penalty makes values pessimistic", source=SOURCE, threshold=-0.1,
                values=gap(trained[strict]) / best,
                expected="promised minus earned, as a share of the best value",
            )
        )  # fmt: skip


def _draw(report: Report, trained: Mapping[Arm, Trained], best: float) -> None:
    """Promised and earned value of every arm; above the line nobody can be."""
    made, (ax,) = figure(width=6.4, height=3.4)
    names = [arm.name for arm in trained]
    for at, t in enumerate(trained.values()):
        for metric, shade, shift in (("estimated_value", "#D55E00", -0.12),
                                     ("true_value", "#0072B2", 0.12)):  # fmt: skip
            values = t.history.last(metric)
            label = {"estimated_value": "promised", "true_value": "earned"}[metric]
            ax.plot([at + shift] * len(values), values, ".", color=shade, alpha=0.6)
            ax.plot([at + shift], [np.median(values)], "_", color=shade, markersize=14,
                    markeredgewidth=2, label=label if at == 0 else None)  # fmt: skip
    ax.axhline(best, color="black", linestyle=":", linewidth=1.0, label="the most possible")
    drawn = np.concatenate([t.history.last("estimated_value") for t in trained.values()])
    if np.abs(drawn).max() > 5 * best:
        # Linear up to what is possible, logarithmic beyond.
        ax.set_yscale("symlog", linthresh=best, linscale=0.8)
        ax.set_ylim(min(1.3 * drawn.min(), -0.1 * best), 1.3 * drawn.max())
        ticks = best * np.array([-8, -4, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 8, 16, 32, 64])
        within = ticks[(drawn.min() <= ticks) & (ticks <= max(drawn.max(), best))]
        ax.set_yticks(within, [f"{tick:.0f}" for tick in within])
        ax.minorticks_off()
    ax.set_xticks(range(len(names)), names, rotation=35, ha="right")
    ax.set_ylabel("discounted value from the start")
    legend(made, [ax])
    report.picture(
        "values", made,
        "What the critics promise and what the policy earns; points are seeds, bars medians; "
        "dotted: the most any policy can earn, up to which the axis is linear.",
    )  # fmt: skip

"""The second task of `horizon_overestimation`: clumsy balancing data, where falling ends episodes.

A feed-forward agent in NEUBAY's loop learns to run from twelve episodes that fall soon. How far its
rollouts go, and whether disagreement costs reward, is what the arms differ in; their posteriors
and random numbers are the same (section 9e of our notes says what to expect, and what not).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.offline.agents.agent import Learner
from jaxrl_rollouts.offline.behaviours.runner import runner_clumsy
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.runner import RUNNER
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.neubay.neubay import NeubayState
from jaxrl_rollouts.offline.neubay.prepare import prepare
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, fit_worlds
from jaxrl_rollouts.offline.worlds.trust import LEVELS, measure_trusts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize
from jaxrl_rollouts.rollout import rollout

from ..kit.draw import intervals

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), ablations; our notes, section 9e"
BEST = 283.0  # the most an episode can bring
AGENT = NeubayConfig(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("none", width=64), head=(64, 64), critics=4, discount=0.98,
        polyak=0.03, memory_rate=1e-3, head_rate=1e-3, temperature_rate=1e-3, steps=6000,
        real_weight=0.05,
    ),
    updates_per_iteration=100, tape=256, capacity=200_000, early_exit=20,
)  # fmt: skip


@dataclass(frozen=True)
class RunnerConfig:
    """Data, posterior, agent and arms.

    Attributes:
        episodes: of clumsy balancing, the data.
        agent: the arms' common settings; `level` 1 is the arm that claims are about.
        fixed: horizons without a threshold.
        levels: quantiles to cut rollouts at, besides 1.
        penalties: coefficients at the adaptive horizon, ascending.
        looks, last: evaluations, and how many of the last ones are averaged.
        plays: episodes of an evaluation.
    """

    seeds: int = 3
    episodes: int = 12
    ensemble: EnsembleConfig = field(
        default_factory=lambda: replace(
            NEUBAY_ENSEMBLE, members=12, elites=10, hidden=(64, 64), max_epochs=100, patience=100
        )
    )
    agent: NeubayConfig = field(default_factory=lambda: AGENT)
    fixed: tuple[int, ...] = (1, 5, 20)
    levels: tuple[float, ...] = (0.9,)
    penalties: tuple[float, ...] = (0.2, 1.0)
    looks: int = 12
    last: int = 3
    plays: int = 50

    def validate(self) -> None:
        at_least_one(self, "seeds", "episodes", "looks", "last", "plays")
        if self.agent.iterations % self.looks or self.last > self.looks:
            expected = f"a divisor of {self.agent.iterations} iterations, at least {self.last}"
            raise ConfigError("looks", self.looks, expected)
        if not self.fixed or not self.levels or not self.penalties:
            found = (self.fixed, self.levels, self.penalties)
            raise ConfigError("fixed, levels, penalties", found, "at least one of each")

    def arms(self) -> dict[str, NeubayConfig]:
        """Every arm by name; the first one cuts rollouts at the data's largest disagreement."""
        own = replace(self.agent, level=1.0, penalty=0.0)
        return {
            "adaptive 1": own,
            **{f"adaptive {x:g}": replace(own, level=x) for x in self.levels},
            **{f"H {h}": replace(own, level=-1.0, horizon=h) for h in self.fixed},
            **{f"penalty {x:g}": replace(own, penalty=x) for x in self.penalties},
        }


def promised_and_earned(
    learner: Learner,
    config: NeubayConfig,
    states: NeubayState,
    rows: Transitions,
    horizon: int = 400,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean critics' value of the data's actions, and what the greedy policy then earns.

    Args:
        learner: a Markov agent's.
        config: of it.
        states: of all seeds.
        rows: of the dataset, on the device.
        horizon: steps to play; `0.98^400` is 0.03 %.

    Returns:
        Means over the rows, `[seeds]` each.
    """
    agent, discount = learner.agent, config.agent.discount
    model = true_model(RUNNER)

    def one(state: NeubayState, rows: Transitions) -> tuple[jax.Array, jax.Array]:
        seen = rows.observations
        promised = agent.q(state.agent.critic, seen, rows.actions).mean()
        key = jax.random.key(0)
        following, out = model.step(None, key, seen, rows.actions, None)
        played = rollout(
            model, None, following, key, horizon=horizon, policy=agent.greedy,
            policy_params=state.agent.actor, record=lambda step: step.rewards,
        )  # fmt: skip
        later = (discount ** jnp.arange(1, horizon + 1)) @ played.steps
        return promised, (out.reward + jnp.where(out.terminated, 0.0, later)).mean()

    found = jax.jit(jax.vmap(one, (0, None)))(states, rows)
    return np.asarray(found[0]), np.asarray(found[1])


def run_runner(report: Report, config: RunnerConfig, seed: int, context: RunContext | None) -> None:
    """Fit, train every arm, compare; tables, picture and claims go into the report."""
    data_key, fit_key, train_key, look_key = jax.random.split(jax.random.key(seed), 4)
    rows = runner_clumsy(data_key, config.episodes)
    fitted = fit_worlds(
        config.ensemble, rows, fit_key, seeds=config.seeds, targets="observations",
        stage="runner-world", context=context,
    )  # fmt: skip
    device, levels = to_device(rows), tuple(sorted({*LEVELS, *config.levels}))
    fitter = fitted.model.fitter
    trust = measure_trusts(fitter, fitted.worlds, device, levels)
    trained: dict[str, Trained] = {}
    values: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, arm in config.arms().items():
        termination = RUNNER.termination
        assert termination is not None  # the runner's is known
        ready = prepare(
            arm,
            rows,
            fitter,
            fitted.worlds,
            trust,
            RUNNER,
            termination,
            seeds=config.seeds,
            source="runner",
        )
        trained[name] = train_learner(
            ready.learner, ready.data, train_key, seeds=config.seeds, per_seed=ready.per_seed,
            iterations=arm.iterations,
            evaluate=evaluator(
                ready.learner, RUNNER, look_key, config.plays, discount=arm.agent.discount
            ),
            evaluate_every=arm.iterations // config.looks,
            stage=f"runner-{name.replace(' ', '-')}", context=context,
        )  # fmt: skip
        values[name] = promised_and_earned(ready.learner, arm, trained[name].state, device)
    scores = {name: score(t, config.last) for name, t in trained.items()}
    gaps = {name: promised - earned for name, (promised, earned) in values.items()}
    report.table("runner", [_row(n, t, scores[n], *values[n]) for n, t in trained.items()])
    _claims(report, config, trained, scores, gaps, float(np.mean(values["adaptive 1"][1])))
    _draw(report, scores, gaps)
    ends = np.asarray(rows.terminations | rows.truncations)
    report.note(
        f"Runner: {len(ends)} transitions of {int(ends.sum())} clumsy episodes with a mean return "
        f"of {float(np.sum(rows.rewards)) / int(ends.sum()):.0f}; {BEST:.0f} is possible. Promised "
        "and earned are discounted and from the data's states and actions."
    )


def score(trained: Trained, last: int) -> np.ndarray:
    """Mean return of the last evaluations, `[seeds]`."""
    return trained.history.curve("return")[1][-last:].mean(0)


def _row(
    name: str, trained: Trained, scores: np.ndarray, promised: np.ndarray, earned: np.ndarray
) -> dict[str, Any]:
    return {
        "rollouts": name, "median length": summarize(trained.history.last("horizon_median")),
        "return": summarize(scores), "promised": summarize(promised), "earned": summarize(earned),
        "promised - earned": summarize(promised - earned),
    }  # fmt: skip


def _claims(
    report: Report, config: RunnerConfig, trained: Mapping[str, Trained],
    scores: Mapping[str, np.ndarray], gaps: Mapping[str, np.ndarray], value: float,
) -> None:  # fmt: skip
    """What was robust in a prototype of this task: five statements."""
    lengths = {
        name: trained[name].history.curve("horizon_median")[1].mean(0)
        for name in ("adaptive 1", f"adaptive {min(config.levels):g}")
    }
    longer, shorter = lengths.values()
    strict, mild = max(config.penalties), min(config.penalties)
    report.claim(
        Claim.at_least(
            "runner: the largest disagreement lets rollouts go on", source=SOURCE, threshold=4.0,
            values=longer / np.maximum(shorter, 1.0), statistic="min",
            expected=f"median length at 1 over that at {min(config.levels):g}, every seed",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_least(
            f"runner: adaptive rollouts earn as much as {min(config.fixed)} step", source=SOURCE,
            values=scores["adaptive 1"] - scores[f"H {min(config.fixed)}"], threshold=0.0,
            expected="return minus that of the shortest fixed rollouts, seed by seed",
            statistic="mean",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_least(
            f"runner: a penalty of {strict:g} costs 100 of return", source=SOURCE, threshold=100.0,
            values=scores["adaptive 1"] - scores[f"penalty {strict:g}"], statistic="mean",
            expected="Bayesian minus conservative on low-quality data, seed by seed",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_most(
            "runner: a penalty makes values pessimistic", source=SOURCE, threshold=0.0,
            values=gaps[f"penalty {mild:g}"] - gaps["adaptive 1"], statistic="mean",
            expected=f"promised minus earned with a penalty of {mild:g}, minus that without",
        )
    )  # fmt: skip
    report.claim(
        Claim.between(
            "runner: adaptive rollouts are calibrated", source=SOURCE, low=-0.2, high=0.2,
            values=gaps["adaptive 1"] / max(abs(value), 1.0), statistic="mean",
            expected="promised minus earned, as a share of what is earned",
        )
    )  # fmt: skip


def _draw(report: Report, scores: Mapping[str, np.ndarray], gaps: Mapping[str, np.ndarray]) -> None:
    made, (left, right) = figure(
        1, 2, height=3.0, title="Runner", titles=("Return", "Promised minus earned")
    )
    intervals(left, scores, statistic="mean", xlabel=f"return (of {BEST:.0f})")
    intervals(right, gaps, statistic="mean", xlabel="discounted value")
    right.axvline(0.0, color="black", linewidth=0.8, linestyle=":")
    report.picture(
        "runner", made,
        "Return of the last evaluations, and how much more the critics promise than the policy "
        "earns from the data's states and actions. Bars: 95 % intervals of the mean over seeds.",
    )  # fmt: skip

"""An arm nobody pulled: a Bayesian tries it, a conservative never does (NEUBAY's illustration).

Data of a two-armed bandit hold one arm only. An ensemble's opinions of the other are a posterior;
an agent with memory, trained on imagined bandits of one opinion each, learns to try it and to stay
where it pays. Taking a penalty for disagreement from the reward unlearns that. Exact optimal
stopping under the same beliefs says what there was to gain.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from jaxrl_rollouts.offline.bandit.agent import SMALL_AGENT, bandit_task
from jaxrl_rollouts.offline.bandit.rewards import REWARD_ENSEMBLE, fit_rewards, logged_pulls
from jaxrl_rollouts.offline.recurrent.dqn import DqnConfig, ring_bytes
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .bandit_bayes_cells import Config, train_all
from .bandit_bayes_page import SOURCE, make_report


def run(config: Config, context: RunContext) -> Report:
    """Fit the opinions, train every penalty, compare with the optimum, draw."""
    report, seeds = Report.of(context, config.seeds), config.seeds
    size = ring_bytes(config.agent, bandit_task(config.ensemble.elites)) * seeds / 1e6
    text = f"{config.agent.capacity:,} tokens per seed, {size:.0f} MB for {seeds} seeds."
    report.note(f"Token rings: {text}")
    if context.progress:
        print(report.notes[-1], flush=True)
    pulls, key = logged_pulls(config.seed), jax.random.key(config.seed)
    fitted = fit_rewards(config.ensemble, pulls, key, seeds=seeds, context=context)
    return make_report(report, config, fitted, train_all(config, fitted, context))


EXPERIMENT = Experiment(
    name="bandit_bayes",
    summary="data of one arm: Bayesian agents try the other and stay if it pays, penalised do not",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, penalties=(0.0, 2.5), evaluations=2, episodes=4, last=1,
            ensemble=replace(REWARD_ENSEMBLE, members=6, elites=4, max_epochs=4),
            agent=replace(
                SMALL_AGENT, memory=MemoryConfig("lru", width=8, state=4, layers=1), head=(8,),
                steps=16, episodes=4, capacity=2000, tape=202,
            ),
        ),
        "cpu": Config(),
        "paper": Config(seeds=6, agent=DqnConfig(), evaluations=100, episodes=20, last=10),
    },
    run=run,
)  # fmt: skip

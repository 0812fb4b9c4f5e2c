"""The main job: one offline dataset, one method, an evaluated policy and a report.

jaxrl-rollouts run offline                                  # Pendulum data made on the spot
jaxrl-rollouts run offline --dataset hopper-mixed --method mobile
jaxrl-rollouts run offline --method neubay                  # a memory, and no conservatism
jaxrl-rollouts run offline --method cql --steps 20000       # no world model at all
jaxrl-rollouts run offline --method iql --data synther      # on rows out of a diffusion model
                           --synthetic.relabel.by ensemble  # what follows, by a world model
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .agents.critics import bootstrap_rate
from .agents.registry import quick_agents
from .agents.sac import SacConfig
from .behaviours.made import MADE, PENDULUM, load_dataset, undeclared
from .commands import MAIN_JOB
from .data import Dataset
from .environments import make
from .methods.registry import NAMES as MODEL_BASED
from .methods.scheme import ModelBasedConfig
from .study import Budget, imagined_value, long_budget, neubay_page, page, small_budget, train
from .study.config import StudyConfig
from .study.model_based import FittedDataset
from .study.model_free import MODEL_FREE, Data, ModelFreeStudyConfig
from .study.neubay import NAMES as NEUBAY
from .study.neubay import Posterior, ring_note, rings_of, small_neubay
from .study.setting import facts_of, line_of, matched
from .study.source import Setting
from .synthetic.synthesis import small_synthetic


@dataclass(frozen=True)
class Config(Budget):
    """One dataset and one method.

    Attributes:
        dataset: `pendulum-mixed` (made on the spot), a file in D4RL's, Minari's or NeoRL's
            layout, or a name such as `hopper-medium-v2` or `halfcheetah-mixed`.
        method: base, mopo, mobile or ravl; neubay, with a posterior and an agent of its own, or
            neubay_markov, the same without a memory; or bc, sac, edac, cql, td3_bc, iql, rebrac or
            planner, which need no world model.
        data: of methods without a world model: the dataset's `real` rows; or rows of diffusion
            models, `synther`'s drawn once, or `pgd`'s, drawn again and again near the policy.
        environment: where the policy is played: a name that `data collect` knows, any id of
            Gymnasium's or gymnax's, package.module:factory, or none to train without a simulator.
            Left empty: what the dataset says it is from; where it says nothing, none.
        action_low: lower bounds of the actions in the file, one number or one for each entry; they
            are rescaled from there to [-1, 1]. Left empty: what the file declares, else -1 and 1.
        action_high: upper bounds.
        max_episode_steps: time limit of episodes in a file that does not mark where it cut them.
        cut_mismatches: end episodes of the file where next_observations are not the row that
            follows.
        stream: leave the rows on the disk and read them while training: `auto`, where they do not
            fit into memory; `always`; `never`. For files in D4RL's layout, and methods without a
            world model.
    """

    dataset: str = PENDULUM
    method: str = "ravl"
    data: Data = "real"
    environment: str = ""
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    max_episode_steps: int | None = positive(None)
    cut_mismatches: bool = False
    stream: Stream = "auto"

    def validate(self) -> None:
        self.check_method(self.method, self.data)


def run(config: Config, context: RunContext) -> Report:
    """Fit, train, evaluate, report."""
    dataset = opened(config)
    outcome = train(
        dataset,
        config.method,
        config,
        environment=config.environment,
        data=config.data,
        context=context,
    )
    source, report = outcome.source, Report.of(context, config.study.seeds)
    rate, discount = bootstrap_rate(outcome.config), outcome.config.discount
    cells = {config.method: Cell.of(outcome.trained, updates=outcome.updates, rate=rate)}
    if isinstance(source, Posterior):
        name = source.dataset.name
        report.table("world model", [neubay_page.posterior_row(source)])
        report.table("rollouts", neubay_page.horizon_rows(name, cells))
        neubay_page.draw_horizons(report, name, cells)
        if outcome.env is None:
            page.draw_training(report, source, cells, discount)
        else:
            page.draw_learning(report, source, cells)
            neubay_page.draw_values(report, {name: cells})
        report.note(ring_note(source, config.study, config.neubay.agent))
    elif outcome.estimated_value is not None:
        page.draw_training(report, source, cells, discount)
    elif outcome.env is not None:
        page.draw_learning(report, source, cells)
    if isinstance(source, FittedDataset):
        report.table("world model", [page.world_row(source)])
        page.draw_world(report, {source.dataset.name: source})
    rows = page.result_rows(source, cells, discount)
    if isinstance(source, FittedDataset):
        imagined = imagined_value(outcome, seed=config.study.seed)
        rows[1] |= {"imagined value": imagined.value, "spread of members": imagined.spread}
        report.number("imagined value", imagined.value)
        report.note(page.IMAGINED)
    report.table("result", rows)
    add_clock(report, clock_rows(cells))
    page.add_main_job(report, source, cells[config.method])
    asked = f", {config.steps:,} asked for" if config.steps not in (None, outcome.steps) else ""
    report.note(f"{outcome.steps:,} gradient steps per seed{asked}.")
    if isinstance(source, Setting) and source.synthetic:
        report.note(source.synthetic)
    page.note_best(report, outcome.best)
    imagines = config.method not in MODEL_FREE
    for fact in facts_of(source.dataset, source.env, config.study, imagines=imagines):
        report.note(fact)
    return report


def opened(config: Config) -> Dataset:
    """The rows, with what the configuration declares of their actions."""
    said = ("action_low", "action_high", "max_episode_steps", "cut_mismatches")
    given: dict[str, Any] = {name: getattr(config, name) for name in said if getattr(config, name)}
    stream: dict[str, Any] = {} if config.dataset in MADE else {"stream": config.stream}
    given |= undeclared(config.dataset, **given) | stream
    return load_dataset(config.dataset, config.study.seed, **given)


def prepare(config: Config) -> list[str]:
    """Read the dataset and make its environment; what they are, and what NEUBAY's rings take."""
    said = config.environment or config.action_low or config.max_episode_steps
    if config.dataset in MADE and not said:
        env, facts = make(MADE[config.dataset][0]), []
    else:
        dataset, env = matched(opened(config), config.environment)
        config.check_dataset(config.method, dataset)
        facts = facts_of(dataset, env, config.study, imagines=config.method not in MODEL_FREE)
        facts.insert(0, line_of(dataset, env))
    if config.method in NEUBAY:
        facts.append(rings_of(env, config.study, config.neubay.agent))
    return facts


def longer(config: Config, times: int) -> Budget:
    """The same job with its agent trained `times` as long."""
    return config.longer(config.method, times)


# What only model-based methods read of a study, and what NEUBAY reads of it besides.
_OF_WORLDS = ("ensemble", "targets", "shared_world", "agent", "rollouts", "methods", "epochs")
_OF_ENDINGS = ("termination", "ending")


def unread(config: Config) -> list[str]:
    """Settings of the other methods."""
    method, hidden = config.method, []
    if method not in MODEL_BASED:
        hidden += [f"study.{name}" for name in (*_OF_WORLDS, "error_horizon")]
    made = method in MODEL_FREE and config.data != "real"
    if method not in MODEL_FREE:
        hidden.append("model_free")
    elif not made or config.synthetic.relabel.by == "sampled":
        hidden += [f"study.{name}" for name in _OF_ENDINGS]
    hidden.append("synthetic.relabel.ending" if made else "synthetic")  # the study's own is read
    if method not in NEUBAY:
        hidden.append("neubay")
    hidden += [f"study.methods.{name}" for name in MODEL_BASED if name != method]
    return hidden + [f"model_free.agents.{name}" for name in MODEL_FREE if name != method]


def with_sizes(budget: Budget) -> Config:
    """The main job with the sizes and lengths of a budget."""
    return Config(**{part.name: getattr(budget, part.name) for part in fields(Budget)})


_PAPER = StudyConfig(seeds=5, epochs=3000, evaluations=60)

EXPERIMENT = MAIN_JOB.experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            StudyConfig(
                seeds=2, epochs=2, evaluations=1, episodes=2, error_horizon=20,
                ensemble=EnsembleConfig(
                    hidden=(32,), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2
                ),
                agent=SacConfig(critics=2, diversity=0.0, hidden=(32,)),
                rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=20),
            ),
            ModelFreeStudyConfig(quick_agents((32,)), updates=40, per_iteration=20),
            small_neubay(
                members=4, hidden=(32,), epochs=2, width=16, steps=20, per_iteration=10,
                rollouts=16, tape=256, capacity=20_000,
            ),
            small_synthetic(
                width=16, features=8, blocks=1, updates=40, steps=4, rows=400, windows=16,
                refresh=20, length=4,
            ),
        ),
        "cpu": with_sizes(small_budget()),
        "cpu-long": with_sizes(long_budget()),
        "paper": Config(_PAPER),
    },
    run=run,
)  # fmt: skip

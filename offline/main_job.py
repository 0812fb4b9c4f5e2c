"""The main job: one offline dataset, one method, an evaluated policy and a report.

jaxrl-rollouts run offline                                  # Pendulum data made on the spot
jaxrl-rollouts run offline --dataset hopper-medium-mini-v1 --method mobile --preset long
jaxrl-rollouts run offline --method cql --steps 20000       # no world model at all
jaxrl-rollouts run offline --method mopo --agent.hidden-dims 256 256 --penalty 5
jaxrl-rollouts run offline --method my_file.py:MyMethod     # one of your own
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from jaxrl_rollouts.cli.shown import choices_of, option
from jaxrl_rollouts.compare.claims import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import chosen, coefficients, positive
from jaxrl_rollouts.errors import ConfigError, DataError, DivergenceError
from jaxrl_rollouts.feeds import Stream
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from . import logs
from . import report as page
from .agents.critics import bootstrap_rate
from .arms import arms_of, of_arm
from .behaviours.made import MADE, PENDULUM
from .choosing.choice import Choice
from .choosing.choose import PRESETS as CHOOSING
from .choosing.choose import choose
from .commands import MAIN_JOB
from .conclusion import Measured, conclude
from .data import Dataset
from .environments import make
from .job import check_dataset, facts_of, train_method
from .matching import matched, unlike
from .method import Job, Method
from .methods import METHODS, MethodName
from .methods.mopo import Mopo
from .policy_value import model_value
from .recipes import LOOKS, PRESETS, Preset, recipe, source_of
from .result import TrainResult
from .task import behaviour, line_of, warnings_of
from .worlds.fit import FittedDataset
from .worlds.quality import quality


@dataclass(frozen=True)
class Config:
    """One dataset and one method.

    Attributes:
        dataset: `pendulum-mixed` (generated), a file in D4RL's, Minari's or NeoRL's
            layout, or a name such as `hopper-medium-v2` or `hopper-medium-mini-v1`.
        method: the method to train; its settings are options too.
        environment: evaluation environment: a built-in name (as in `data collect`), an id of
            Gymnasium or gymnax, package.module:factory, or none to train without a simulator. Left
            empty: the environment that the dataset declares, else none.
        seeds: number of seeds trained side by side.
        seed: random seed.
        evaluations: number of evaluations, evenly spread over the training.
        episodes: episodes per evaluation and seed.
        action_low: lower bounds of the actions in the file, one number or one per entry; actions
            are rescaled to [-1, 1]. Left empty: the file's declared bounds, else -1 and 1.
        action_high: upper bounds.
        max_episode_steps: time limit of episodes, for a file that does not mark truncations.
        cut_mismatches: end episodes where next_observations differ from the following row.
        stream: leave the rows on disk and read them while training: `auto`, if they do not
            fit into memory; `always`; `never`. For files in D4RL's layout, and methods without a
            world model.
        arms: settings trained side by side in one program, `expectile=0.7 expectile=0.9,beta=1`:
            coefficients of the method. Each arm has the results of a separate run, and a row in
            the report.
    """

    dataset: str = PENDULUM
    method: Method = chosen(METHODS, Mopo, flat=True)
    environment: str = ""
    seeds: int = positive(2)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(10)
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    max_episode_steps: int | None = positive(None)
    cut_mismatches: bool = False
    stream: Stream = "auto"
    arms: tuple[str, ...] = ()

    def job(self, context: RunContext | None = None) -> Job:
        own = self.seeds, self.seed, self.evaluations, self.episodes, context
        return Job(*own, sweep=arms_of(self.arms))


def begin(preset: str, given: Callable[[str], str | None]) -> Config:
    """The configuration that options change; `given(option)` is what was typed for one, or None."""
    name = given("--method") or "mopo"
    cls = METHODS[name]
    changes: dict[str, Any] = {}
    for setting in choices_of(cls()):
        kind, at = given(option(setting)), changes
        *outer, last = setting.split(".")
        if kind:
            for group in outer:
                at = at.setdefault(group, {})
            at[last] = {kind: {}}
    dataset: Dataset | str = given("--dataset") or PENDULUM
    if preset == "paper" and dataset not in MADE:  # a file's format and width say what it is
        dataset = opened(Config(dataset=dataset))
    looks = LOOKS[preset]
    return Config(
        dataset=given("--dataset") or PENDULUM,
        method=recipe(cast(MethodName, name), cast(Preset, preset), dataset, **changes),
        seeds=looks.seeds,
        evaluations=looks.evaluations,
        episodes=looks.episodes,
    )


def run(config: Config, context: RunContext) -> Report:
    """Fit, train, evaluate, report."""
    dataset, preset = opened(config), context.folder.preset
    job = config.job(context)
    result = train_method(dataset, config.method, job, config.environment or None, preset=preset)
    return report_of_arms(result, job, config.arms) if config.arms else report_of(result, job)


def report_of_arms(result: TrainResult, job: Job, arms: Sequence[str]) -> Report:
    """A row for each arm: what its policies earned, or gain by `choose` without a simulator."""
    context, seeds = job.context, job.seeds
    assert context is not None, "a report is of a run"
    report = Report.of(context, seeds)
    rate = bootstrap_rate(result.config)
    cell = Cell.of(result.trained, per_iteration=result.per_iteration, rate=rate)
    found = {name: cell[metric] for name, metric in page.COLUMNS.items() if metric in cell}
    if result.score is not None:
        found["score"] = result.score
    verdict = chosen_of(result, job) if result.env is None else None
    if isinstance(verdict, Choice):
        found[page.GAIN] = np.array(page.gains(verdict))
        page.add_choice(report, verdict)
    elif verdict is not None:
        report.note(f"No verdict: {verdict}")
    rows = [
        {"arm": text, "policies": f"{i * seeds} to {(i + 1) * seeds - 1}"} | of_arm(found, i, seeds)
        for i, text in enumerate(arms)
    ]
    report.table("arms", rows, "Policies: their numbers in the run's files. Others as in a run.")
    if "return" in cell:
        page.draw_arms(report, cell, arms, seeds)
    report.note(f"{len(arms)} arms of {result.method.name} in one program, {seeds} seeds each.")
    for row, iteration in sorted(result.trained.diverged.items()):
        report.note(f"{arms[row // seeds]}, seed {row % seeds}: diverged at {iteration}.")
    page.note_environments(report, [result.source])
    page.note_differences(report, result, source_of(type(result.method)))
    return report


def sweepable(config: Config) -> tuple[str, ...]:
    """Settings that `arms` may vary, as options are called."""
    return tuple(coefficients(config.method)) if config.method.sweeps else ()


def report_of(result: TrainResult, job: Job) -> Report:
    """Tables, pictures and notes of a result."""
    context = job.context
    assert context is not None, "a report is of a run"
    source, name = result.source, result.method.name
    report = Report.of(context, job.seeds)
    rate, discount = bootstrap_rate(result.config), result.config.discount
    cell = Cell.of(result.trained, per_iteration=result.per_iteration, rate=rate)
    if result.estimated_value is not None:
        page.draw_training(report, source, name, cell, discount)
    elif result.env is not None:
        page.draw_learning(report, source, name, cell)
    result.method.add_to_report(report, source, cell)
    rows = page.result_rows(source, name, cell, discount)
    found = imagined = None
    if isinstance(source, FittedDataset):
        found = quality(source)
        report.table("world model", [page.world_row(source, found)], page.WORLD)
        page.draw_world(report, found)
        imagined = model_value(result, seed=job.seed)
        rows[1] |= {"imagined value": imagined.value, "spread of members": imagined.spread}
        report.number("imagined value", imagined.value)
        report.note(page.IMAGINED)
    verdict = chosen_of(result, job) if result.env is None else None
    if isinstance(verdict, str):
        report.note(f"No verdict: {verdict}")
    elif verdict is not None:
        rows[1]["return"] = verdict.verdict
    report.table("result", rows, page.RESULT)
    if isinstance(verdict, Choice):
        page.add_choice(report, verdict)
        report.number(page.GAIN, page.gains(verdict))
    add_clock(report, clock_rows({name: cell}))
    page.add_main_job(report, source, cell)
    if result.returns is not None and result.true_value is not None:
        report.conclusion = conclude(
            Measured(
                result.returns,
                float(behaviour(source).mean()),
                result.true_value,
                result.estimated_value,
                cell.time_constants,
                unlike(source.dataset, source.env, result.history.last("length")),
                found,
                imagined,
            )
        )
    wanted = result.method.steps
    more = f", {wanted:,} requested" if wanted != result.steps else ""
    report.note(f"{name}, preset {result.preset}: {result.steps:,} gradient steps per seed{more}.")
    page.note_differences(report, result, source_of(type(result.method)))
    if note := getattr(source, "synthetic", ""):
        report.note(note)
    page.note_best(report, result.best)
    for seed, iteration in sorted(result.trained.diverged.items()):
        report.note(f"Seed {seed} diverged at iteration {iteration}: numbers and policy are NaN.")
    world = getattr(result.method, "world", None)
    for fact in warnings_of(source.dataset, source.env, world, imagines=result.method.imagines):
        report.note(fact)
    return report


def chosen_of(result: TrainResult, job: Job) -> Choice | str:
    """Whether the policies are better than the data, from the data alone; or why not."""
    config = result.preset if result.preset in CHOOSING else "long"
    data, context = result.source.dataset, job.context
    try:
        return choose([result], data, config=config, seed=job.seed, context=context)
    except (ConfigError, DataError, DivergenceError) as error:
        return str(error)


def opened(config: Config) -> Dataset:
    """The rows, with what the configuration declares of their actions."""
    return logs.opened({f.name: getattr(config, f.name) for f in fields(config)})


def prepare(config: Config) -> list[str]:
    """Read the dataset and make its environment; returns a description of both."""
    declared = config.environment or config.action_low or config.max_episode_steps
    checks = type(config.method).check_dataset is not Method.check_dataset
    if config.dataset in MADE and not declared and not checks:
        make(MADE[config.dataset][0])
        return []
    job = config.job()
    dataset, env = matched(opened(config), config.environment)
    check_dataset(dataset, config.method, job)
    return [line_of(dataset, env), *facts_of(dataset, config.method, job, env, "")[:-1]]


def longer(config: Config, times: int) -> Config:
    """The same job with its agent trained `times` as long, evaluated as often.

    Raises:
        ConfigError: a rate that falls to zero over the steps there are.
    """
    method = config.method
    if method.fixed_length():
        expected = f"none for {method.name}: a rate falls to zero over its {method.steps:,} steps"
        raise ConfigError("times", times, expected, "run it anew with more steps")
    method = replace(method, steps=method.steps * times)
    return replace(config, method=method, evaluations=config.evaluations * times)


EXPERIMENT = replace(
    MAIN_JOB.experiment(
        config_type=Config,
        presets={name: begin(name, lambda option: None) for name in PRESETS},
        run=run,
    ),
    begin=begin,
    title=lambda config: f"{Path(config.dataset).stem}-{config.method.name}",
)

"""The main job on the command line: one dataset, one method, an evaluated policy and a report.

jaxrl-rollouts run next --method mopo --preset paper --penalty 5 --agent.hidden 256 256
(In the house this is `main_job.py`, and the experiment's name is `offline`.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import chosen, positive
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .behaviours.made import PENDULUM, load_dataset
from .commands import NEXT
from .job import train_method
from .method import Job, Method
from .methods import METHODS
from .methods.mopo import Mopo
from .recipes import PRESETS, is_published, recipe
from .study import page


@dataclass(frozen=True)
class Config:
    """One dataset and one method.

    Attributes:
        dataset: `pendulum-mixed` (made on the spot), a file, or a name such as `hopper-medium-v2`.
        environment: where the policy is played; left empty: what the dataset says it is from.
        seeds: trained side by side.
        seed: of the random numbers.
        evaluations: of the policy, evenly spread over the training.
        episodes: of an evaluation, per seed.
    """

    dataset: str = PENDULUM
    method: Method = chosen(METHODS, Mopo, flat=True)
    environment: str = ""
    seeds: int = positive(2)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(10)


def begin(preset: str, given: Any) -> Config:
    """The configuration that options change: `given(option)` is what was typed for one, or None."""
    name, dataset = given("--method") or "mopo", given("--dataset") or PENDULUM
    return Config(dataset=dataset, method=recipe(name, preset, dataset))


def run(config: Config, context: RunContext) -> Report:
    """Train, evaluate, report."""
    dataset = load_dataset(config.dataset, config.seed)
    job = Job(config.seeds, config.seed, config.evaluations, config.episodes, context)
    outcome = train_method(
        dataset, config.method, job, config.environment, preset=context.folder.preset
    )
    report, name = Report.of(context, config.seeds), config.method.name
    cells = {name: Cell.of(outcome.trained, updates=outcome.updates)}
    report.table("result", page.result_rows(outcome.source, cells, outcome.config.discount))
    page.add_main_job(report, outcome.source, cells[name])
    report.note(f"{name}, preset {context.folder.preset}: {outcome.steps:,} gradient steps a seed.")
    if context.folder.preset == "paper" and not is_published(name, dataset.name):
        report.note(
            f"No published settings of {name} for {dataset.name}: the paper's general ones."
        )
    return report


EXPERIMENT = replace(
    NEXT.experiment(
        config_type=Config,
        presets={name: begin(name, lambda option: None) for name in PRESETS},
        run=run,
    ),
    begin=begin,
)

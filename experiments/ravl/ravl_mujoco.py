"""RAVL against base, MOPO, MOBILE, EDAC and cloning on MuJoCo data, from file to simulator.

Every method gets the same nets, batches, budget and seeds, and the model-based ones the same world
models, a world of its own for every seed; what differs is in `offline/methods/`. Where a method
has a coefficient, all values of a declared sweep are trained side by side in one program, and the
best of them at the end stands for the method: more than any offline method could choose, and the
same favour to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import number
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.mujoco import VELOCITY_LIMIT
from jaxrl_rollouts.offline.methods.registry import NAMES
from jaxrl_rollouts.offline.study import model_based, model_free
from jaxrl_rollouts.offline.study import page as pages
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.imagined import imagined_value
from jaxrl_rollouts.offline.study.method_settings import check_settings
from jaxrl_rollouts.offline.study.model_based import FittedDataset
from jaxrl_rollouts.offline.study.model_free import MODEL_FREE, ModelFreeStudyConfig
from jaxrl_rollouts.offline.study.outcome import Outcome
from jaxrl_rollouts.offline.study.page import GAP, late, overpromised, promised_to_earned
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting, Source, behaviour, slug
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm

from ..catalogue import LISTINGS, RAVL_D4RL, RAVL_MADE
from . import ravl_mujoco_judges as judges

SOURCE = LISTINGS["ravl_mujoco"].source


@dataclass(frozen=True)
class Config:
    """Datasets by methods; `study` is shared by all.

    Attributes:
        datasets: names, or files.
        methods: that are compared.
        model: what is rolled: world models, or the `simulator` (an environment whose observation
            determines its state: HalfCheetah, Swimmer; Hopper and Walker2d but for velocities
            beyond 10, which begin at 10), where a penalty on the model's error is zero and MOPO is
            base.
        mopo: penalties of MOPO that are swept.
        mobile: penalties of MOBILE that are swept.
        imagined: also play the last policies of all methods in the world models, as one would who
            has no simulator, and compare what they are worth there with what is true.
        study: world models, agent and evaluation, shared by all.
        free: agents that need no world model.
    """

    datasets: tuple[str, ...] = RAVL_MADE
    methods: tuple[str, ...] = (*NAMES, "edac", "bc")
    model: Literal["learned", "simulator"] = "learned"
    mopo: tuple[float, ...] = number((), least=0)
    mobile: tuple[float, ...] = number((), least=0)
    imagined: bool = False
    study: StudyConfig = field(default_factory=StudyConfig)
    free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)

    def validate(self) -> None:
        check_methods(self.methods, (*NAMES, *MODEL_FREE))
        if not self.datasets or not self.methods:
            raise ConfigError("datasets, methods", (self.datasets, self.methods), "at least one")

        if self.model == "simulator" and self.imagined:
            raise ConfigError("imagined", True, "False: the simulator is no learned model")
        if self.model == "simulator" and "mopo" in self.methods:
            raise ConfigError("methods", "mopo", "none that penalises the simulator's error: base")
        for name in set(self.methods) & set(NAMES):
            check_settings(name, self.study)

    def sweep(self, method: str) -> tuple[float, ...]:
        """The penalties of a method that are tried."""
        return {"mopo": self.mopo, "mobile": self.mobile}.get(method, ())


def check_methods(methods: Iterable[str], known: Sequence[str] = NAMES) -> None:
    """Raises `ConfigError` for a name that is none of a method."""
    for name in methods:
        if name not in known:
            raise ConfigError("methods", name, f"names out of {', '.join(known)}")


def arms_of(method: str, sweep: Sequence[float]) -> list[str]:
    """What the arms of a method are called: by their penalties, where several are tried."""
    return [f"{method} {penalty:g}" for penalty in sweep] if len(sweep) > 1 else [method]


def method_of(arm: str) -> str:
    """The method that an arm is of."""
    return arm.partition(" ")[0]


def train_methods(
    datasets: Mapping[str, Dataset], config: Config, context: RunContext
) -> tuple[Grid, dict[str, FittedDataset]]:
    """Cells by dataset and arm, and each dataset's world models, fitted when they are needed."""
    study, worlds = config.study, dict[str, FittedDataset]()

    def world(name: str) -> FittedDataset:
        if name not in worlds:
            worlds[name] = model_based.fit_dataset(datasets[name], study, context)
        return worlds[name]

    def own_setting(name: str) -> Setting:
        return Setting(datasets[name], environment_of(datasets[name]))

    def train(name: str, method: str, stage: str) -> Cell:
        if method in MODEL_FREE:
            setting = own_setting(name)
            outcome = model_free.train_model_free(method, setting, study, config.free, context)
            rate = bootstrap_rate(config.free.of(method))
        elif config.model == "simulator":
            outcome = in_simulator(method, own_setting(name), study, context)
            rate = bootstrap_rate(study.agent)
        else:
            sweep = config.sweep(method)
            outcome = model_based.train_model_based(method, world(name), study, context, sweep)
            rate = bootstrap_rate(study.agent)
        measure = partial(imagined_values, outcome, world, name) if config.imagined else None
        return Cell.of(outcome.trained, measure=measure, updates=outcome.updates, rate=rate)

    axes = {"dataset": list(datasets), "method": config.methods}
    trained = run_grid(axes, train, context, seeds=study.seeds)
    cells = {}
    for (name, method), cell in trained.items():
        arms = arms_of(method, config.sweep(method))
        cell = replace(cell, seeds=len(arms) * study.seeds)
        cells |= {(name, a): part for a, part in zip(arms, cell.parts(len(arms)), strict=True)}
    return Grid(("dataset", "arm"), cells), worlds


def imagined_values(
    outcome: Outcome, world: Callable[[str], FittedDataset], name: str
) -> dict[str, np.ndarray]:
    """What the last policies are worth in a dataset's world models, which are fitted if need be."""
    found = imagined_value(outcome, world(name))
    return {"imagined_value": found.value, "imagined_spread": found.spread}


def in_simulator(
    method: str,
    setting: Setting,
    study: StudyConfig,
    context: RunContext | None,
    stage: str | None = None,
) -> Outcome:
    """Train a method with the simulator in the place of a world model (Sims et al., table 1)."""
    dynamics = true_dynamics(setting.env, clipped=True)
    return model_based.train_in(dynamics, (), method, setting, study, context, stage=stage)


def best_of(cells: Mapping[str, Cell], method: str) -> str | None:
    """Of a method's arms the one with the highest return; None where it was not trained."""
    arms = [arm for arm in cells if method_of(arm) == method]
    scores = [np.nan_to_num(iqm(late(cells[arm])), nan=-np.inf) for arm in arms]
    return arms[int(np.argmax(scores))] if arms else None


def run(config: Config, context: RunContext) -> Report:
    """All methods on all datasets; each stage resumes by itself."""
    study, report = config.study, Report.of(context, config.study.seeds)
    datasets = {name: load_dataset(name, study.seed) for name in config.datasets}
    grid, worlds = train_methods(datasets, config, context)
    results = {name: grid.at(dataset=name) for name in config.datasets}
    settings = {
        name: worlds.get(name) or Setting(data, environment_of(data))
        for name, data in datasets.items()
    }
    for name, cells in results.items():
        best = {method: best_of(cells, method) for method in config.methods}
        chosen = {method: cells[arm] for method, arm in best.items() if arm}
        shown = {m: c for m, c in chosen.items() if m != "bc"}
        pages.draw_training(report, settings[name], shown, study.agent.discount)
    rows = [
        row
        for name, cells in results.items()
        for row in result_rows(settings[name], cells, study.agent.discount)
    ]
    report.table("results", rows)
    if worlds:
        report.table("world models", [pages.world_row(world) for world in worlds.values()])
        pages.draw_world(report, worlds)
    clocks = [clock_rows(cells, dataset=name) for name, cells in results.items()]
    add_clock(report, [row for rows in clocks for row in rows])
    pages.draw_comparison(report, settings, results)
    add_claims(report, settings, results, study.agent.discount)
    if config.imagined:
        judges.add(report, results)
    pages.note_made(report, datasets.values())
    if config.model == "simulator":
        report.note("The simulator is rolled in the place of a world model.")
        note_clipped(report, datasets, settings)
    elif study.shared_world:
        report.note("One world model per dataset, shared by all seeds and methods.")
    pages.note_environments(report, settings.values())
    return report


def note_clipped(
    report: Report, datasets: Mapping[str, Dataset], settings: Mapping[str, Source]
) -> None:
    """Say of how many rows the simulator's steps are not those that the data took."""
    for name, dataset in datasets.items():
        if settings[name].env.clipped_transition is not None:
            shown = np.abs(dataset.transitions.observations)
            share = (shown >= VELOCITY_LIMIT).any(-1).mean()
            report.note(
                f"Observations of {name} show no velocity beyond {VELOCITY_LIMIT:g}: the simulator "
                f"begins with {VELOCITY_LIMIT:g} there, in {100 * share:.1f} % of the rows."
            )


def result_rows(setting: Source, cells: Mapping[str, Cell], discount: float) -> list[dict]:
    """`pages.result_rows` with the mean of the last looks beside the last one."""
    rows = pages.result_rows(setting, cells, discount)
    for row in rows:
        if row["method"] in cells:
            row["mean of the last looks"] = late(cells[row["method"]])
    return rows


def add_claims(
    report: Report, settings: Mapping[str, Source], results: Mapping[str, Grid], discount: float
) -> None:
    """What is promised and earned by base and RAVL; RAVL against each other method's best arm, and
    against the behaviour in what is reported and in what is maximised."""
    claim = claims(report, SOURCE)
    for name, cells in results.items():
        compared = ("base", "ravl", "mopo", "mobile", "edac")
        short, arms = slug(name), {method: best_of(cells, method) for method in compared}
        base, ravl = (cells.get(arms[m]) for m in ("base", "ravl"))
        if base is not None:
            claim(
                f"base promises twice what it earns on {short}",
                promised_to_earned(base),
                at_least=2,
                cells=[base],
                means="critics' value over the true one (at least 1), mean of the last looks",
            )
        for method in compared[1:]:
            careful = cells.get(arms[method])
            if careful is not None:
                claim(
                    f"{method.upper()} promises no more than it earns on {short}",
                    overpromised(careful),
                    at_most=0,
                    cells=[careful],
                    means=GAP,
                )
        if ravl is None:
            continue
        if "mixed" in name or "replay" in name:
            claim(
                f"RAVL beats the behaviour on {short}",
                late(ravl),
                at_least=behaviour(settings[name]).mean(),
                cells=[ravl],
                means="mean return of the last looks above that of the dataset's episodes",
            )
            claim(
                f"RAVL's policies are worth more than the behaviour on {short}",
                late(ravl, "discounted_return"),
                at_least=behaviour(settings[name], discount).mean(),
                cells=[ravl],
                means="discounted, as learners maximise it: mean of the last looks above that of "
                "the dataset's episodes",
            )
        for other in ("base", "mopo", "mobile"):
            if arms[other] is not None:
                claim(
                    f"RAVL beats {other} on {short}",
                    late(ravl) - late(cells[arms[other]]),
                    at_least=0,
                    cells=[ravl, cells[arms[other]]],
                    means="a higher return, mean of the last looks, against its best penalty",
                )


def free_agents(study: StudyConfig) -> ModelFreeStudyConfig:
    """EDAC and cloning with the networks, rates and steps of the others."""
    agent = study.agent
    agents = quick_agents(agent.hidden, agent.critic_rate)
    clock = {"polyak": agent.polyak, "initial_alpha": agent.initial_alpha}
    agents = replace(agents, edac=replace(agents.edac, **clock))
    steps = study.rollouts.updates_per_epoch
    return ModelFreeStudyConfig(agents, updates=study.epochs * steps, per_iteration=steps)


_CPU, _SMOKE = CPU_MUJOCO, SMOKE_MUJOCO
_PAPER = StudyConfig(seeds=5, epochs=3000, evaluations=60, tuning="published")
_GPU = replace(
    _CPU,
    ensemble=replace(_CPU.ensemble, variance="output"),
    agent=replace(_CPU.agent, hidden=(256, 256)),
    rollouts=replace(_CPU.rollouts, real_share=0.95),
)
_LONG = Config(mopo=(1.0, 2.0, 5.0), mobile=(0.1, 0.5, 2.0), study=_CPU, free=free_agents(_CPU))

EXPERIMENT = LISTINGS["ravl_mujoco"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            ("hopper-random",),
            ("base", "mopo"),
            mopo=(0.5, 2.0),
            study=_SMOKE,
            free=free_agents(_SMOKE),
        ),
        # An hour on two cores; the long one is several.
        "cpu": replace(_LONG, datasets=("halfcheetah-mixed",), methods=("base", "bc", "ravl")),
        "cpu-long": _LONG,
        "simulator": Config(
            ("halfcheetah-mixed",),
            ("base", "mobile", "ravl"),
            "simulator",
            study=replace(_CPU, epochs=100),  # twenty time constants
        ),
        # What two CPU cores cannot: the papers' networks for forty time constants.
        "gpu": Config(
            ("halfcheetah-medium", "halfcheetah-mixed"),
            ("base", "ravl", "edac"),
            study=_GPU,
            free=free_agents(_GPU),
        ),
        "paper": Config(RAVL_D4RL, study=_PAPER, free=free_agents(_PAPER)),
    },
    run=run,
)

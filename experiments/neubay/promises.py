"""What is promised and what is earned: base, MOPO, RAVL and NEUBAY on the same rows, one picture.

Four agents learn from one dataset for the same number of gradient steps, with networks of one size
and targets that follow at one rate: base without a precaution, MOPO with a penalty, RAVL with many
critics, NEUBAY with long rollouts in a posterior. NEUBAY is its Markov version: the simulators
here hide nothing, and a memory takes ten times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.study import neubay, neubay_page, page
from jaxrl_rollouts.offline.study.config import CPU_MUJOCO, SMOKE_MUJOCO, StudyConfig
from jaxrl_rollouts.offline.study.neubay import NeubayStudyConfig, small_markov, smoke_markov
from jaxrl_rollouts.offline.study.page import GAP, late, overpromised
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from ..ravl.ravl_mujoco import Config as RavlConfig
from ..ravl.ravl_mujoco import check_methods, result_rows, train_methods

SOURCE = LISTINGS["promises"].source
OURS = "neubay"


@dataclass(frozen=True)
class Config:
    """One dataset; seeds, steps and evaluations are the same for all.

    Attributes:
        dataset: name, or file.
        methods: of `offline.methods`, beside NEUBAY.
        study: seeds, evaluation, and all of these methods.
        neubay: NEUBAY's world models and agent, which has no memory.
    """

    dataset: str = "halfcheetah-mixed"
    methods: tuple[str, ...] = ("base", "mopo", "ravl")
    study: StudyConfig = field(default_factory=StudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)

    def validate(self) -> None:
        check_methods(self.methods)
        study, ours = self.study, self.neubay.agent
        if not ours.markov:
            kind = ours.agent.memory.kind
            raise ConfigError("neubay.agent.agent.memory.kind", kind, "none: its Markov version")
        for name, theirs, own in (
            ("gradient steps", study.epochs * study.rollouts.updates_per_epoch, ours.agent.steps),
            ("polyak", study.agent.polyak, ours.agent.polyak),
            ("discount", study.agent.discount, ours.agent.discount),
        ):
            if theirs != own:
                raise ConfigError(f"study: {name}", theirs, f"NEUBAY's {own}: equal clocks")


def train_all(config: Config, context: RunContext) -> tuple[Grid, neubay.Posterior]:
    """Every method, all seeds side by side, in worlds of their own."""
    study, settings = config.study, config.neubay.agent
    dataset = load_dataset(config.dataset, study.seed)
    others = RavlConfig((config.dataset,), config.methods, study=study)
    grid, _ = train_methods({config.dataset: dataset}, others, context)
    posterior = neubay.fit_posterior(dataset, study, config.neubay, context)
    outcome = neubay.train_neubay(OURS, posterior, study, settings, context)
    cell = Cell.of(
        outcome.trained,
        updates=settings.updates_per_iteration,
        rate=bootstrap_rate(settings.agent),
    )
    ours = {(config.dataset, OURS): replace(cell, seeds=study.seeds)}
    return Grid(grid.axes, {**grid.cells, **ours}), posterior


def run(config: Config, context: RunContext) -> Report:
    """Train everybody, compare what critics promise with what policies earn."""
    report = Report.of(context, config.study.seeds)
    grid, posterior = train_all(config, context)
    cells, discount = grid.at(dataset=config.dataset), config.study.agent.discount
    report.table("results", result_rows(posterior, cells, discount))
    add_clock(report, clock_rows(cells))
    if OURS in cells.trained:
        ours = {OURS: cells[OURS]}
        report.table(
            "rollouts of the last collection", neubay_page.horizon_rows(config.dataset, ours)
        )
    page.draw_training(report, posterior, cells.trained, discount)
    add_claims(report, cells)
    page.note_made(report, [posterior.dataset])
    page.note_environments(report, [posterior])
    report.note(
        f"{config.neubay.agent.agent.steps:,} gradient steps for everyone. NEUBAY has no memory "
        "here, cuts rollouts where its members disagree more than anywhere on the data, and pays "
        "no penalty; the others roll five steps."
    )
    return report


def add_claims(report: Report, cells: Grid) -> None:
    """Base promises what it does not earn; the three others, each in its way, do not."""
    claim = claims(report, SOURCE)
    for name, cell in cells.items():
        gap = overpromised(cell)
        if name == "base":
            claim(
                "base promises more than it earns",
                gap,
                at_least=50,
                cells=[cell],
                means=GAP,
            )
            continue
        claim(
            f"{name} promises about what it earns, or less",
            gap,
            at_most=20,
            cells=[cell],
            means=GAP,
        )
        if "base" in cells:
            claim(
                f"{name} earns more than base",
                late(cell) - late(cells["base"]),
                at_least=0,
                cells=[cell, cells["base"]],
                means="return, mean of the last looks, seed by seed",
            )


# fmt: off
_SMOKE = Config(
    "hopper-random", ("base",), study=SMOKE_MUJOCO,
    neubay=smoke_markov(polyak=SMOKE_MUJOCO.agent.polyak),
)
_CPU = Config(
    study=replace(CPU_MUJOCO, epochs=100),
    neubay=small_markov(
        worlds=4, members=12, hidden=(128,) * 4, epochs=15, width=64, steps=100_000,
        per_iteration=100, rollouts=20, tape=512, capacity=400_000,
    ),
)
# fmt: on

EXPERIMENT = LISTINGS["promises"].experiment(
    config_type=Config, presets={"smoke": _SMOKE, "cpu": _CPU}, run=run
)

"""What layer-normalised critics change for TD3+BC and IQL, and whether their last point is luck.

The same rows, networks, rates and random numbers with plain and with layer-normalised critics, and
with target networks at the published speed and at the speed of the small experiments here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.kit.draw import curves
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.study import page
from jaxrl_rollouts.offline.study.config import StudyConfig
from jaxrl_rollouts.offline.study.model_free import ModelFreeStudyConfig, train_model_free
from jaxrl_rollouts.offline.study.page import LOOKS, late, overpromised, swing
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting, behaviour, slug
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

SOURCE = "TD3+BC of JAX-CORL (its critics are normalised) after 20,000 updates, one seed"
NAMES = {"td3_bc": "TD3+BC", "iql": "IQL"}
PLAIN, NORMED = "plain", "layer-normalised"


@dataclass(frozen=True)
class Config:
    """Datasets by agents by speed of the target networks by critics.

    Attributes:
        datasets: names, or files.
        agents: out of `NAMES`.
        polyaks: how much of the networks goes into their targets at every update.
        study: seeds and evaluation.
        free: all else of the agents, and their budget.
    """

    datasets: tuple[str, ...] = ("halfcheetah-medium", "halfcheetah-mixed")
    agents: tuple[str, ...] = tuple(NAMES)
    polyaks: tuple[float, ...] = (0.005, 0.025)
    study: StudyConfig = field(default_factory=StudyConfig)
    free: ModelFreeStudyConfig = field(default_factory=ModelFreeStudyConfig)

    def validate(self) -> None:
        if not self.agents or not set(self.agents) <= set(NAMES):
            raise ConfigError("agents", self.agents, f"some of {', '.join(NAMES)}")
        if not self.datasets or not self.polyaks:
            raise ConfigError("datasets, polyaks", (self.datasets, self.polyaks), "one of each")
        if not all(0 < polyak <= 1 for polyak in self.polyaks):
            raise ConfigError("polyaks", self.polyaks, "above 0 and at most 1")

    def arm(self, agent: str, polyak: float, critics: str) -> ModelFreeStudyConfig:
        """The settings of an arm: those of its agent are changed."""
        chosen = replace(self.free.of(agent), polyak=polyak, critic_norm=critics == NORMED)
        return replace(self.free, agents=replace(self.free.agents, **{agent: chosen}))


def run(config: Config, context: RunContext) -> Report:
    """All arms; each resumes by itself."""
    report, study = Report.of(context, config.study.seeds), config.study
    datasets = {name: load_dataset(name, study.seed) for name in config.datasets}
    settings = {name: Setting(data, environment_of(data)) for name, data in datasets.items()}

    def train(name: str, agent: str, polyak: float, critics: str, stage: str) -> Cell:
        arm = config.arm(agent, polyak, critics)
        outcome = train_model_free(agent, settings[name], study, arm, context, stage=stage)
        rate = bootstrap_rate(arm.of(agent))
        return Cell.of(outcome.trained, updates=outcome.updates, rate=rate)

    axes = {
        "dataset": config.datasets,
        "agent": config.agents,
        "polyak": config.polyaks,
        "critics": (PLAIN, NORMED),
    }
    grid = run_grid(axes, train, context, seeds=study.seeds)
    rows = grid.rows(
        {
            "last return": "return",
            "mean of the last looks": late,
            "swing": swing,
            "promised": "estimated_value",
            "true": "discounted_return",
            "promised too much": overpromised,
        }
    )
    report.table("arms", rows)
    played = [
        {"dataset": name, "return": float(behaviour(setting).mean())}
        for name, setting in settings.items()
    ]
    report.table("behaviour", played)
    add_clock(report, arm_clocks(grid, config))
    add_claims(report, grid, config)
    draw(report, grid, config, settings)
    report.note(
        f"{config.free.updates:,} gradient steps, the same rows and random numbers in every arm. "
        f"Swing is the standard deviation over a seed's last {LOOKS} looks of "
        f"{study.episodes} episodes each."
    )
    page.note_made(report, datasets.values())
    page.note_environments(report, settings.values())
    return report


def arm_clocks(grid: Grid, config: Config) -> list[dict]:
    """Rows of the clock, by dataset, agent and arm."""
    rows = []
    for name in config.datasets:
        for agent in config.agents:
            cells = grid.at(dataset=name, agent=agent)
            named = {f"{critics}, {polyak:g}": cells[polyak, critics] for polyak, critics in cells}
            rows += clock_rows(named, dataset=name, agent=NAMES[agent])
    return rows


def add_claims(report: Report, grid: Grid, config: Config) -> None:
    """Seed by seed, whether normalised critics earn more, and swing less."""
    claim = claims(report, SOURCE)
    for name in config.datasets:
        for agent in config.agents:
            for polyak in config.polyaks:
                cells = [grid[name, agent, polyak, critics] for critics in (PLAIN, NORMED)]
                plain, normed = cells
                where = f"on {slug(name)}, targets at {polyak:g}"
                more, less = late(normed) - late(plain), swing(normed) - swing(plain)
                earns = f"{NAMES[agent]} earns more with layer-normalised critics {where}"
                means = "difference of returns, mean of the last looks, seed by seed"
                claim(earns, more, at_least=0, cells=cells, means=means)
                swings = f"{NAMES[agent]} swings less with them {where}"
                means = "difference of the deviations over the last looks, seed by seed"
                claim(swings, less, at_most=0, cells=cells, means=means)


def draw(report: Report, grid: Grid, config: Config, settings: dict[str, Setting]) -> None:
    """Returns over training, a panel per dataset and agent."""
    panels = [(name, agent) for name in config.datasets for agent in config.agents]
    titles = [f"{NAMES[agent]}, {slug(name)}" for name, agent in panels]
    caption = "Returns by critics and speed of the targets; dashed: the data's policies."
    with picture(report, "returns", caption, titles=titles, columns=2) as axes:
        for ax, (name, agent) in zip(axes, panels, strict=True):
            cells = grid.at(dataset=name, agent=agent).trained
            curves(ax, cells, "return", label=lambda key: f"{key[1]}, targets at {key[0]:g}")
            level(ax, float(behaviour(settings[name]).mean()))
            ax.set_ylabel("return")


_FREE = ModelFreeStudyConfig(quick_agents((64, 64)), updates=24_000)
EXPERIMENT = LISTINGS["critic_norm"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            ("hopper-random",),
            ("td3_bc",),
            (0.025,),
            study=StudyConfig(seeds=2, evaluations=2, episodes=1),
            free=replace(_FREE, agents=quick_agents((16,)), updates=20, batch_size=32),
        ),
        "cpu": Config(study=StudyConfig(seeds=5, evaluations=12, episodes=5), free=_FREE),
    },
    run=run,
)

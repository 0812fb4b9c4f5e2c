"""What the datasets' policies learned: SAC in the simulators, beside published curves.

`data make` trains SAC online and plays what it was on the way. Here the same training is run with
several seeds and held against the curves that Tianshou published for its own SAC at equal steps:
ten seeds, networks of 2 x 256, rates of 1e-3, one copy of the simulator, a fixed entropy's weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.clock import add_clock, clock_rows
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.online.learner import OnlineConfig
from jaxrl_rollouts.offline.online.sets import RECIPES
from jaxrl_rollouts.offline.online.train import train_online
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.pictures import curve_with_band
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

SOURCE = LISTINGS["online_sac"].source


class Curve(NamedTuple):
    """A published learning curve: mean of ten seeds and their standard deviation.

    Attributes:
        untrained: return before anything is learned.
        points: steps in the simulator -> return, standard deviation. Tianshou counts from the end
            of 10,000 random steps, which are steps here.
    """

    untrained: float
    points: Mapping[int, tuple[float, float]]


# Tianshou's `examples/mujoco/benchmark/*/sac/test_rew_10seeds.csv`, at some of its looks.
PUBLISHED: Mapping[str, Curve] = {
    "halfcheetah": Curve(
        -2.0,
        {
            20_000: (865.4, 486.6), 30_000: (2641.1, 503.3), 50_000: (4326.9, 213.1),
            100_000: (6212.8, 437.2), 150_000: (7198.9, 665.0), 200_000: (7877.4, 762.8),
        },
    ),
    "hopper": Curve(
        47.5,
        {
            20_000: (282.1, 46.6), 30_000: (350.8, 59.4), 50_000: (1029.6, 794.0),
            100_000: (1765.9, 1035.9), 150_000: (2720.4, 934.6), 200_000: (2382.9, 1161.7),
        },
    ),
    "walker2d": Curve(
        6.4,
        {
            20_000: (311.5, 92.5), 30_000: (332.7, 100.0), 50_000: (538.7, 425.1),
            100_000: (843.5, 707.1), 150_000: (1804.7, 1012.2), 200_000: (2449.8, 1421.6),
            300_000: (3582.8, 1225.0),
        },
    ),
    "inverted-double-pendulum": Curve(
        87.9, {20_000: (7728.7, 3036.0), 30_000: (9067.9, 568.0), 40_000: (9339.7, 13.0)}
    ),
    "reacher": Curve(
        -27.3, {20_000: (-5.43, 0.38), 30_000: (-3.98, 0.24), 40_000: (-3.92, 0.20)}
    ),
    "swimmer": Curve(
        -7.7,
        {
            20_000: (25.7, 9.0), 30_000: (38.1, 2.5), 50_000: (39.3, 1.8), 100_000: (39.9, 1.1),
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Environments and one SAC for all of them.

    Attributes:
        environments: with a published curve.
        steps: in each simulator; None is what `data make` takes.
        seeds: trained side by side.
        seed: of the random numbers; the same one gives the same numbers.
        agent: settings of SAC.
        online: how acting and learning alternate.
    """

    environments: tuple[str, ...] = tuple(PUBLISHED)
    steps: int | None = positive(None)
    seeds: int = positive(3)
    seed: int = 0
    agent: SacConfig = field(default_factory=lambda: SacConfig(hidden=(64, 64)))
    online: OnlineConfig = field(default_factory=OnlineConfig)

    def validate(self) -> None:
        unknown = [name for name in self.environments if name not in PUBLISHED]
        if unknown or not self.environments:
            raise ConfigError("environments", self.environments, f"out of {', '.join(PUBLISHED)}")

    def steps_in(self, name: str) -> int:
        """Steps in the simulator of an environment."""
        return self.steps or RECIPES[name].steps


def train_all(config: Config, context: RunContext | None) -> Grid:
    """SAC in every environment, all seeds side by side."""

    def train(name: str, stage: str) -> Cell:
        outcome = train_online(
            name, config.agent, config.steps_in(name), online=config.online,
            seeds=config.seeds, seed=config.seed, stage=stage, context=context,
        )  # fmt: skip
        return Cell.of(
            outcome.trained,
            updates=outcome.config.updates,
            rate=bootstrap_rate(outcome.settings),
        )

    return run_grid({"environment": config.environments}, train, context, seeds=config.seeds)


def learned(config: Config, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Steps in the simulator `[looks]` and returns there, `[seeds, looks]`."""
    updates, returns = cell.curve("return")
    return config.online.steps_at(updates / cell.updates), returns


def earned(config: Config, cell: Cell, steps: int) -> np.ndarray:
    """Return at so many steps in the simulator, `[seeds]`, between the evaluations around them."""
    at, returns = learned(config, cell)
    return np.array([np.interp(steps, at, seed) for seed in returns])


def common(config: Config, cell: Cell, name: str) -> list[int]:
    """Steps of the published curve that the training reached."""
    last = learned(config, cell)[0][-1]
    return [steps for steps in PUBLISHED[name].points if steps <= last]


def run(config: Config, context: RunContext) -> Report:
    """Train everywhere, compare at equal steps."""
    report = Report.of(context, config.seeds)
    grid = train_all(config, context)
    claim = claims(report, SOURCE)
    rows = []
    for name, cell in grid.trained.items():
        curve, reached = PUBLISHED[name], common(config, cell, name)
        for steps in reached:
            mean, deviation = curve.points[steps]
            ours = earned(config, cell, steps)
            rows.append(
                {
                    "environment": name,
                    "steps": steps,
                    "return": ours,
                    "published": mean,
                    "its standard deviation": deviation,
                    "share of it": share(ours, curve, steps),
                }
            )
        if reached:
            last = reached[-1]
            claim(
                f"{name}: as far as published after {last:,} steps",
                share(earned(config, cell, last), curve, last),
                at_least=0.8,
                means="of the way from an untrained policy to the published mean",
            )
    report.table("learning curves", rows)
    add_clock(report, clock_rows(grid))
    draw(report, config, grid)
    agent, online = config.agent, config.online
    report.note(
        f"Ours: networks of {' x '.join(map(str, agent.hidden))}, rates of {agent.critic_rate:g}, "
        f"{online.warmup:,} random steps first, then {online.rows} steps in {online.environments} "
        f"copies between {online.updates} gradient steps; the entropy's weight is learned."
    )
    report.note(
        "Compared at equal steps, where both sides are as old: verdicts do not wait for the clock."
    )
    report.note(
        "Published: Tianshou's SAC, ten seeds, ten episodes a look; networks of 256 x 256, rates "
        "of 0.001, 10,000 random steps first (counted here), a gradient step for every step in "
        "one copy, the entropy's weight fixed at 0.2; mujoco-py's environments of version 2 and 3."
    )
    return report


def share(returns: np.ndarray, curve: Curve, steps: int) -> np.ndarray:
    """How much of the way from an untrained policy to the published mean."""
    return (returns - curve.untrained) / (curve.points[steps][0] - curve.untrained)


def draw(report: Report, config: Config, grid: Grid) -> None:
    """A panel per environment: our seeds and the published points over steps in the simulator."""
    caption = "Return over steps in the simulator. Points: published means and standard deviations."
    names = list(grid.trained)
    with picture(report, "curves", caption, titles=names or [""], columns=3, width=3) as axes:
        for ax, name in zip(axes, names, strict=False):
            curve_with_band(ax, *learned(config, grid[name]), "ours")
            points = PUBLISHED[name].points
            means, deviations = np.array(list(points.values())).T
            style = {"color": "black", "fmt": "o", "markersize": 3, "linewidth": 0.8}
            ax.errorbar(list(points), means, deviations, label="published", **style)
            ax.set_xlabel("steps in the simulator")
        axes[0].set_ylabel("return")


_SMOKE = Config(
    ("inverted-double-pendulum",),
    steps=20_400,
    seeds=2,
    agent=SacConfig(hidden=(8,)),
    online=OnlineConfig(looks=2, episodes=1, warmup=20_000, update_ratio=0.05, batch_size=16),
)
_PUBLISHED = Config(
    agent=SacConfig(hidden=(256, 256), actor_rate=1e-3, critic_rate=1e-3),
    online=OnlineConfig(warmup=10_000, episodes=10),
)

EXPERIMENT = LISTINGS["online_sac"].experiment(
    config_type=Config,
    presets={"smoke": _SMOKE, "cpu": Config(), "published": _PUBLISHED},
    run=run,
)

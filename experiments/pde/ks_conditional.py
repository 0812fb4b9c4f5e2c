"""One emulator over many viscosities: it is told which, and its horizon depends on it.

Low viscosity means shorter waves and faster chaos. MSE training and PDE-Refiner with the same
network, data and updates, judged bin by bin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import level, picture
from jaxrl_rollouts.compare.grid import Cell, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.metrics import correlation_horizons, high_correlation_time
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.look import Outcome, train_and_roll
from jaxrl_rollouts.pde.study.pictures import draw_rollouts
from jaxrl_rollouts.pde.study.train import StudyConfig, StudyData, make_emulator, prepare
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..catalogue import LISTINGS
from ..kit.colours import colour
from .ks import CPU, GPU, PAPER, REFINER, SMOKE, SOURCE, cell_of, rollouts

METHODS = ("mse", "refiner")


@dataclass(frozen=True)
class ConditionalConfig:
    """`study.train.parameter` is the range of viscosities; `bins` cut it for the tables.

    Attributes:
        study: data, networks and trainings.
        refiner: PDE-Refiner's settings.
        bins: of viscosities, for tables and pictures.
    """

    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    bins: int = 5

    def validate(self) -> None:
        if self.bins < 1:
            raise ConfigError("bins", self.bins, "at least 1")
        if "viscosity" not in self.study.conditions:
            expected = "viscosity among them: the emulator is told"
            raise ConfigError("study.conditions", self.study.conditions, expected)
        low, high = self.study.test.parameter
        if not low < high:
            raise ConfigError("study.test.parameter", (low, high), "a range of viscosities")

    def edges(self) -> np.ndarray:
        """Limits of the bins, `[bins + 1]`."""
        return np.linspace(*self.study.test.parameter, self.bins + 1)

    def bin_of(self, parameter: np.ndarray) -> np.ndarray:
        """Which bin a trajectory lies in."""
        return np.clip(np.digitize(parameter, self.edges()) - 1, 0, self.bins - 1)


def run(config: ConditionalConfig, context: RunContext) -> Report:
    """Train both methods on all viscosities, compare bin by bin."""
    study, data = config.study, prepare(config.study, context)

    def train(method: str, stage: str) -> Cell:
        emulator = make_emulator(method, study, config.refiner)
        outcome = train_and_roll(stage, emulator, study, data, context)
        return cell_of(outcome, data.dt, _by_viscosity(config, data, outcome))

    cells = run_grid({"method": METHODS}, train, context, seeds=study.seeds)
    report, rows = Report.of(context, study.seeds), []
    edges, member = config.edges(), config.bin_of(data.parameter)
    for at, index in enumerate(np.unique(member)):
        inside = member == index
        row = {"viscosity": f"{edges[index]:.2g} to {edges[index + 1]:.2g}"}
        row |= {"trajectories": int(inside.sum()), **_change(data, inside)}
        row |= {f"{name} T(0.8)": summarize(c["time_by_bin", :, at]) for name, c in cells.items()}
        rows.append(row)
    report.table("horizon by viscosity", rows)
    mse, refiner = (cells[name]["one_step"] for name in METHODS)
    errors = {"mse": mse[:, -1], "refiner, first call": refiner[:, 0], "refiner": refiner[:, -1]}
    rows = [{"prediction": name, "one-step MSE": summarize(e)} for name, e in errors.items()]
    report.table("error of a step", rows)
    claim = claims(report, SOURCE)
    means = "Pearson correlation of a trajectory's viscosity and horizon"
    for method, cell in cells.items():
        name = f"{method}: the horizon grows with viscosity"
        claim(name, cell["grows"], at_least=0.3, means=means)
    worst = (cells["refiner"]["time_by_bin", :, :] / cells["mse"]["time_by_bin", :, :]).min(1)
    means = "T(0.8) over MSE training's, in the worst bin"
    claim("the refiner lasts longer at every viscosity", worst, at_least=1.05, means=means)
    caption = "Each point is a test trajectory, mean over seeds; dotted: the end of the rollouts."
    with picture(report, "horizon", caption, width=5.6, height=3.2) as (ax,):
        for name, cell in cells.trained.items():
            style = {"color": colour(name), "markersize": 4, "label": name}
            ax.plot(data.parameter, cell["horizons"].mean(0), ".", **style)
        level(ax, study.steps * data.dt, linestyle=":")
        ax.set_xlabel("viscosity")
        ax.set_ylabel("time above correlation 0.8")
    draw_rollouts(report, study, data, rollouts(cells))
    report.note(
        f"One model for viscosities {edges[0]:g} to {edges[-1]:g}; {len(data.parameter)} test "
        f"trajectories, {study.steps} steps of {data.dt:g}. Change: standard deviation from "
        "one step to the next, median over trajectories; still: less than a twentieth of that."
    )
    return report


def _by_viscosity(
    config: ConditionalConfig, data: StudyData, outcome: Outcome
) -> dict[str, np.ndarray]:
    """Horizons `[seeds, B]`, their correlation with viscosity, and T(0.8) `[seeds, bins]`."""
    correlation, member = outcome.evaluation.correlation, config.bin_of(data.parameter)
    horizons = np.array([correlation_horizons(c, data.dt) for c in correlation])
    times = [
        [high_correlation_time(c[:, member == index], data.dt) for index in np.unique(member)]
        for c in correlation
    ]
    grows = [np.corrcoef(data.parameter, horizon)[0, 1] for horizon in horizons]
    return {"horizons": horizons, "grows": np.array(grows), "time_by_bin": np.array(times)}


def _change(data: StudyData, inside: np.ndarray) -> dict[str, float]:
    """How much a step changes the field, and how many trajectories are still."""
    change = np.diff(np.asarray(data.test.fields)[inside], axis=1).std((1, 2, 3))
    still = 100.0 * float((change < np.median(change) / 20).mean())
    return {"change": float(np.median(change)), "still %": still}


def _varied(study: StudyConfig, extent: tuple[float, float], points: int) -> StudyConfig:
    """The study over viscosities 0.5 to 1.5."""
    train, test = (
        replace(solved, parameter=(0.5, 1.5), extent=extent, points=points)
        for solved in (study.train, study.test)
    )
    return replace(study, train=train, test=test, conditions=(*study.conditions, "viscosity"))


# Twice the domain: at 22 the most viscous are not chaotic.
_CPU = replace(_varied(CPU, (44.0, 44.0), 192), points=96, seeds=2, steps=150, sampled_steps=100)
_GPU, _PAPER = (_varied(study, (57.6, 70.4), 256) for study in (GPU, PAPER))

_DATA = {
    "train": replace(_PAPER.train, trajectories=4096),
    "test": replace(_PAPER.test, trajectories=512, frames=1140),
}
PRESETS = {
    "smoke": ConditionalConfig(_varied(SMOKE, (44.0, 44.0), 128), REFINER, bins=2),
    "cpu": ConditionalConfig(replace(_CPU, residual_scale=0.3), REFINER),
    "gpu": ConditionalConfig(_GPU, REFINER),
    "paper": ConditionalConfig(replace(_PAPER, **_DATA), RefinerConfig(min_noise_variance=4e-7)),
}
EXPERIMENT = LISTINGS["ks_conditional"].experiment(ConditionalConfig, PRESETS, run)

"""One emulator over many viscosities: it is told which, and its horizon depends on it.

Low viscosity means shorter waves and faster chaos. MSE training and PDE-Refiner with the same
network, data and updates, judged bin by bin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.metrics import correlation_horizons, high_correlation_time
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.train import KsData, StudyConfig, prepare
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.colours import colour
from .ks_page import draw_rollouts
from .ks_refiner import SOURCE, KsConfig, train_and_roll
from .presets import CPU, GPU, PAPER, SMOKE

METHODS = ("mse", "refiner")


@dataclass(frozen=True)
class ConditionalConfig:
    """`study.train.parameter` is the range of viscosities; `bins` cut it for the tables."""

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


def run(config: ConditionalConfig, context: RunContext) -> Report:
    """Train both methods on all viscosities, compare bin by bin."""
    study = config.study
    data = prepare(study, context)
    both = KsConfig(METHODS, study, config.refiner)
    found = {
        name: train_and_roll(name, both, data, context, sampled=False).found for name in METHODS
    }
    report = Report.of(context, study.seeds)
    edges = config.edges()
    member = np.clip(np.digitize(data.parameter, edges) - 1, 0, config.bins - 1)
    rows: list[dict] = []
    curves: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
    for index in range(config.bins):
        inside = member == index
        if not inside.any():
            continue
        row = {"viscosity": f"{edges[index]:.2g} to {edges[index + 1]:.2g}"}
        row |= {"trajectories": int(inside.sum())} | _change(data, inside)
        for name, e in found.items():
            curve = [high_correlation_time(c[:, inside], data.dt) for c in e.correlation]
            row[f"{name} T(0.8)"] = summarize(curve)
            curves[name].append(np.array(curve))
        rows.append(row)
    report.table("horizon by viscosity", rows)
    horizons = {
        name: np.array([correlation_horizons(c, data.dt) for c in e.correlation])
        for name, e in found.items()
    }
    for name, values in horizons.items():
        report.claim(
            Claim.at_least(
                f"{name}: the horizon grows with viscosity", source=SOURCE, threshold=0.3,
                values=np.array([np.corrcoef(data.parameter, h)[0, 1] for h in values]),
                expected="Pearson correlation of a trajectory's viscosity and horizon",
            )
        )  # fmt: skip
    worst = np.min([r / m for r, m in zip(curves["refiner"], curves["mse"], strict=True)], 0)
    report.claim(
        Claim.at_least(
            "the refiner lasts longer at every viscosity", source=SOURCE, threshold=1.05,
            values=worst, expected="T(0.8) over MSE training's, in the worst bin",
        )
    )  # fmt: skip
    _draw(report, config, data, horizons)
    draw_rollouts(report, study, data, found)
    report.note(
        f"One model for viscosities {edges[0]:g} to {edges[-1]:g}; {len(data.parameter)} test "
        f"trajectories, {study.steps} steps of {data.dt:g}. Change: standard deviation from one "
        "step to the next, median over trajectories; still: less than a twentieth of that."
    )
    return report


def _change(data: KsData, inside: np.ndarray) -> dict:
    fields = np.asarray(data.test.fields)[inside]
    change = np.diff(fields, axis=1).std((1, 2, 3))
    still = 100.0 * float((change < np.median(change) / 20).mean())
    return {"change": float(np.median(change)), "still %": still}


def _draw(report: Report, config: ConditionalConfig, data: KsData, horizons: dict) -> None:
    made, (ax,) = figure(width=5.6, height=3.2)
    for name, values in horizons.items():
        ax.plot(data.parameter, values.mean(0), ".", color=colour(name), markersize=4, label=name)
    ax.axhline(config.study.steps * data.dt, color="black", linestyle=":", linewidth=0.8)
    ax.set_xlabel("viscosity")
    ax.set_ylabel("time above correlation 0.8")
    ax.legend(frameon=False, fontsize=8)
    report.picture(
        "horizon", made,
        "Each point is a test trajectory, mean over seeds; dotted: the end of the rollouts.",
    )  # fmt: skip


def _varied(study: StudyConfig, extent: tuple[float, float], points: int) -> StudyConfig:
    """The study over viscosities 0.5 to 1.5."""
    changes = {"parameter": (0.5, 1.5), "extent": extent, "points": points}
    return replace(
        study, train=replace(study.train, **changes), test=replace(study.test, **changes),
        conditions=(*study.conditions, "viscosity"),
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="ks_conditional",
    summary="one emulator for viscosities 0.5 to 1.5: horizon by viscosity",
    source=SOURCE,
    config_type=ConditionalConfig,
    presets={
        "smoke": ConditionalConfig(
            study=_varied(SMOKE, (44.0, 44.0), 128), bins=2,
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
        # Twice the domain: at 22 the most viscous are not chaotic.
        "cpu": ConditionalConfig(
            study=replace(
                _varied(CPU, (44.0, 44.0), 192), points=96, seeds=2, steps=150, sampled_steps=100,
                residual_scale=0.3,
            ),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
        "gpu": ConditionalConfig(
            study=_varied(GPU, (57.6, 70.4), 256), refiner=RefinerConfig(min_noise_variance=1e-6)
        ),
        "paper": ConditionalConfig(
            study=replace(
                _varied(PAPER, (57.6, 70.4), 256),
                train=replace(PAPER.train, trajectories=4096, parameter=(0.5, 1.5)),
                test=replace(
                    PAPER.test, trajectories=512, frames=1140, parameter=(0.5, 1.5)
                ),
            ),
            refiner=RefinerConfig(min_noise_variance=4e-7),
        ),
    },
    run=run,
)  # fmt: skip

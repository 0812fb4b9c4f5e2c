"""PDE-Refiner on Kuramoto-Sivashinsky: what refinement does to small amplitudes and to rollouts.

One-step MSE, pushforward, error correction (a second call without noise: the control) and
PDE-Refiner with the same network, data, updates and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import Emulator
from jaxrl_rollouts.pde.objectives import OneStepConfig, make_one_step
from jaxrl_rollouts.pde.refiner import RefinerConfig, make_refiner
from jaxrl_rollouts.pde.study.look import (
    Emulated,
    evaluate,
    high_correlation_times,
    reliable,
    sample,
    true_spectrum,
)
from jaxrl_rollouts.pde.study.train import (
    KsData,
    StudyConfig,
    make_network,
    prepare,
    train_emulator,
)
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .ks_page import draw_all
from .presets import CPU, GPU, PAPER, SMOKE, small_domain

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"
METHODS = ("mse", "pushforward", "correction", "refiner")


@dataclass(frozen=True)
class KsConfig:
    """Methods out of mse, pushforward, correction (two calls, no noise) and refiner.

    The refiner's residual scale is the study's.
    """

    methods: tuple[str, ...] = METHODS
    study: StudyConfig = field(default_factory=StudyConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)

    def validate(self) -> None:
        if not self.methods or set(self.methods) - set(METHODS):
            raise ConfigError("methods", self.methods, f"names out of {', '.join(METHODS)}")


def make_emulator(name: str, config: KsConfig, *, applied: int | None = None) -> Emulator:
    """One method's emulator; `applied` refinements when stepping."""
    net, scale = make_network(config.study), config.study.residual_scale
    if name == "refiner":
        return make_refiner(net, replace(config.refiner, residual_scale=scale, applied=applied))
    objective: Any = name
    return make_one_step(net, OneStepConfig(objective=objective, residual_scale=scale))


def train_and_roll(
    name: str, config: KsConfig, data: KsData, context: RunContext, *, stage: str = "",
    sampled: bool = True,
) -> Emulated:  # fmt: skip
    """Train one method, all seeds side by side, and roll it over the test trajectories.

    Args:
        stage: name of its folder in the run; the method's by default.
        sampled: also ask what a refiner's samples know.
    """
    study, emulator, stage = config.study, make_emulator(name, config), stage or name
    trained = train_emulator(stage, emulator, study.training, study, data.train, context)
    params = trained.state.average
    stages = [emulator]
    if name == "refiner":
        fewer = range(config.refiner.steps)
        stages = [*(make_emulator(name, config, applied=n) for n in fewer), emulator]
    found = evaluate(stage, stages, params, study, data, context)
    samples = None
    if name == "refiner" and sampled:
        samples = sample(stage, emulator, params, study, data, context)
    return Emulated(trained, found, samples)


def run(config: KsConfig, context: RunContext) -> Report:
    """Solve, train every method, roll, compare."""
    study = config.study
    data = prepare(study, context)
    results = {name: train_and_roll(name, config, data, context) for name in config.methods}
    report = Report.of(context, study.seeds)
    report.table("rollouts", [_row(name, e, data.dt) for name, e in results.items()])
    report.table("one-step error by wavenumber", [_bands(name, e) for name, e in results.items()])
    true_late = true_spectrum(study, data)
    report.table(
        "late amplitude over the truth's", [_late(n, e, true_late) for n, e in results.items()]
    )
    for claim in _claims(study, data, results, true_late):
        report.claim(claim)
    draw_all(report, study, data, results, true_late)
    report.note(
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}. The "
        "mean-curve time is the paper's: how long the correlation averaged over trajectories "
        "stays above the threshold. The other one averages each trajectory's own time."
    )
    return report


def bands(points: int) -> dict[str, slice]:
    """Wavenumbers by what refinement is about: energetic, small, and too small to be learnt."""
    half = points // 2 + 1
    edges = {"1-7": (1, 8), "12-19": (12, 20), "20 and above": (20, half)}
    return {name: slice(*edge) for name, edge in edges.items() if edge[0] < half}


def _row(name: str, e: Emulated, dt: float) -> dict:
    row: dict[str, Any] = {"method": name}
    for threshold in (0.8, 0.9):
        curve, own = high_correlation_times(e.found.correlation, dt, threshold)
        row[f"T({threshold}), mean curve"] = summarize(curve)
        row |= {f"T({threshold}), per trajectory": summarize(own)} if threshold == 0.8 else {}
    row["one-step MSE"] = summarize(e.found.one_step[:, -1])
    row["seconds to train"] = e.trained.run_seconds
    return row


def _bands(name: str, e: Emulated) -> dict:
    error = e.found.first_error[:, -1]
    cut = bands(2 * (error.shape[-1] - 1))
    return {"method": name} | {k: summarize(error[:, bins].mean(1)) for k, bins in cut.items()}


def _late(name: str, e: Emulated, true_late: np.ndarray) -> dict:
    """Late amplitudes over the truth's at a few wavenumbers."""
    shown = [k for k in (4, 8, 10, 12, 14, 15, 16, 20) if k < len(true_late)]
    ratios = {f"wavenumber {k}": summarize(e.found.late[:, k] / true_late[k]) for k in shown}
    return {"method": name} | ratios


def where_first_off(late: np.ndarray, by: float = 2.0) -> np.ndarray:
    """Lowest wavenumber `[seeds]` whose amplitude `[seeds, K]`, in the truth's, is off by a factor.

    The highest one where none is.
    """
    off = np.maximum(late, 1 / np.maximum(late, 1e-30)) >= by
    off[:, 0], off[:, -1] = False, True  # the mean says nothing
    return off.argmax(1)


def _claims(
    study: StudyConfig, data: KsData, results: dict[str, Emulated], true_late: np.ndarray
) -> list[Claim]:
    if not {"mse", "refiner"} <= set(results):
        return []
    mse, refiner = results["mse"].found, results["refiner"].found
    high = slice(20, None)
    made = [
        Claim.at_most(
            "refinement repairs high wavenumbers", source=SOURCE, threshold=1 / 7,
            values=refiner.first_error[:, -1, high].mean(1) / mse.first_error[:, -1, high].mean(1),
            expected="error at wavenumbers from 20 at most a seventh of MSE training's",
        ),
        Claim.at_most(
            "error falls along refinement", source=SOURCE, threshold=0.6,
            values=refiner.one_step[:, 1] / refiner.one_step[:, 0],
            expected="one-step MSE after one refinement against the first prediction's",
        ),
    ]  # fmt: skip
    at = min(15, len(true_late) - 1)
    ratios = {n: results[n].found.late / true_late for n in ("refiner", "mse")}
    late = {n: ratio[:, at] for n, ratio in ratios.items()}
    first = where_first_off(ratios["mse"])
    made += [
        Claim.between(
            "the refiner's late spectrum is the truth's where MSE training's first fails",
            values=ratios["refiner"][np.arange(len(first)), first], low=0.9, high=1.1,
            source=SOURCE,
            expected="amplitude within 10 % at the lowest wavenumber where MSE's is off by 2",
        ),
        Claim.between(
            "the refiner's late spectrum is the truth's", values=late["refiner"], low=0.9,
            high=1.1, source=SOURCE, expected=f"amplitude at wavenumber {at} within 10 %",
        ),
        Claim.at_least(
            "MSE training's late spectrum is not",
            values=np.maximum(late["mse"], 1 / late["mse"]), threshold=2.0, source=SOURCE,
            expected=f"off by 2 or more at wavenumber {at}",
        ),
    ]  # fmt: skip
    samples = results["refiner"].samples
    assert samples is not None
    predicted, true = reliable(study, data, refiner, samples)
    clocks = {n: high_correlation_times(results[n].found.correlation, data.dt)[0] for n in results}
    made += [
        Claim.at_least(
            "samples know how long a rollout lasts", source=SOURCE, threshold=0.5,
            values=np.array([_pearson(p, t) for p, t in zip(predicted, true, strict=True)]),
            expected=f"Pearson correlation of predicted and true horizon, {study.samples} samples",
        ),
        Claim.at_least(
            "refinement extends rollouts", values=clocks["refiner"] / clocks["mse"],
            threshold=1.05, source=SOURCE,
            expected="mean-curve T(0.8) against MSE training's at equal updates",
        ),
    ]  # fmt: skip
    if "correction" in results:
        error = results["correction"].found.first_error[:, -1, high].mean(1)
        made.append(
            Claim.at_least(
                "extra calls without noise do not repair them", source=SOURCE, threshold=0.5,
                values=error / mse.first_error[:, -1, high].mean(1),
                expected="error correction's error from wavenumber 20 at least half of MSE's",
            )
        )  # fmt: skip
    return made


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one of them does not vary."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


# Error falls along refinement from about 20 000 updates on; 48 points make them fit an hour on two
# cores and still hold the wavenumbers from 20 on, which plain training does not learn.
_TWICE_AS_LONG = replace(
    CPU, points=48, train=small_domain(1024, 36, 0, 96), test=small_domain(256, 251, 1, 96),
    training=TrainingConfig(updates=20_000),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="ks_refiner",
    summary="MSE, pushforward, error correction and PDE-Refiner on Kuramoto-Sivashinsky",
    source=SOURCE,
    config_type=KsConfig,
    presets={
        "smoke": KsConfig(study=SMOKE, refiner=RefinerConfig(min_noise_variance=1e-6)),
        "cpu": KsConfig(study=_TWICE_AS_LONG, refiner=RefinerConfig(min_noise_variance=1e-6)),
        "gpu": KsConfig(
            methods=("mse", "refiner"), study=GPU,
            refiner=RefinerConfig(min_noise_variance=1e-6, first="zeros", first_share=0.4),
        ),
        "paper": KsConfig(study=PAPER, refiner=RefinerConfig(min_noise_variance=4e-7)),
    },
    run=run,
)  # fmt: skip

"""When does refinement lengthen rollouts? Ways to spend one training budget, compared.

At small budgets one small network shares K + 1 tasks and the refiner's energetic wavenumbers are
worse than plain MSE training's, so its rollouts are shorter. Every arm here costs the same number
of gradient steps; how the comparison moves with the budget, and which wavenumbers end an
emulator's rollouts at all, is measured beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.study.look import Evaluated, high_correlation_times, kept
from jaxrl_rollouts.pde.study.train import KsData, prepare
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.colours import colour
from .ks_bottleneck import correlation_solved_from
from .ks_crossing_cells import ARMS, CrossingConfig, Result, Trainer, mse_of
from .ks_page import draw_correlation
from .presets import CPU, SMOKE

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"
OURS = "the project's question"
CURVES = ("mse", "refiner", "own_1", "tail")  # of the correlation picture
Times = tuple[np.ndarray, np.ndarray]  # mean curve's and trajectories' own, [seeds] each


def run(config: CrossingConfig, context: RunContext) -> Report:
    """Run every arm, compare with MSE training."""
    study = config.study
    data = prepare(study, context)
    trainer = Trainer(config, data, context)
    results = {name: trainer.run(name) for name in config.arms}
    small = {
        (method, share): trainer.at_budget(method, share)
        for method in ("mse", "refiner")
        for share in config.budgets
    }
    report = Report.of(context, study.seeds)
    times = {
        name: high_correlation_times(r.found.correlation, data.dt) for name, r in results.items()
    }
    report.table("arms", [_row(n, r, times[n], times["mse"]) for n, r in results.items()])
    for name in config.arms[1:]:
        report.claim(
            Claim.at_least(
                f"{name} crosses", values=times[name][0] / times["mse"][0], threshold=1.05,
                source=SOURCE, expected=f"T(0.8) over MSE training's: {ARMS[name].what}",
            )
        )  # fmt: skip
    if "tail" in results:
        _claim_tail(report, results, times)
    _draw_arms(report, times)
    draw_correlation(report, data, {n: results[n].found for n in CURVES if n in results})
    _budget(report, config, data, {n: r.found for n, r in results.items()}, small)
    if config.solved_from:
        _bottleneck(report, config, data, context, results["mse"], times["mse"])
    report.note(
        f"Every arm has {study.training.updates} gradient steps on batches of "
        f"{study.training.batch}; warm, own and tail arms spend part of them on a first model. "
        f"{len(data.test.fields)} test trajectories, {study.steps} steps of {data.dt:g}."
    )
    return report


def _high(found: Evaluated) -> np.ndarray:
    """Error `[seeds]` after one step, mean over the highest third of the wavenumbers."""
    error = found.first_error[:, -1]
    return error[:, 2 * error.shape[1] // 3 :].mean(1)


def _row(name: str, r: Result, own: Times, mse: Times) -> dict:
    said = r.refiner
    return {
        "arm": name, "what": ARMS[name].what,
        "calls": 1 if said is None else said.steps + 1,
        "finest noise variance": None if said is None else said.min_noise_variance,
        "T(0.8), mean curve": summarize(own[0]),
        "over MSE": summarize(own[0] / mse[0]),
        "T(0.8), per trajectory": summarize(own[1]),
        "over MSE, per trajectory": summarize(own[1] / mse[1]),
        "one-step MSE, first call": summarize(r.found.one_step[:, 0]),
        "one-step MSE": summarize(r.found.one_step[:, -1]),
        "error, highest third of wavenumbers": summarize(_high(r.found)),
        "seconds to train": r.seconds,
    }  # fmt: skip


def _claim_tail(report: Report, results: Mapping[str, Result], times: Mapping[str, Times]) -> None:
    report.claim(
        Claim.at_least(
            "tail keeps rollouts as long", values=times["tail"][0] / times["mse"][0],
            threshold=0.95, source=OURS, expected="T(0.8) over MSE training's",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_most(
            "tail repairs the highest wavenumbers", source=OURS, threshold=0.5,
            values=_high(results["tail"].found) / _high(results["mse"].found),
            expected="error of their highest third over MSE training's",
        )
    )  # fmt: skip


def _draw_arms(report: Report, times: Mapping[str, Times]) -> None:
    names = list(times)[::-1]
    made, (ax,) = figure(width=5.6, height=0.4 + 0.28 * len(names))
    for at, name in enumerate(names):
        ratio = times[name][0] / times["mse"][0]
        ax.plot(ratio, [at] * len(ratio), ".", color="#777777", markersize=5)
        ax.plot([ratio.mean()], [at], "|", color="#000000", markersize=14, markeredgewidth=2)
    ax.axvline(1.05, color="#D55E00", linestyle=":", linewidth=1.0)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("T(0.8) over MSE training's")
    report.picture(
        "arms", made,
        "Points are seeds, bars their mean; dotted: 1.05, what counts as crossing.",
    )  # fmt: skip


def _budget(
    report: Report, config: CrossingConfig, data: KsData, found: Mapping[str, Evaluated],
    small: Mapping[tuple[str, float], Evaluated],
) -> None:  # fmt: skip
    """What the two plain methods do with less."""
    if not config.budgets or "refiner" not in found:
        return
    updates = config.study.training.updates
    every = dict(small) | {(m, 1.0): found[m] for m in ("mse", "refiner")}
    rows = []
    for share in (*sorted(config.budgets), 1.0):
        t = {m: high_correlation_times(every[m, share].correlation, data.dt)[0]
             for m in ("mse", "refiner")}  # fmt: skip
        rows.append(
            {
                "updates": round(share * updates), "MSE T(0.8)": summarize(t["mse"]),
                "refiner T(0.8)": summarize(t["refiner"]),
                "refiner over MSE": summarize(t["refiner"] / t["mse"]),
                "MSE one-step": summarize(every["mse", share].one_step[:, -1]),
                "refiner one-step, first call": summarize(every["refiner", share].one_step[:, 0]),
                "refiner one-step": summarize(every["refiner", share].one_step[:, -1]),
            }
        )  # fmt: skip
    report.table("budget", rows)


def _bottleneck(
    report: Report, config: CrossingConfig, data: KsData, context: RunContext, mse: Result,
    plain: Times,
) -> None:  # fmt: skip
    """How long MSE training's rollouts would be if some wavenumbers were stepped truly."""
    study, emulator = config.study, mse_of(config.study)
    rows, ratios = [], []
    amplitude = np.abs(np.fft.rfft(np.asarray(data.test.fields[:, 1:, 0]))).mean((0, 1))
    for lowest in config.solved_from:

        def make(lowest: int = lowest) -> tuple:
            return (correlation_solved_from(emulator, mse.params, study, data, lowest),)

        found = kept(context, "mse", f"solved_from_{lowest}", make, ("correlation",))
        own = high_correlation_times(found["correlation"], data.dt)
        ratios.append(own[0] / plain[0])
        rows.append(
            {
                "solver from wavenumber": lowest,
                "amplitude there": float(amplitude[lowest]),
                "MSE's error there": summarize(mse.found.first_error[:, 0, lowest]),
                "T(0.8), mean curve": summarize(own[0]),
                "over MSE": summarize(ratios[-1]),
            }
        )  # fmt: skip
    report.table("which wavenumbers end rollouts", rows)
    made, (ax,) = figure(width=5.6, height=2.8)
    at = np.array(config.solved_from)
    ax.plot(at, [r.mean() for r in ratios], "o-", color=colour("mse"))
    for x, ratio in zip(at, ratios, strict=True):
        ax.plot([x] * len(ratio), ratio, ".", color=colour("mse"), alpha=0.5)
    ax.axhline(1.05, color="#D55E00", linestyle=":", linewidth=1.0)
    ax.set_xlabel("wavenumbers from here on are stepped by the true solver")
    ax.set_ylabel("T(0.8) over MSE training's")
    report.picture(
        "bottleneck", made,
        "The most that repairing high wavenumbers could gain MSE training; points are seeds. "
        f"Rollouts end at {study.steps * data.dt:g} at the latest.",
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="ks_crossing",
    summary="which way of spending a training budget makes PDE-Refiner's rollouts longer",
    source=SOURCE,
    config_type=CrossingConfig,
    presets={
        "smoke": CrossingConfig(
            study=SMOKE, refiner=RefinerConfig(min_noise_variance=1e-6),
            arms=("mse", "refiner", "warm", "own_2"), budgets=(0.5,), solved_from=(0, 4),
        ),
        # 32 points hold every wavenumber that matters: from 9 on, none changes a rollout's length.
        "cpu-long": CrossingConfig(
            study=replace(CPU, points=32, training=TrainingConfig(updates=20_000)),
            refiner=RefinerConfig(min_noise_variance=1e-6),
        ),
    },
    run=run,
)  # fmt: skip

"""PDE-Refiner on Kuramoto-Sivashinsky: what refinement does to small amplitudes and to rollouts.

One-step MSE, pushforward, error correction (a second call without noise: the control) and
PDE-Refiner with the same network, data, updates and seeds.
"""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.experiment import Experiment, RunContext
from jaxrl_rollouts.pde.generate import GenerateConfig
from jaxrl_rollouts.pde.metrics import correlation_horizons, spectrum
from jaxrl_rollouts.pde.operators import ResnetConfig
from jaxrl_rollouts.pde.refiner import RefinerConfig
from jaxrl_rollouts.pde.training import TrainingConfig
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.statistics import summarize

from .ks_pictures import draw_all
from .ks_study import Emulated, KsConfig, KsData, prepare, times, train_and_roll

SOURCE = "Lippe et al. 2023 (arXiv 2308.05732)"
BANDS = {"1-7": slice(1, 8), "12-19": slice(12, 20), "20 and above": slice(20, None)}


def run(config: KsConfig, context: RunContext) -> Report:
    """Solve, train every method, roll, compare."""
    data = prepare(config, context)
    results = {name: train_and_roll(name, config, data, context) for name in config.methods}
    report = Report.of(context, config.seeds)
    clocks = {t: times(results, data.dt, t) for t in (0.8, 0.9)}
    report.table("rollouts", [_row(name, e, clocks) for name, e in results.items()])
    true_late = _late(config, data)
    for claim in _claims(config, data, results, clocks[0.8], true_late):
        report.claim(claim)
    draw_all(report, config, data, results, true_late)
    report.note(
        f"{len(data.test.fields)} test trajectories, {config.steps} steps of {data.dt:g}. The "
        "mean-curve time is the paper's: how long the correlation averaged over trajectories "
        "stays above 0.8. The other one averages each trajectory's own time."
    )
    report.compile_seconds = sum(e.trained.compile_seconds for e in results.values())
    return report


def _row(name: str, e: Emulated, clocks: dict) -> dict:
    row = {"method": name, "one-step MSE": summarize(e.one_step[:, -1])}
    row |= {f"T(0.8), {kind}": summarize(clocks[0.8][name][i])
            for i, kind in enumerate(("mean curve", "per trajectory"))}  # fmt: skip
    row["T(0.9), mean curve"] = summarize(clocks[0.9][name][0])
    for band, bins in BANDS.items():
        part = e.first_error[:, bins]
        if part.size:
            row[f"error at wavenumbers {band}"] = summarize(part.mean(1))
    row["seconds to train"] = e.trained.run_seconds
    return row


def _late(config: KsConfig, data: KsData) -> np.ndarray:
    """True mean amplitudes over the last quarter of the rollout, `[K]`."""
    late = data.test.fields[:, 1 + 3 * config.steps // 4 : config.steps + 1]
    found = np.asarray(spectrum(late))
    return found.reshape(-1, found.shape[-1]).mean(0)


def reliable(config: KsConfig, data: KsData, e: Emulated) -> tuple[np.ndarray, np.ndarray]:
    """Predicted (from samples alone) and true horizons, `[seeds, sampled]` each."""
    assert e.cross is not None
    predicted = [correlation_horizons(c, data.dt) for c in e.cross]
    own = [correlation_horizons(c[:, : config.sampled], data.dt) for c in e.correlation]
    return np.array(predicted), np.array(own)


def _claims(
    config: KsConfig, data: KsData, results: dict[str, Emulated], clocks: dict,
    true_late: np.ndarray,
) -> list[Claim]:  # fmt: skip
    if not {"mse", "refiner"} <= set(results):
        return []
    mse, refiner = results["mse"], results["refiner"]
    high = BANDS["20 and above"]
    made = [
        Claim.at_most(
            "refinement repairs high wavenumbers", source=SOURCE, threshold=1 / 7,
            values=refiner.first_error[:, high].mean(1) / mse.first_error[:, high].mean(1),
            expected="error at wavenumbers from 20 at most a seventh of MSE training's",
        ),
        Claim.at_most(
            "error falls along refinement", source=SOURCE, threshold=0.6,
            values=refiner.one_step[:, 1] / refiner.one_step[:, 0],
            expected="one-step MSE after one refinement against the first prediction's",
        ),
    ]  # fmt: skip
    at = min(15, len(true_late) - 1)
    for name, low, top in (("refiner", 0.9, 1.1), ("mse", None, None)):
        ratio = results[name].last_spectrum[:, at] / true_late[at]
        if low is not None and top is not None:
            claim = Claim.between(
                "the refiner's late spectrum is the truth's",
                values=ratio,
                low=low,
                high=top,
                source=SOURCE,
                expected=f"amplitude at wavenumber {at} within 10 %",
            )
        else:
            claim = Claim.at_least(
                "MSE training's late spectrum is not",
                values=np.maximum(ratio, 1 / ratio),
                threshold=2.0,
                source=SOURCE,
                expected=f"off by 2 or more at wavenumber {at}",
            )
        made.append(claim)
    predicted, true = reliable(config, data, refiner)
    made.append(
        Claim.at_least(
            "samples know how long a rollout lasts", source=SOURCE, threshold=0.5,
            values=np.array([_pearson(p, t) for p, t in zip(predicted, true, strict=True)]),
            expected=f"Pearson correlation of predicted and true horizon, {config.samples} samples",
        )
    )  # fmt: skip
    made.append(
        Claim.at_least(
            "refinement extends rollouts",
            values=clocks["refiner"][0] / clocks["mse"][0],
            threshold=1.05,
            source=SOURCE,
            expected="mean-curve T(0.8) against MSE training's at equal updates",
        )
    )
    return made


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one of them does not vary."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _solved(trajectories: int, frames: int, seed: int, points: int = 128) -> GenerateConfig:
    """Length 22, frames 0.8 apart, after 80 time units."""
    return GenerateConfig(
        trajectories=trajectories, points=points, extent=(22.0, 22.0), dt=(0.8, 0.8),
        frames=frames, burn_in=100, substeps=16, seed=seed,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="ks_refiner",
    summary="MSE, pushforward, error correction and PDE-Refiner on Kuramoto-Sivashinsky",
    source=SOURCE,
    config_type=KsConfig,
    presets={
        "smoke": KsConfig(
            seeds=2, train=_solved(16, 12, 0, 64), test=_solved(8, 13, 1, 64),
            net=ResnetConfig(width=8, blocks=1, dilations=(1, 2, 1), embedding=16),
            training=TrainingConfig(updates=20, batch=8, warmup=2, per_iteration=10),
            refiner=RefinerConfig(min_noise_variance=1e-6, residual_scale=0.2),
            steps=12, samples=3, sampled=4,
        ),
        "cpu": KsConfig(
            seeds=4, train=_solved(1024, 36, 0), test=_solved(256, 251, 1),
            refiner=RefinerConfig(min_noise_variance=1e-6, residual_scale=0.2),
        ),
    },
    run=run,
)  # fmt: skip

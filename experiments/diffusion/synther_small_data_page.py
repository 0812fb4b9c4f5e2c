"""Tables, claims and pictures of `synther_small_data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.draw import curve_with_band
from .synther_quality import Quality
from .synther_small_data_cells import Arm, Config, Result

SOURCE = "Lu et al. 2023 (SynthER), arXiv 2303.06614, section 4.1"
SHADES = {"rows": "#777777", "samples": "#0072B2", "rows with noise": "#E69F00"}
Results = Mapping[Arm, Result]
Qualities = Mapping[tuple[float, str], list[Quality]]


def make_report(
    report: Report, config: Config, setting: Setting, results: Results, quality: Qualities
) -> None:
    """Everything there is to say."""
    played = float(behaviour(setting).mean())
    report.table("returns", _returns(config, setting, results, played))
    report.table("quality", [_quality(*key, found) for key, found in quality.items()])
    _return_claims(report, config, results)
    _quality_claims(report, config, quality)
    _draw_returns(report, config, results, played)
    _draw_quality(report, config, quality)
    report.note(
        f"{config.dataset}, in {setting.env.name} ({setting.env.version}). Every seed has rows, a "
        f"diffusion model and samples of its own: {config.samples} samples, "
        f"{config.synther.training.updates} updates, {config.synther.sampler.steps} sampler steps; "
        f"then {config.updates} updates of TD3+BC."
    )
    report.note(
        "Errors are of the next observation against the simulator, in squared deviations of the "
        f"rows; 'rows with noise' have {config.noise:g} deviations added to both observations."
    )


def _returns(
    config: Config, setting: Setting, results: Results, played: float
) -> list[dict[str, Any]]:
    name, rows = setting.dataset.name, []
    for arm, result in results.items():
        row: dict[str, Any] = {"data": arm.name, "return": summarize(result.returns)}
        score = normalised_score(name, result.returns)
        if score is not None:
            row["score"] = summarize(score)
        row["over the behaviour"] = summarize(result.returns - played)
        if arm.kind != "rows":
            row["gained"] = summarize(result.returns - results[Arm(arm.share, "rows")].returns)
        rows.append(row)
    return rows


def _quality(share: float, kind: str, found: list[Quality]) -> dict[str, Any]:
    columns = {name: summarize([getattr(q, name) for q in found]) for name in Quality._fields}
    names = {"error": "error", "median": "median error"}
    return {"share, %": 100 * share, "rows": kind} | {
        names.get(name, name): value for name, value in columns.items()
    }


def _return_claims(report: Report, config: Config, results: Results) -> None:
    def returns(share: float, kind: str) -> np.ndarray:
        return results[Arm(share, kind)].returns

    for share in config.shares[:-1]:
        for other, what in (
            ("rows", f"up-sampling {100 * share:g} % of the data helps"),
            ("rows with noise", f"samples of {100 * share:g} % do better than rows with noise"),
        ):
            report.claim(
                Claim.at_least(
                    what, source=SOURCE, threshold=0.0, expected="a higher return, seed by seed",
                    values=returns(share, "samples") - returns(share, other),
                )
            )  # fmt: skip
    rows, samples = (returns(config.shares[-1], kind) for kind in ("rows", "samples"))
    scale = max(abs(float(rows.mean())), 1e-6)
    report.claim(
        Claim.between(
            f"replacing {100 * config.shares[-1]:g} % of the data costs nothing", source=SOURCE,
            values=(samples - rows) / scale, low=-0.1, high=0.1,
            expected="return on samples minus that on rows, as a share of the latter",
        )
    )  # fmt: skip


def _quality_claims(report: Report, config: Config, quality: Qualities) -> None:
    def of(share: float, kind: str, name: str) -> np.ndarray:
        return np.array([getattr(q, name) for q in quality[share, kind]])

    most = config.shares[-1]
    for name, least in (("marginal", 0.95), ("correlation", 0.95)):
        report.claim(
            Claim.at_least(
                f"samples have the data's {name}s", values=of(most, "samples", name),
                threshold=least, source=SOURCE,
                expected=f"{name} score of samples from {100 * most:g} %",
            )
        )  # fmt: skip
    ratio = {
        name: np.stack(
            [of(s, "samples", name) / of(s, "rows with noise", name) for s in config.shares], 1
        )
        for name in ("novelty", "error")
    }
    report.claim(
        Claim.at_least(
            "samples are further from the data than rows with noise", source=SOURCE,
            values=ratio["novelty"], threshold=1.0,
            expected=f"distance to the nearest row over that of rows with {config.noise:g} "
            "deviations of noise",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_most(
            "samples obey the dynamics better than rows with noise", source=SOURCE,
            values=ratio["error"], threshold=1.0,
            expected="error in the simulator over that of rows with noise",
        )
    )  # fmt: skip


def _draw_returns(report: Report, config: Config, results: Results, played: float) -> None:
    made, axes = figure(1, len(config.shares), sharey=True,
                        titles=[f"{100 * s:g} % of the data" for s in config.shares])  # fmt: skip
    for ax, share in zip(axes, config.shares, strict=True):
        for kind, shade in SHADES.items():
            at, values = results[Arm(share, kind)].trained.history.curve("return")
            steps = np.asarray(at) * config.per_iteration
            curve_with_band(ax, steps, values.T, kind, colour_name=shade)
        ax.axhline(played, color="black", linestyle=":", linewidth=1.0, label="behaviour")
        ax.set_xlabel("gradient steps")
    axes[0].set_ylabel("return")
    legend(made, axes)
    report.picture(
        "returns", made, "TD3+BC on a share of the data, and on samples or noisy rows in its place"
    )


def _draw_quality(report: Report, config: Config, quality: Qualities) -> None:
    made, axes = figure(1, 2, height=2.9)
    at = 100 * np.asarray(config.shares)
    for kind in ("samples", "rows with noise"):
        for ax, name in zip(axes, ("novelty", "error"), strict=True):
            values = [[getattr(q, name) for q in quality[share, kind]] for share in config.shares]
            curve_with_band(ax, at, np.array(values).T, kind, colour_name=SHADES[kind])
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("share of the data, %")
    axes[0].set_ylabel("distance to the nearest row")
    axes[1].set_ylabel("dynamics error")
    legend(made, axes)
    report.picture(
        "quality", made, "Left: how new samples are. Right: how wrong, in the true simulator."
    )

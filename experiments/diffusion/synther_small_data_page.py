"""Tables, claims and pictures of `synther_small_data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl_rollouts.experiments.kit.claims import claims
from jaxrl_rollouts.experiments.kit.draw import curve_with_band, curves, level, picture
from jaxrl_rollouts.experiments.kit.grid import Grid, stacked
from jaxrl_rollouts.offline.data import normalised_score
from jaxrl_rollouts.offline.study.model_based import Setting, behaviour
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .synther_small_data_cells import JUDGED, KINDS, Config

SOURCE = "Lu et al. 2023 (SynthER), arXiv 2303.06614, section 4.1"
SHADES = {"rows": "#777777", "samples": "#0072B2", "rows with noise": "#E69F00"}
QUALITY = {name: name for name in ("marginal", "correlation", "novelty", "error")}
QUALITY["median error"] = "median"
RETURNS = "TD3+BC on a share of the data, and on samples or noisy rows in its place"
JUDGEMENT = "Left: how new samples are. Right: how wrong, in the true simulator."
Grids = Mapping[float, Grid]  # cells by kind, by share of the data


def page(report: Report, config: Config, setting: Setting, grids: Grids) -> None:
    """Everything there is to say."""
    earned = float(behaviour(setting).mean())
    report.table("returns", returns(setting.dataset.name, grids, earned))
    quality = [
        {"share, %": 100 * share, "rows": kind}
        | {column: summarize(grid[kind][name]) for column, name in QUALITY.items()}
        for share, grid in grids.items()
        for kind in JUDGED
    ]
    report.table("quality", quality)
    return_claims(report, config, grids)
    quality_claims(report, config, grids)
    draw(report, config, grids, earned)
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


def returns(dataset: str, grids: Grids, earned: float) -> list[dict[str, Any]]:
    """Of every arm, beside the behaviour's and those on plain rows."""
    table = []
    for share, grid in grids.items():
        for kind, cell in grid.items():
            row: dict[str, Any] = {"data": f"{100 * share:g} %" + KINDS[kind]}
            row["return"] = summarize(cell["return"])
            score = normalised_score(dataset, cell["return"])
            if score is not None:
                row["score"] = summarize(score)
            row["over the behaviour"] = summarize(cell["return"] - earned)
            if kind != "rows":
                row["gained"] = summarize(cell["return"] - grid["rows"]["return"])
            table.append(row)
    return table


def return_claims(report: Report, config: Config, grids: Grids) -> None:
    claim = claims(report, SOURCE)
    *few, most = config.shares
    for share in few:
        earned = {kind: cell["return"] for kind, cell in grids[share].items()}
        percent, means = f"{100 * share:g} %", "a higher return, seed by seed"
        text, gain = f"up-sampling {percent} of the data helps", earned["samples"] - earned["rows"]
        claim(text, gain, at_least=0.0, means=means)
        text = f"samples of {percent} do better than rows with noise"
        gain = earned["samples"] - earned["rows with noise"]
        claim(text, gain, at_least=0.0, means=means)
    rows, samples = (grids[most][kind]["return"] for kind in ("rows", "samples"))
    claim(
        f"replacing {100 * most:g} % of the data costs nothing",
        (samples - rows) / max(abs(float(rows.mean())), 1e-6),
        between=(-0.1, 0.1),
        means="return on samples minus that on rows, as a share of the latter",
    )


def quality_claims(report: Report, config: Config, grids: Grids) -> None:
    claim, most = claims(report, SOURCE), config.shares[-1]
    for name in ("marginal", "correlation"):
        means = f"{name} score of samples from {100 * most:g} %"
        values = grids[most]["samples"][name]
        claim(f"samples have the data's {name}s", values, at_least=0.95, means=means)
    samples, noisy = ([grids[s][kind] for s in config.shares] for kind in JUDGED)
    further, error = (stacked(samples, n) / stacked(noisy, n) for n in ("novelty", "error"))
    text = "samples are further from the data than rows with noise"
    means = (
        f"distance to the nearest row over that of rows with {config.noise:g} deviations of noise"
    )
    claim(text, further, at_least=1.0, means=means)
    text = "samples obey the dynamics better than rows with noise"
    means = "error in the simulator over that of rows with noise"
    claim(text, error, at_most=1.0, means=means)


def draw(report: Report, config: Config, grids: Grids, earned: float) -> None:
    titles = [f"{100 * share:g} % of the data" for share in grids]
    with picture(report, "returns", RETURNS, titles=titles, sharey=True) as axes:
        for ax, grid in zip(axes, grids.values(), strict=True):
            for kind, shade in SHADES.items():
                curves(ax, {kind: grid[kind]}, "return", colour_name=shade)
            level(ax, earned, "behaviour", linestyle=":", linewidth=1.0)
        axes[0].set_ylabel("return")
    at = 100 * np.asarray(config.shares)
    with picture(report, "quality", JUDGEMENT, titles=("", ""), height=2.9) as axes:
        for kind in JUDGED:
            cells = [grids[share][kind] for share in config.shares]
            for ax, name in zip(axes, ("novelty", "error"), strict=True):
                curve_with_band(ax, at, stacked(cells, name), kind, colour_name=SHADES[kind])
                ax.set(xscale="log", yscale="log", xlabel="share of the data, %")
        axes[0].set_ylabel("distance to the nearest row")
        axes[1].set_ylabel("dynamics error")

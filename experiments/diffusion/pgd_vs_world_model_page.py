"""Tables, claims and pictures of `pgd_vs_world_model`: the paper's sentences, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.experiments.kit.draw import curve_with_band
from jaxrl_rollouts.offline.synthetic.paths import PathQuality, log_likelihood
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm

from ..catalogue import LISTINGS
from .pgd_vs_world_model_cells import Case, Config, Source

SOURCE = LISTINGS["pgd_vs_world_model"].source
OURS = "our own measurement at this size"
LENGTHS = (4, 8, 16, 32, 64, 128)
SHADES = {
    "ensemble": "#000000",
    "unguided": "#777777",
    "published": "#D55E00",
    "published, noised": "#E69F00",
    "calibrated": "#0072B2",
    "calibrated, joint": "#56B4E9",
}
TRADEOFF = (
    "Right is nearer to the policy, down is nearer to the truth. Numbers are coefficients; the "
    "ensemble's are rollout lengths, its error the mean over that many steps."
)
OVER_TIME = (
    "Above: every step by itself. Below: how far the path is from where its own actions lead."
)
Sources = Mapping[Source, PathQuality]
Results = Mapping[str, tuple[Case, Sources]]


def crossing(ensemble: np.ndarray, other: np.ndarray) -> np.ndarray:
    """First step, from 1, of `[seeds, T]` errors above the mean of the other's `[seeds, T']`.

    `[seeds]`, infinite where there is none.
    """
    above = ensemble > other.mean(1, keepdims=True)
    return np.where(above.any(1), above.argmax(1) + 1.0, np.inf)


def coefficient_at(gap: np.ndarray, at: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """The coefficient at which a falling curve of gaps reaches `gap`, interpolated in logarithms.

    What follows the lowest point of `gaps` `[seeds, points]`, at coefficients `at`, does not count;
    `gap` and the answer, which lies within `at`, are `[seeds]`.
    """
    coefficients = []
    for wanted, curve in zip(gap, gaps, strict=True):
        falling = slice(0, int(curve.argmin()) + 1)
        y, x = np.log(curve[falling])[::-1], np.log(at[falling])[::-1]
        coefficients.append(np.exp(np.interp(np.log(wanted), y, x)))
    return np.array(coefficients)


def three(config: Config, sources: Sources) -> tuple[PathQuality, ...]:
    """The ensemble, unguided diffusion, and the published rule at the coefficient of reference."""
    guided = Source("published", config.steps, config.reference)
    return tuple(sources[s] for s in (Source("ensemble"), Source("unguided", config.steps), guided))


def page(report: Report, config: Config, results: Results) -> None:
    """Everything there is to say."""
    crossings = []
    for name, (case, sources) in results.items():
        report.table(f"{name}: sources", source_rows(config, sources))
        report.table(f"{name}: rollout lengths", length_rows(config, sources))
        crossings += crossing_rows(name, config, sources)
        common_claims(report, config, name, sources)
        report.number(f"{name}: return of the target policy", case.target.returns)
    report.table("where the ensemble's error passes guided diffusion's", crossings)
    for name, add_claims in (("broad", broad_claims), ("narrow", narrow_claims)):
        if name in results:
            add_claims(report, config, results[name][1])
    draw_tradeoff(report, config, results)
    draw_time(report, config, results)
    for name, (case, _) in results.items():
        report.note(
            f"{name}: {case.config.data}, {len(case.data.rewards)} rows, in {case.env.name} "
            f"({case.env.version})."
        )
    report.note(
        "Errors are mean squares per observation entry in deviations of the data, of every step "
        "repeated in the true simulator; what is 100 deviations off or more counts as that."
    )


def source_rows(config: Config, sources: Sources) -> list[dict[str, Any]]:
    rows = []
    for source, measured in sources.items():
        steps, window = source.steps or None, measured.first(config.horizon)
        mean, along = window.mean(), window.open_loop[:, -1]
        row = {"paths": source.rule, "sampler steps": steps}
        row |= {"coefficient": source.coefficient if steps else None, "gap": mean.gap}
        row |= {"log-likelihood": log_likelihood(mean.gap), "error": mean.error}
        rows.append(row | {"median error": mean.median, "open loop, last step": along})
    return rows


def length_rows(config: Config, sources: Sources) -> list[dict[str, Any]]:
    """Errors by the length of rollouts; None where a window has no such step."""
    rows = []
    for length in sorted({n for n in LENGTHS if n <= config.long_horizon} | {config.horizon}):
        rolled, plain, pulled = (m.first(length) for m in three(config, sources))
        ensemble, unguided, guided = (m.mean().error for m in (rolled, plain, pulled))
        row = {"length": length, "ensemble": ensemble, "unguided": unguided, "guided": guided}
        row |= {"ensemble / guided": ensemble / guided}
        row["ensemble, open loop"] = rolled.open_loop[:, -1]
        row["guided, open loop"] = pulled.open_loop[:, -1]
        if length > config.horizon:  # guided diffusion's mean over its window is in the ratio only
            row |= dict.fromkeys(("unguided", "guided", "guided, open loop"))
        rows.append(row)
    return rows


def crossing_rows(name: str, config: Config, sources: Sources) -> list[dict[str, Any]]:
    """From which step on the ensemble is worse than each sampler."""
    ensemble, rows = sources[Source("ensemble")], []
    for source, m in sources.items():
        if source.steps:
            at = crossing(ensemble.error, m.error)
            middle = float(np.median(at))
            row = {"case": name, "paths": source.rule, "sampler steps": source.steps}
            row |= {"coefficient": source.coefficient, "gap": m.mean().gap}
            row["from step"] = middle if np.isfinite(middle) else f"not by {config.long_horizon}"
            rows.append(row | {"seeds that cross": int(np.isfinite(at).sum())})
    return rows


def common_claims(report: Report, config: Config, name: str, sources: Sources) -> None:
    """The paper's three sentences."""
    claim = claims(report, SOURCE)
    qualities = (m.first(config.horizon).mean() for m in three(config, sources))
    ensemble, unguided, guided = qualities
    about = f"at coefficient {config.reference:g} and {config.steps} steps"
    text = f"{name}: guidance brings the actions to the policy"
    means = f"squared distance to its actions, a share of unguided diffusion's, {about}"
    share = 0.16 if name == "broad" else 0.6
    claim(text, guided.gap / unguided.gap, at_most=share, means=means)
    text, means = (
        f"{name}: guidance costs no dynamics error",
        f"error over unguided diffusion's, {about}",
    )
    claim(text, guided.error / unguided.error, at_most=1.15, means=means)
    text = f"{name}: guided diffusion is a third truer than the ensemble"
    means = f"error over the ensemble's, rollouts of {config.horizon} steps, {about}"
    claim(text, guided.error / ensemble.error, at_most=0.65, means=means)


def published(sources: Sources, steps: int) -> list[Source]:
    """Those of the published rule, by rising coefficient."""
    return [s for s in sources if s.rule == "published" and s.steps == steps]


def broad_claims(report: Report, config: Config, sources: Sources) -> None:
    claim, steps, many_steps = claims(report, SOURCE), config.steps, config.many_steps
    gaps = {source: m.mean().gap for source, m in sources.items()}
    text = "broad: without guidance the actions are the behaviour's"
    means = "squared distance to the policy's actions over that of the data's own"
    values = gaps[Source("unguided", steps)] / gaps[Source("data")]
    claim(text, values, at_least=0.9, means=means)
    few = published(sources, steps)
    strongest, middle = few[-1], min(few, key=lambda s: abs(s.coefficient - 4.0))
    if strongest.coefficient >= 8.0:
        means = f"gap at coefficient {strongest.coefficient:g} over that at {middle.coefficient:g}"
        ratio = gaps[strongest] / gaps[middle]
        claim("broad: the published rule overshoots", ratio, at_least=2.0, means=means, source=OURS)
    for source in sources:
        denoised = source._replace(rule="published")
        if source.rule == "published, noised" and denoised in sources:
            text = f"broad: the denoised reference is the better one, {source.coefficient:g}"
            means = "gap with the gradient at the noised sample over that at the denoised one"
            claim(text, gaps[source] / gaps[denoised], at_least=1.5, means=means)
    if not many_steps:
        return
    plain, finer = (sources[Source("unguided", n)].mean().error for n in (steps, many_steps))
    text = "broad: more sampler steps, less error"
    means = f"unguided error at {steps} steps over that at {many_steps}"
    claim(text, plain / finer, between=(1.4, 2.0), means=means, source=OURS)
    many = published(sources, many_steps)
    if len(many) > 1:
        at, curves = np.array([s.coefficient for s in many]), np.stack([gaps[s] for s in many], 1)
        same = coefficient_at(gaps[Source("published", steps, config.reference)], at, curves)
        text = "broad: coefficient times steps is the strength"
        means = "the product of both at equal gap, over that at the other steps"
        values = same * many_steps / (config.reference * steps)
        claim(text, values, between=(0.5, 2.0), means=means, source=OURS)


def narrow_claims(report: Report, config: Config, sources: Sources) -> None:
    claim, horizon = claims(report, OURS), config.horizon
    ensemble, _, guided = (m.first(horizon).error for m in three(config, sources))
    text = "narrow: the ensemble is lost where guided diffusion is not"
    means = f"error over guided diffusion's, rollouts of {horizon} steps"
    claim(text, ensemble.mean(1) / guided.mean(1), at_least=50.0, means=means)
    means = f"error at step {horizon} over that at the first"
    text, growth = "narrow: the ensemble's error explodes", ensemble[:, -1] / ensemble[:, 0]
    claim(text, growth, at_least=100.0, means=means)
    text, growth = "narrow: guided diffusion's error does not grow", guided[:, -1] / guided[:, 0]
    claim(text, growth, at_most=2.0, means=means)
    many = published(sources, config.many_steps)
    if many:
        text = "narrow: strong guidance out of the data costs dynamics error"
        about = f"{config.many_steps} steps and coefficient {many[-1].coefficient:g}"
        pulled, plain = (sources[s].mean() for s in (many[-1], Source("unguided", many[-1].steps)))
        means = f"error at {about} over unguided diffusion's"
        claim(text, pulled.error / plain.error, at_least=2.0, means=means)


def tradeoff(ax: Axes, config: Config, sources: Sources) -> None:
    """Error over log-likelihood: a line per rule, the ensemble by length."""

    def place(source: Source, steps: int = config.horizon) -> tuple[float, float]:
        mean = sources[source].first(steps).mean()
        return float(iqm(log_likelihood(mean.gap))), float(iqm(mean.error))

    def note(text: str, point: tuple[float, float], offset: tuple[int, int], **style: Any) -> None:
        ax.annotate(text, point, offset, textcoords="offset points", fontsize=6, **style)

    for rule, steps, _ in config.sweeps():
        line = [s for s in sources if s.rule == rule and s.steps == steps]
        points, style = [place(s) for s in line], "-" if steps == config.steps else "--"
        unguided = place(Source("unguided", steps))
        path, label = zip(unguided, *points, strict=True), f"{rule}, {steps} steps"
        ax.plot(*path, style, marker=".", color=SHADES[rule], label=label)
        for source, point in zip(line, points, strict=True):
            note(f"{source.coefficient:g}", point, (2, 3), color=SHADES[rule])
        ax.plot(*unguided, "o", color=SHADES["unguided"], zorder=3, label="unguided")
    for length in (n for n in LENGTHS if n <= config.long_horizon):
        point = place(Source("ensemble"), length)
        ax.plot(*point, "k^", label="ensemble, by length", markersize=5)
        note(f"{length}", point, (4, -2))
    known = place(Source("data"))[0]
    ax.axvline(known, color="#777777", linestyle=":", linewidth=1.0, label="the data's actions")
    ax.set(yscale="log", xlabel="log-likelihood under the policy")


def draw_tradeoff(report: Report, config: Config, results: Results) -> None:
    with picture(report, "tradeoff", TRADEOFF, titles=[*results], width=3.9, height=3.2) as axes:
        for ax, (_, sources) in zip(axes, results.values(), strict=True):
            tradeoff(ax, config, sources)
        axes[0].set_ylabel("dynamics error of a step")


def draw_time(report: Report, config: Config, results: Results) -> None:
    count = len(results)
    panels = {"titles": [*results, *[""] * count], "columns": count, "sharex": True, "height": 2.3}
    with picture(report, "over_time", OVER_TIME, **panels) as axes:
        for column, (_, sources) in enumerate(results.values()):
            labels = "ensemble", "unguided", f"published, {config.reference:g}"
            lines = dict(zip(labels, three(config, sources), strict=True))
            if config.calibrated:
                soft = Source(
                    "calibrated", config.steps, config.calibrated[len(config.calibrated) // 2]
                )
                lines[f"calibrated, {soft.coefficient:g}"] = sources[soft]
            for ax, kind in zip(axes[column::count], ("error", "open_loop"), strict=True):
                for label, quality in lines.items():
                    values, shade = getattr(quality, kind), SHADES[label.split(",")[0]]
                    steps = np.arange(1, values.shape[1] + 1)
                    curve_with_band(ax, steps, values, label, colour_name=shade)
                ax.set(xscale="log", yscale="log", xlabel="step" if kind == "open_loop" else "")
        axes[0].set_ylabel("error of a step")
        axes[count].set_ylabel("error, open loop")

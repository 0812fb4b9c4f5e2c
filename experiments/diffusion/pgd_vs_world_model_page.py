"""Tables, claims and pictures of `pgd_vs_world_model`: the paper's sentences, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.experiments.kit.claims import claims
from jaxrl_rollouts.experiments.kit.draw import curve_with_band
from jaxrl_rollouts.offline.synthetic.paths import PathQuality, log_likelihood
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm, summarize

from .pgd_vs_world_model_cells import Case, Config, Source

SOURCE = "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 5"
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
    """First step, from 1, at which an ensemble's error is above the other's mean over its window.

    Args:
        ensemble, other: `[seeds, T]` and `[seeds, T']`.

    Returns:
        `[seeds]`; infinite where it never is.
    """
    above = ensemble > other.mean(1, keepdims=True)
    return np.where(above.any(1), above.argmax(1) + 1.0, np.inf)


def coefficient_at(gap: np.ndarray, at: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """The coefficient at which a falling curve of gaps reaches `gap`, interpolated in logarithms.

    Args:
        gap: `[seeds]`, wanted.
        at: `[points]`, coefficients, ascending.
        gaps: `[seeds, points]`; what follows a curve's lowest point does not count.

    Returns:
        `[seeds]`, within `at`.
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
    if "broad" in results:
        broad_claims(report, config, results["broad"][1])
    if "narrow" in results:
        narrow_claims(report, config, results["narrow"][1])
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
        m, steps = measured.first(config.horizon), source.steps or None
        row: dict[str, Any] = {"paths": source.rule, "sampler steps": steps}
        row["coefficient"] = source.coefficient if steps else None
        values = {
            "gap": m.gap.mean(1),
            "log-likelihood": log_likelihood(m.gap.mean(1)),
            "error": m.error.mean(1),
            "median error": m.median.mean(1),
            "open loop, last step": m.open_loop[:, -1],
        }
        rows.append(row | {column: summarize(value) for column, value in values.items()})
    return rows


def length_rows(config: Config, sources: Sources) -> list[dict[str, Any]]:
    """Errors by the length of rollouts; None where a window has no such step."""
    ensemble, unguided, guided = three(config, sources)
    rows = []
    for length in sorted({n for n in LENGTHS if n <= config.long_horizon} | {config.horizon}):
        one, plain, pulled = (m.error[:, :length].mean(1) for m in (ensemble, unguided, guided))
        inside = length <= config.horizon
        values = {
            "ensemble": one,
            "unguided": plain if inside else None,
            "guided": pulled if inside else None,
            # Beyond its window guided diffusion is taken at its window's mean, for the ratio only.
            "ensemble / guided": one / pulled,
            "ensemble, open loop": ensemble.open_loop[:, length - 1],
            "guided, open loop": guided.open_loop[:, length - 1] if inside else None,
        }
        summaries = {k: None if value is None else summarize(value) for k, value in values.items()}
        rows.append({"length": length} | summaries)
    return rows


def crossing_rows(name: str, config: Config, sources: Sources) -> list[dict[str, Any]]:
    """From which step on the ensemble is worse than each sampler."""
    ensemble, rows = sources[Source("ensemble")], []
    for source, m in sources.items():
        if not source.steps:
            continue
        at = crossing(ensemble.error, m.error)
        middle = float(np.median(at))
        row = {"case": name, "paths": source.rule, "sampler steps": source.steps}
        row |= {"coefficient": source.coefficient, "gap": summarize(m.gap.mean(1))}
        row["from step"] = middle if np.isfinite(middle) else f"not by {config.long_horizon}"
        rows.append(row | {"seeds that cross": int(np.isfinite(at).sum())})
    return rows


def common_claims(report: Report, config: Config, name: str, sources: Sources) -> None:
    """The paper's three sentences."""
    claim = claims(report, SOURCE)
    ensemble, unguided, guided = three(config, sources)
    about = f"at coefficient {config.reference:g} and {config.steps} steps"
    text = f"{name}: guidance brings the actions to the policy"
    gap, share = guided.gap.mean(1) / unguided.gap.mean(1), 0.16 if name == "broad" else 0.6
    means = f"squared distance to its actions, a share of unguided diffusion's, {about}"
    claim(text, gap, at_most=share, means=means)
    text, error = f"{name}: guidance costs no dynamics error", guided.error.mean(1)
    means = f"error over unguided diffusion's, {about}"
    claim(text, error / unguided.error.mean(1), at_most=1.15, means=means)
    text = f"{name}: guided diffusion is a third truer than the ensemble"
    means = f"error over the ensemble's, rollouts of {config.horizon} steps, {about}"
    rolled = ensemble.first(config.horizon).error.mean(1)
    claim(text, error / rolled, at_most=0.65, means=means)


def published(sources: Sources, steps: int) -> list[Source]:
    """Those of the published rule, by rising coefficient."""
    return [s for s in sources if s.rule == "published" and s.steps == steps]


def broad_claims(report: Report, config: Config, sources: Sources) -> None:
    claim, steps, many_steps = claims(report, SOURCE), config.steps, config.many_steps
    gaps = {source: m.gap.mean(1) for source, m in sources.items()}
    text = "broad: without guidance the actions are the behaviour's"
    means = "squared distance to the policy's actions over that of the data's own"
    values = gaps[Source("unguided", steps)] / gaps[Source("data")]
    claim(text, values, at_least=0.9, means=means)
    few = published(sources, steps)
    strongest, middle = few[-1], min(few, key=lambda s: abs(s.coefficient - 4.0))
    if strongest.coefficient >= 8.0:
        high, low = (f"{s.coefficient:g}" for s in (strongest, middle))
        text, means = (
            "broad: the published rule overshoots",
            f"gap at coefficient {high} over that at {low}",
        )
        claim(text, gaps[strongest] / gaps[middle], at_least=2.0, means=means, source=OURS)
    for source in sources:
        denoised = source._replace(rule="published")
        if source.rule == "published, noised" and denoised in sources:
            text = f"broad: the denoised reference is the better one, {source.coefficient:g}"
            means = "gap with the gradient at the noised sample over that at the denoised one"
            claim(text, gaps[source] / gaps[denoised], at_least=1.5, means=means)
    if not many_steps:
        return
    plain = [sources[Source("unguided", n)].error.mean(1) for n in (steps, many_steps)]
    text = "broad: more sampler steps, less error"
    means = f"unguided error at {steps} steps over that at {many_steps}"
    claim(text, plain[0] / plain[1], between=(1.4, 2.0), means=means, source=OURS)
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
    ensemble, _, guided = three(config, sources)
    rolled = ensemble.first(horizon).error
    text = "narrow: the ensemble is lost where guided diffusion is not"
    means = f"error over guided diffusion's, rollouts of {horizon} steps"
    claim(text, rolled.mean(1) / guided.error.mean(1), at_least=50.0, means=means)
    means = f"error at step {horizon} over that at the first"
    text = "narrow: the ensemble's error explodes"
    claim(text, rolled[:, -1] / rolled[:, 0], at_least=100.0, means=means)
    text = "narrow: guided diffusion's error does not grow"
    claim(text, guided.error[:, -1] / guided.error[:, 0], at_most=2.0, means=means)
    many = published(sources, config.many_steps)
    if many:
        strongest, plain = many[-1], sources[Source("unguided", config.many_steps)]
        text = "narrow: strong guidance out of the data costs dynamics error"
        about = f"{config.many_steps} steps and coefficient {strongest.coefficient:g}"
        means = f"error at {about} over unguided diffusion's"
        values = sources[strongest].error.mean(1) / plain.error.mean(1)
        claim(text, values, at_least=2.0, means=means)


def tradeoff(ax: Axes, config: Config, sources: Sources) -> None:
    """Error over log-likelihood: a line per rule, the ensemble by length."""

    def place(source: Source, steps: int) -> tuple[float, float]:
        m = sources[source].first(steps)
        return float(iqm(log_likelihood(m.gap.mean(1)))), float(iqm(m.error.mean(1)))

    for index, (rule, steps, _) in enumerate(config.sweeps()):
        line = [s for s in sources if s.rule == rule and s.steps == steps]
        points = [place(s, config.horizon) for s in [Source("unguided", steps), *line]]
        x, y = zip(*points, strict=True)
        line_style, label = "-" if steps == config.steps else "--", f"{rule}, {steps} steps"
        ax.plot(x, y, line_style, marker=".", color=SHADES[rule], label=label)
        for source, point in zip(line, points[1:], strict=True):
            near = {"xytext": (2, 3), "textcoords": "offset points", "color": SHADES[rule]}
            ax.annotate(f"{source.coefficient:g}", point, fontsize=6, **near)
        label = None if index else "unguided"
        ax.plot(*points[0], "o", color=SHADES["unguided"], zorder=3, label=label)
    for length in (n for n in LENGTHS if n <= config.long_horizon):
        point = place(Source("ensemble"), length)
        label = "ensemble, by length" if length == LENGTHS[0] else None
        ax.plot(*point, "k^", label=label, markersize=5)
        ax.annotate(f"{length}", point, fontsize=6, xytext=(4, -2), textcoords="offset points")
    known = float(iqm(log_likelihood(sources[Source("data")].gap.mean(1))))
    ax.axvline(known, color="#777777", linestyle=":", linewidth=1.0, label="the data's actions")
    ax.set(yscale="log", xlabel="log-likelihood under the policy")


def draw_tradeoff(report: Report, config: Config, results: Results) -> None:
    drawing, axes = figure(1, len(results), titles=list(results), width=3.9, height=3.2)
    for ax, (_, sources) in zip(axes, results.values(), strict=True):
        tradeoff(ax, config, sources)
    axes[0].set_ylabel("dynamics error of a step")
    legend(drawing, axes, columns=2 * len(axes))
    report.picture("tradeoff", drawing, TRADEOFF)


def draw_time(report: Report, config: Config, results: Results) -> None:
    drawing, axes = figure(2, len(results), titles=list(results), sharex=True, height=2.3)
    for column, (_, sources) in enumerate(results.values()):
        ensemble, unguided, guided = three(config, sources)
        lines = [("ensemble", ensemble, "ensemble"), ("unguided", unguided, "unguided")]
        lines.append(("published", guided, f"published, {config.reference:g}"))
        if config.calibrated:
            soft = config.calibrated[len(config.calibrated) // 2]
            m = sources[Source("calibrated", config.steps, soft)]
            lines.append(("calibrated", m, f"calibrated, {soft:g}"))
        for row, kind in enumerate(("error", "open_loop")):
            ax = axes[row * len(results) + column]
            for rule, m, label in lines:
                values = getattr(m, kind)
                steps = np.arange(1, values.shape[1] + 1)
                curve_with_band(ax, steps, values, label, colour_name=SHADES[rule])
            ax.set(xscale="log", yscale="log", xlabel="step" if row else "")
    axes[0].set_ylabel("error of a step")
    axes[len(results)].set_ylabel("error, open loop")
    legend(drawing, axes, columns=2 * len(results))
    report.picture("over_time", drawing, OVER_TIME)

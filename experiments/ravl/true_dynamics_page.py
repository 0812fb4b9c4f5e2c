"""Tables, claims and pictures of `true_dynamics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import bootstrap_interval, iqm, summarize

from ..kit.claims import claims
from ..kit.colours import colour
from ..kit.draw import curve_with_band, level, picture
from .true_dynamics_cells import Dial, Domain, best_below_one

SOURCE = "Sims et al. 2024 (arXiv 2402.12527), error-free dynamics"
Dials = Mapping[str, Dial]
Results = Mapping[str, tuple[Domain, Dials]]
STYLES = ("-", "--", ":", "-.")


def make_report(report: Report, results: Results) -> Report:
    """Fill `report` with everything the run has to say."""
    for name, (domain, dials) in results.items():
        for title, metric in (("score", "score"), ("estimated value", "estimated_value")):
            rows = [{"method": label, **_columns(dial, metric)} for label, dial in dials.items()]
            report.table(f"{title} on {name}", rows)
        for label, dial in dials.items():
            for truth, scores in zip(dial.truths, dial.last("score"), strict=True):
                report.number(f"{name}: {label} at w = {truth:g}", scores, domain.scale)
        add_claims(report, name, domain, dials)
        config = domain.config
        report.note(
            f"Score on {name}: {domain.scale}; {domain.env.version}; data: "
            f"{len(domain.data.rewards)} rows, rollouts of {config.rollouts.horizon} steps, "
            f"{config.epochs * config.rollouts.updates_per_epoch} updates."
        )
    draw_dial(report, results)
    draw_training(report, results)
    report.note(
        "w is the weight of the true step in every imagined next state; reward and termination are "
        "the environment's known functions of it; penalties that come from the model shrink by "
        "1 - w. At w = 1 MOPO (any lambda) and MOBILE are base exactly, and base's runs are shown."
    )
    report.note(
        "The claims on MOPO and MOBILE compare w = 1 with the method's best cell below it, lambda "
        "included, chosen on the same runs: the best case for the method."
    )
    return report


def _columns(dial: Dial, metric: str) -> dict:
    values = zip(dial.truths, dial.last(metric), strict=True)
    return {f"w = {truth:g}": summarize(seeds) for truth, seeds in values}


def add_claims(report: Report, name: str, domain: Domain, dials: Dials) -> None:
    """With true dynamics (the last weight of every dial) against the best below."""
    claim, (base, ravl) = claims(report, SOURCE), (dials["base"], dials["ravl"])
    # fmt: off
    for method in ("mopo", "mobile"):
        label, truth, best = best_below_one(dials, method)
        claim(f"{name}: {method.upper()} is worse with true dynamics",
              dials[label].last("score")[-1] - best, at_most=-10,
              means="at least 10 points below its best with an imperfect model "
                    f"({label} at w = {truth:g})")
    _, truth, best = best_below_one(dials, "ravl")
    claim(f"{name}: RAVL does not get worse with true dynamics",
          ravl.last("score")[-1] - best, at_least=-10,
          means=f"at most 10 points below its best with an imperfect model (w = {truth:g})")
    claim(f"{name}: RAVL beats the penalties with true dynamics",
          ravl.last("score")[-1] - base.last("score")[-1], at_least=10,
          means="at least 10 points above base, MOPO and MOBILE (the same there)")
    claim(f"{name}: base promises the impossible with true dynamics",
          base.last("estimated_value")[-1], at_least=domain.value_limit,
          means="more value at the start than any policy can earn anywhere")
    # fmt: on


def _styled(dials: Dials) -> Iterator[tuple[str, str, Dial, str]]:
    """Label, method, dial and line style: strengths of one method differ in the style."""
    methods = [label.split()[0] for label in dials]
    for at, (label, dial) in enumerate(dials.items()):
        yield label, methods[at], dial, STYLES[methods[:at].count(methods[at]) % len(STYLES)]


def _line(ax: Axes, places: np.ndarray, values: np.ndarray, label: str, style: str) -> None:
    """Interquartile means with intervals and seeds; `values` is `[W, seeds]`."""
    shade = colour(label)
    centre = [float(iqm(v)) for v in values]
    ends = np.array([bootstrap_interval(v) for v in values]).T
    ax.plot(places, centre, style, color=shade, label=label, marker="o", markersize=3.5)
    ax.vlines(places, *ends, color=shade, linewidth=5, alpha=0.22)
    ax.plot(places, values, ".", color=shade, markersize=2.5, alpha=0.8)


def draw_dial(report: Report, results: Results) -> None:
    """Score, promised value and paid uncertainty over model quality; one row per environment."""
    caption = (
        "Left: score of the final policy (line: interquartile mean, bar: 95 % bootstrap interval, "
        "dots: seeds). Middle: what the critics promise; above the dashed line it is more than any "
        "policy can earn. Right: the model's uncertainty that MOPO multiplies by lambda."
    )
    titles = ["Score", "Value promised at the start", "Uncertainty in rollouts"]
    titles += [""] * 3 * (len(results) - 1)
    with picture(report, "model_quality", caption, titles=titles, columns=3, width=3.1) as axes:
        for row, (name, (domain, dials)) in enumerate(results.items()):
            score, value, uncertainty = axes[3 * row : 3 * row + 3]
            truths = dials["base"].truths
            shift = np.linspace(-0.16, 0.16, len(dials))
            for offset, (label, method, dial, style) in zip(shift, _styled(dials), strict=True):
                places = np.array([truths.index(w) for w in dial.truths]) + offset
                _line(score, places, dial.last("score"), label, style)
                _line(value, places, dial.last("estimated_value"), label, style)
                if method == "mopo":
                    _line(uncertainty, places, dial.last("imagined_uncertainty"), label, style)
            level(score, 100)
            level(value, domain.value_limit)
            score.set_ylabel(f"{name}\nscore, %")
            value.set_yscale("symlog", linthresh=100)
            uncertainty.set_ylabel("mean over rollouts")
            for ax in (score, value, uncertainty):
                ax.set_xticks(range(len(truths)), [f"{w:g}" for w in truths])
                ax.set_xlabel("w: learned (0) to true (1) dynamics")


def draw_training(report: Report, results: Results) -> None:
    """Score while training at both ends of the dial."""
    caption = (
        "Score of the mean action in the true environment while training. With true dynamics MOPO "
        "and MOBILE are base."
    )
    titles = [f"{name}: {end} dynamics" for name in results for end in ("learned", "true")]
    with picture(report, "training", caption, titles=titles, columns=2, height=2.3) as axes:
        for row, (_, dials) in enumerate(results.values()):
            for ax, truth in zip(axes[2 * row : 2 * row + 2], (0.0, 1.0), strict=True):
                for label, method, dial, style in _styled(dials):
                    if truth == 1.0 and method in ("mopo", "mobile"):
                        continue
                    steps, values = dial.curves["score"]
                    values = values[:, dial.truths.index(truth)].T
                    curve_with_band(ax, steps, values, label, linestyle=style)
                level(ax, 100)
                ax.set_xlabel("gradient steps")
            axes[2 * row].set_ylabel("score, %")

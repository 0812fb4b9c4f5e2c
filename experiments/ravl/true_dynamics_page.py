"""Tables, claims and pictures of `true_dynamics`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import bootstrap_interval, iqm, summarize

from ..kit.colours import colour
from ..kit.draw import curve_with_band
from .true_dynamics_cells import Dial, Domain, best_below_one

SOURCE = "Sims et al. 2024 (arXiv 2402.12527), error-free dynamics"
Results = Mapping[str, tuple[Domain, Mapping[str, Dial]]]
STYLES = ("-", "--", ":", "-.")


def make_report(report: Report, results: Results) -> None:
    """Fill `report` with everything the run has to say."""
    for name, (domain, dials) in results.items():
        report.table(f"score on {name}", _rows(dials, "score"))
        report.table(f"estimated value on {name}", _rows(dials, "estimated_value"))
        for label, dial in dials.items():
            for truth, scores in zip(dial.truths, dial.last("score"), strict=True):
                report.number(f"{name}: {label} at w = {truth:g}", scores, domain.scale)
        for claim in _claims(name, domain, dials):
            report.claim(claim)
        report.note(
            f"Score on {name}: {domain.scale}; {domain.env.version}; data: "
            f"{len(domain.data.rewards)} rows, rollouts of {domain.config.rollouts.horizon} steps, "
            f"{domain.config.epochs * domain.config.rollouts.updates_per_epoch} updates."
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


def _rows(dials: Mapping[str, Dial], metric: str) -> list[dict]:
    return [
        {"method": label}
        | {
            f"w = {truth:g}": summarize(values)
            for truth, values in zip(dial.truths, dial.last(metric), strict=True)
        }
        for label, dial in dials.items()
    ]


def _claims(name: str, domain: Domain, dials: Mapping[str, Dial]) -> list[Claim]:
    made = []
    for method in ("mopo", "mobile"):
        label, truth, best = best_below_one(dials, method)
        made.append(
            Claim.at_most(
                f"{name}: {method.upper()} is worse with true dynamics",
                values=dials[label].last("score")[-1] - best, threshold=-10.0, source=SOURCE,
                expected=f"at least 10 points below its best with an imperfect model ({label} at "
                f"w = {truth:g})",
            )
        )  # fmt: skip
    _, truth, best = best_below_one(dials, "ravl")
    at_one = dials["ravl"].last("score")[-1]
    made.append(
        Claim.at_least(
            f"{name}: RAVL does not get worse with true dynamics", values=at_one - best,
            threshold=-10.0, source=SOURCE,
            expected=f"at most 10 points below its best with an imperfect model (w = {truth:g})",
        )
    )  # fmt: skip
    base = dials["base"].last("score")[-1]
    made.append(
        Claim.at_least(
            f"{name}: RAVL beats the penalties with true dynamics", values=at_one - base,
            threshold=10.0, source=SOURCE,
            expected="at least 10 points above base, MOPO and MOBILE (the same there)",
        )
    )  # fmt: skip
    made.append(
        Claim.at_least(
            f"{name}: base promises the impossible with true dynamics",
            values=dials["base"].last("estimated_value")[-1], threshold=domain.value_limit,
            source=SOURCE, expected="more value at the start than any policy can earn anywhere",
        )
    )  # fmt: skip
    return made


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
    made, axes = figure(
        len(results), 3, width=3.1,
        titles=("Score", "Value promised at the start", "Uncertainty in rollouts"),
    )  # fmt: skip
    for row, (name, (domain, dials)) in enumerate(results.items()):
        score, value, doubt = axes[3 * row : 3 * row + 3]
        truths = dials["base"].truths
        shift = np.linspace(-0.16, 0.16, len(dials))
        seen: dict[str, int] = {}
        for offset, (label, dial) in zip(shift, dials.items(), strict=True):
            method = label.split()[0]
            style = STYLES[seen.setdefault(method, 0) % len(STYLES)]
            seen[method] += 1
            places = np.array([truths.index(w) for w in dial.truths]) + offset
            _line(score, places, dial.last("score"), label, style)
            _line(value, places, dial.last("estimated_value"), label, style)
            if method == "mopo":
                _line(doubt, places, dial.last("imagined_uncertainty"), label, style)
        score.axhline(100, color="black", linestyle="--", linewidth=0.8)
        score.set_ylabel(f"{name}\nscore, %")
        value.axhline(domain.value_limit, color="black", linestyle="--", linewidth=0.8)
        value.set_yscale("symlog", linthresh=100)
        doubt.set_ylabel("mean over rollouts")
        for ax in (score, value, doubt):
            ax.set_xticks(range(len(truths)), [f"{w:g}" for w in truths])
            ax.set_xlabel("w: learned (0) to true (1) dynamics")
    legend(made, axes)
    report.picture(
        "model_quality", made,
        "Left: score of the final policy (line: interquartile mean, bar: 95 % bootstrap interval, "
        "dots: seeds). Middle: what the critics promise; above the dashed line it is more than any "
        "policy can earn. Right: the model's uncertainty that MOPO multiplies by lambda.",
    )  # fmt: skip


def draw_training(report: Report, results: Results) -> None:
    """Score while training at both ends of the dial."""
    made, axes = figure(
        len(results), 2, height=2.3,
        titles=[f"{name}: {end} dynamics" for name in results for end in ("learned", "true")],
    )  # fmt: skip
    for row, (_, dials) in enumerate(results.values()):
        for ax, truth in zip(axes[2 * row : 2 * row + 2], (0.0, 1.0), strict=True):
            seen: dict[str, int] = {}
            for label, dial in dials.items():
                method = label.split()[0]
                style = STYLES[seen.setdefault(method, 0) % len(STYLES)]
                seen[method] += 1
                if truth == 1.0 and method in ("mopo", "mobile"):
                    continue
                steps, values = dial.curves["score"]
                curve_with_band(ax, steps, values[:, dial.truths.index(truth)].T, label,
                                linestyle=style)  # fmt: skip
            ax.axhline(100, color="black", linestyle="--", linewidth=0.8)
            ax.set_xlabel("gradient steps")
        axes[2 * row].set_ylabel("score, %")
    legend(made, axes)
    report.picture(
        "training", made,
        "Score of the mean action in the true environment while training. With true dynamics MOPO "
        "and MOBILE are base.",
    )  # fmt: skip

"""Tables, claims and picture of `horizon_plane`: promised beside earned value, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

if TYPE_CHECKING:
    from .horizon_plane import PlaneConfig

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), figure 1"


class Arm(NamedTuple):
    """One way to roll: a fixed horizon, or a quantile of the data's spread to stop at.

    Attributes:
        horizon: most steps.
        level: quantile over the dataset; None never stops.
        penalty: of the spread, in units of its mean over the dataset (NEUBAY section 3.5).
    """

    horizon: int
    level: float | None = None
    penalty: float = 0.0

    @property
    def name(self) -> str:
        how = f"H {self.horizon}" if self.level is None else f"adaptive {self.level:g}"
        return how + (f", penalty {self.penalty:g}" if self.penalty else "")


def show(report: Report, config: PlaneConfig, trained: Mapping[Arm, Trained], best: float) -> None:
    """Put into the report what was found; `best` is the most any policy can earn."""
    report.table("values", [_row(arm, t, best) for arm, t in trained.items()])
    _claims(report, config, trained, best)
    _draw(report, trained, best)


def gap(trained: Trained) -> np.ndarray:
    """Promised minus earned value at the end, `[seeds]`."""
    last = trained.history.last
    return last("estimated_value") - last("true_value")


def _row(arm: Arm, trained: Trained, best: float) -> dict[str, Any]:
    last = trained.history.last
    return {
        "rollouts": arm.name,
        "mean length": summarize(last("imagined_length")),
        "return, % of the best": summarize(last("percent")),
        "earned": summarize(last("true_value")),
        "promised": summarize(last("estimated_value")),
        "promised - earned": summarize(gap(trained)),
        "promised, % of the best": summarize(100.0 * last("estimated_value") / best),
    }


def _claims(
    report: Report, config: PlaneConfig, trained: Mapping[Arm, Trained], best: float
) -> None:
    adaptive = Arm(config.longest, config.levels[-1])
    short = [Arm(h) for h in config.fixed if 1 < h <= 10] or [Arm(config.fixed[0])]
    report.claim(
        Claim.at_least(
            "short rollouts promise more than they earn", source=SOURCE, threshold=0.2,
            values=np.stack([gap(trained[arm]) for arm in short], 1) / best,
            expected="promised minus earned, as a share of the best value",
        )
    )  # fmt: skip
    report.claim(
        Claim.between(
            "adaptive rollouts are calibrated", source=SOURCE, low=-0.2, high=0.2,
            values=gap(trained[adaptive]) / best,
            expected="the same for rollouts that stop at the data's largest spread",
        )
    )  # fmt: skip
    earned = {arm: t.history.last("percent") for arm, t in trained.items()}
    others = np.max([earned[Arm(h)] for h in config.fixed], 0)
    report.claim(
        Claim.at_least(
            "adaptive rollouts earn as much as the best fixed length", source=SOURCE,
            values=earned[adaptive] - others, threshold=-5.0,
            expected="return in % of the best, minus that of each seed's best fixed length",
        )
    )  # fmt: skip
    if len(config.levels) > 1:
        lengths = [
            trained[Arm(config.longest, level)].history.last("imagined_length")
            for level in (config.levels[-1], config.levels[0])
        ]
        report.claim(
            Claim.at_least(
                "a higher quantile means longer rollouts", source=SOURCE, threshold=2.0,
                values=lengths[0] / lengths[1],
                expected=f"length at {config.levels[-1]:g} over that at {config.levels[0]:g}",
            )
        )  # fmt: skip
    if config.penalties:
        strict = adaptive._replace(penalty=max(config.penalties))
        report.claim(
            Claim.at_most(
                "a penalty makes values pessimistic", source=SOURCE, threshold=-0.1,
                values=gap(trained[strict]) / best,
                expected="promised minus earned, as a share of the best value",
            )
        )  # fmt: skip


def _draw(report: Report, trained: Mapping[Arm, Trained], best: float) -> None:
    """Promised and earned value of every arm; above the line nobody can be."""
    made, (ax,) = figure(width=6.4, height=3.4)
    names = [arm.name for arm in trained]
    for at, t in enumerate(trained.values()):
        for metric, shade, shift in (("estimated_value", "#D55E00", -0.12),
                                     ("true_value", "#0072B2", 0.12)):  # fmt: skip
            values = t.history.last(metric)
            label = {"estimated_value": "promised", "true_value": "earned"}[metric]
            ax.plot([at + shift] * len(values), values, ".", color=shade, alpha=0.6)
            ax.plot([at + shift], [np.median(values)], "_", color=shade, markersize=14,
                    markeredgewidth=2, label=label if at == 0 else None)  # fmt: skip
    ax.axhline(best, color="black", linestyle=":", linewidth=1.0, label="the most possible")
    drawn = np.concatenate([t.history.last("estimated_value") for t in trained.values()])
    if np.abs(drawn).max() > 5 * best:
        # Linear up to what is possible, logarithmic beyond.
        ax.set_yscale("symlog", linthresh=best, linscale=0.8)
        ax.set_ylim(min(1.3 * drawn.min(), -0.1 * best), 1.3 * drawn.max())
        ticks = best * np.array([-8, -4, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 8, 16, 32, 64])
        within = ticks[(drawn.min() <= ticks) & (ticks <= max(drawn.max(), best))]
        ax.set_yticks(within, [f"{tick:.0f}" for tick in within])
        ax.minorticks_off()
    ax.set_xticks(range(len(names)), names, rotation=35, ha="right")
    ax.set_ylabel("discounted value from the start")
    legend(made, [ax])
    report.picture(
        "values", made,
        "What the critics promise and what the policy earns; points are seeds, bars medians; "
        "dotted: the most any policy can earn, up to which the axis is linear.",
    )  # fmt: skip

"""Tables, claims and pictures of `bandit_bayes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxrl_rollouts.offline.bandit.environment import KNOWN, TEST_ARMS
from jaxrl_rollouts.offline.bandit.optimum import Beliefs, play_optimum
from jaxrl_rollouts.offline.bandit.rewards import FittedRewards
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import PALETTE, figure, legend
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.draw import curve_with_band

if TYPE_CHECKING:
    from .bandit_bayes_cells import Cell

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), bandit figure"
SHOWN = (0.01, 0.3, 0.55, 0.7, 0.99)  # the arms of the paper's figure
Returns = Mapping[float, np.ndarray]  # penalty -> [seeds, arms]


def make_report(
    report: Report, last: int, fitted: FittedRewards, cells: Mapping[float, Cell], optima: Returns
) -> None:
    """Fill `report`; results are means over each run's `last` looks."""
    found = {p: cell.returns[-last:].mean(0) for p, cell in cells.items()}
    unknown = {p: cell.unknown[-last:].mean(0) for p, cell in cells.items()}
    _tables(report, fitted, found, unknown, optima)
    published = play_optimum(Beliefs(), TEST_ARMS).returns
    for claim in _claims(fitted, found, published):
        report.claim(claim)
    _draw_arms(report, found, optima)
    _draw_learning(report, cells, optima)
    _draw_opinions(report, fitted)
    report.note(
        "Optimal stopping is exact: its prior for arm 1 is normal with the mean and spread of "
        "that seed's ensemble, and it is played on the true arms without sampling."
    )
    report.note("A penalty p makes the reward that is learned from r - p u(arm); r is observed.")


def _tables(
    report: Report, fitted: FittedRewards, found: Returns, unknown: Returns, optima: Returns
) -> None:
    for name, values in (("agents", found), ("optimal stopping", optima)):
        report.table(
            f"return per pull: {name}",
            [
                {"penalty": penalty}
                | {f"arm 1 pays {a:g}": summarize(v[:, i]) for i, a in enumerate(TEST_ARMS)}
                | {"mean": summarize(v.mean(1))}
                for penalty, v in values.items()
            ],
        )
    report.table(
        "share of pulls of arm 1, %",
        [
            {"penalty": penalty}
            | {f"arm 1 pays {a:g}": summarize(100 * v[:, i]) for i, a in enumerate(TEST_ARMS)}
            for penalty, v in unknown.items()
        ],
    )
    mean, std = np.asarray(fitted.arms.mean), np.asarray(fitted.arms.std)
    report.table(
        "opinions of the ensemble",
        [
            {
                "arm": arm, "mean over members": summarize(mean[..., arm].mean(1)),
                "spread over members": summarize(mean[..., arm].std(1)),
                "predicted noise": summarize(std[..., arm].mean(1)),
            }
            for arm in (0, 1)
        ],
    )  # fmt: skip
    for penalty, values in found.items():
        report.number(f"mean over test arms, penalty {penalty:g}", values.mean(1))
        gap = optima[penalty].mean(1) - values.mean(1)
        report.number(f"short of optimal stopping, penalty {penalty:g}", gap)


def _claims(fitted: FittedRewards, found: Returns, published: np.ndarray) -> list[Claim]:
    bayes, harsh = found[0.0], found[max(found)]
    at = {arm: i for i, arm in enumerate(TEST_ARMS)}
    mean = np.asarray(fitted.arms.mean)

    def least(name: str, arm: float, threshold: float, statistic: str = "median") -> Claim:
        return Claim.at_least(
            name, values=bayes[:, at[arm]], threshold=threshold, statistic=statistic,
            source=SOURCE, expected=f"at least {threshold} per pull where arm 1 pays {arm:g}",
        )  # fmt: skip

    claims = [
        Claim.between(
            "the conservative stays with the known arm", values=harsh, low=0.49, high=0.51,
            statistic="all", source=SOURCE, expected="0.50 per pull on every arm, every seed",
        ),
        least("the Bayesian finds the best arm", 0.99, 0.85),
        least("the Bayesian finds the best arm with every seed", 0.99, 0.75, "min"),
        least("the Bayesian finds a good arm", 0.7, 0.58),
        least("trying a hopeless arm costs little", 0.01, 0.46),
        Claim.between(
            "trying a bad arm costs little", values=bayes[:, at[0.3]], low=0.43, high=0.5025,
            statistic="median", source=SOURCE,
            expected="between 0.43 and 0.50 (and a sampling error of 0.0025)",
        ),
        Claim.at_least(
            "the Bayesian earns more over all arms", values=bayes.mean(1), threshold=0.55,
            source=SOURCE, expected="at least 0.55 against the conservative's 0.50",
        ),
        Claim.between(
            "optimal stopping under the published prior earns 0.624", values=published.mean(),
            low=0.614, high=0.634, source="dynamic programming",
            expected="0.624 over the eight arms, +- 0.01",
        ),
        Claim.between(
            "the ensemble fits the known arm", values=fitted.nll.mean(1), low=0.715, high=0.735,
            statistic="all", source="entropy of the known arm: 0.726 nats",
            expected="0.72 to 0.73 nats on the holdout",
        ),
        Claim.between(
            "members disagree about the unknown arm", values=mean[..., 1].std(1), low=0.25,
            high=0.40, statistic="all", source=SOURCE, expected="spread of 0.25 to 0.40",
        ),
        Claim.between(
            "some members are hopeful",
            values=(mean[..., 1] > mean[..., 0]).mean(1), low=0.15, high=0.40, statistic="all",
            source=SOURCE, expected="15 to 40 % believe arm 1 the better one",
        ),
    ]  # fmt: skip
    for penalty in sorted(found)[1:-1]:
        values = found[penalty].mean(1)
        claims.append(
            Claim.between(
                f"a penalty of {penalty:g} lies between",
                values=values.mean(), low=harsh.mean() - 0.01, high=bayes.mean() + 0.01,
                source=SOURCE, expected="mean between the conservative's and the Bayesian's",
            )
        )  # fmt: skip
    return claims


def _draw_arms(report: Report, found: Returns, optima: Returns) -> None:
    made, (left, right) = figure(
        1, 2, titles=("Agents with memory", "Optimal stopping under the same beliefs"),
        sharey=True, height=3.0,
    )  # fmt: skip
    arms = np.array(TEST_ARMS)
    for ax, values in ((left, found), (right, optima)):
        for (penalty, v), shade in zip(values.items(), PALETTE, strict=False):
            label = "Bayesian (penalty 0)" if penalty == 0 else f"penalty {penalty:g}"
            curve_with_band(ax, arms, v, label, colour_name=shade)
        ax.plot(arms, np.maximum(arms, KNOWN), "k:", linewidth=1.0, label="always the better arm")
        ax.set_xlabel("what the unknown arm pays")
    left.set_ylabel("reward per pull")
    legend(made, (left, right))
    report.picture(
        "arms", made,
        "Data hold only the arm that pays 0.5. Lines: interquartile mean over seeds; bands: 95 % "
        "bootstrap interval. Right: the best any agent could do with these beliefs.",
    )  # fmt: skip


def _draw_learning(report: Report, cells: Mapping[float, Cell], optima: Returns) -> None:
    titles = [f"unknown arm pays {arm:g}" for arm in SHOWN]
    made, axes = figure(1, len(SHOWN), width=2.3, height=2.6, titles=titles, sharex=True)
    for ax, arm in zip(axes, SHOWN, strict=True):
        i = TEST_ARMS.index(arm)
        for (penalty, cell), shade in zip(cells.items(), PALETTE, strict=False):
            label = "Bayesian (penalty 0)" if penalty == 0 else f"penalty {penalty:g}"
            curve_with_band(ax, cell.steps, cell.returns[..., i].T, label, colour_name=shade)
        best = np.median(optima[0.0][:, i])
        ax.axhline(best, color="black", linestyle="--", linewidth=0.9,
                   label="optimal stopping, penalty 0")  # fmt: skip
        ax.set_xlabel("gradient steps")
    axes[0].set_ylabel("reward per pull")
    legend(made, axes)
    report.picture(
        "learning", made,
        "Greedy play of true bandits while the agents learn from imagined ones. Only the Bayesian "
        "leaves 0.5, down where the unknown arm is bad and up where it is good.",
    )  # fmt: skip


def _draw_opinions(report: Report, fitted: FittedRewards) -> None:
    made, (ax,) = figure(width=4.2, height=2.6)
    bins = np.linspace(-0.8, 1.6, 61).tolist()
    mean = np.asarray(fitted.arms.mean)
    for arm, label in ((0, "arm 0 (1000 pulls)"), (1, "arm 1 (never pulled)")):
        ax.hist(
            mean[..., arm].reshape(-1), bins, color=PALETTE[arm], alpha=0.6, density=True,
            label=label,
        )  # fmt: skip
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_xlabel("believed mean reward")
    ax.set_ylabel("density over members and seeds")
    legend(made, (ax,))
    report.picture(
        "opinions", made,
        "What the members believe: they agree on the arm in the data and on nothing else.",
    )  # fmt: skip

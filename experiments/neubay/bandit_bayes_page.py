"""Tables, claims and pictures of `bandit_bayes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from jaxrl_rollouts.offline.bandit.environment import KNOWN, TEST_ARMS
from jaxrl_rollouts.offline.bandit.optimum import Beliefs, play_optimum
from jaxrl_rollouts.offline.bandit.rewards import FittedRewards
from jaxrl_rollouts.reports.pictures import PALETTE
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.claims import claims
from ..kit.draw import curve_with_band, curves, level, picture
from ..kit.grid import Cell, Grid
from .bandit_bayes_cells import Config

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), bandit figure"
SHOWN = (0.01, 0.3, 0.55, 0.7, 0.99)  # the arms of the paper's figure


def make_report(report: Report, config: Config, fitted: FittedRewards, grid: Grid) -> Report:
    """Fill `report` with everything the run has to say."""
    for title, name in (("agents", "returns"), ("optimal stopping", "optimum")):
        columns = per_arm(name) | {"mean": lambda cell, name=name: cell[name].mean(1)}
        report.table(f"return per pull: {title}", grid.rows(columns))
    report.table("share of pulls of arm 1, %", grid.rows(per_arm("unknown", 100)))
    mean, std = np.asarray(fitted.arms.mean), np.asarray(fitted.arms.std)
    rows = [
        {
            "arm": arm,
            "mean over members": summarize(mean[..., arm].mean(1)),
            "spread over members": summarize(mean[..., arm].std(1)),
            "predicted noise": summarize(std[..., arm].mean(1)),
        }
        for arm in (0, 1)
    ]
    report.table("opinions of the ensemble", rows)
    for penalty, cell in grid.items():
        earned = cell["returns"].mean(1)
        report.number(f"mean over test arms, penalty {penalty:g}", earned)
        gap = cell["optimum"].mean(1) - earned
        report.number(f"short of optimal stopping, penalty {penalty:g}", gap)
    published = play_optimum(Beliefs(), TEST_ARMS).returns
    returns = {penalty: cell["returns"] for penalty, cell in grid.items()}
    add_claims(report, fitted, returns, published)
    draw_arms(report, grid)
    draw_learning(report, grid)
    draw_opinions(report, mean)
    report.note(
        "Optimal stopping is exact: its prior for arm 1 is normal with the mean and spread of "
        "that seed's ensemble, and it is played on the true arms without sampling."
    )
    report.note("A penalty p makes the reward that is learned from r - p u(arm); r is observed.")
    return report


def per_arm(name: str, scale: float = 1.0) -> dict[str, Callable[[Cell], np.ndarray]]:
    """A column for what arm 1 pays, of a cell's `[seeds, arms]`."""
    return {
        f"arm 1 pays {arm:g}": lambda cell, at=at: scale * cell[name][:, at]
        for at, arm in enumerate(TEST_ARMS)
    }


def add_claims(
    report: Report,
    fitted: FittedRewards,
    returns: Mapping[float, np.ndarray],
    published: np.ndarray,
) -> None:
    """Of the agents, of the ensemble they believe in, and of the optimum.

    Args:
        report: where they go.
        fitted: the opinions.
        returns: penalty -> reward per pull, `[seeds, arms]`.
        published: of optimal stopping under the published prior, `[arms]`.
    """
    claim, bayes, harsh = claims(report, SOURCE), returns[0.0], returns[max(returns)]
    mean = np.asarray(fitted.arms.mean)
    known, unknown = mean[..., 0], mean[..., 1]
    # fmt: off
    claim("the conservative stays with the known arm", harsh, between=(0.49, 0.51),
          statistic="all", means="0.50 per pull on every arm, every seed")
    for name, arm, least, statistic in (
        ("the Bayesian finds the best arm", 0.99, 0.85, "median"),
        ("the Bayesian finds the best arm with every seed", 0.99, 0.75, "min"),
        ("the Bayesian finds a good arm", 0.7, 0.58, "median"),
        ("trying a hopeless arm costs little", 0.01, 0.46, "median"),
    ):
        claim(name, bayes[:, TEST_ARMS.index(arm)], at_least=least, statistic=statistic,
              means=f"at least {least} per pull where arm 1 pays {arm:g}")
    claim("trying a bad arm costs little", bayes[:, TEST_ARMS.index(0.3)],
          between=(0.43, 0.5025), statistic="median",
          means="between 0.43 and 0.50 (and a sampling error of 0.0025)")
    claim("the Bayesian earns more over all arms", bayes.mean(1), at_least=0.55,
          means="at least 0.55 against the conservative's 0.50")
    claim("optimal stopping under the published prior earns 0.624", published.mean(),
          between=(0.614, 0.634), source="dynamic programming",
          means="0.624 over the eight arms, +- 0.01")
    claim("the ensemble fits the known arm", fitted.nll.mean(1), between=(0.715, 0.735),
          statistic="all", source="entropy of the known arm: 0.726 nats",
          means="0.72 to 0.73 nats on the holdout")
    claim("members disagree about the unknown arm", unknown.std(1), between=(0.25, 0.40),
          statistic="all", means="spread of 0.25 to 0.40")
    claim("some members are hopeful", (unknown > known).mean(1), between=(0.15, 0.40),
          statistic="all", means="15 to 40 % believe arm 1 the better one")
    for penalty in sorted(returns)[1:-1]:
        claim(f"a penalty of {penalty:g} lies between", returns[penalty].mean(1).mean(),
              between=(harsh.mean() - 0.01, bayes.mean() + 0.01),
              means="mean between the conservative's and the Bayesian's")
    # fmt: on


def _styled(grid: Grid) -> Iterator[tuple[Cell, str, str]]:
    """Every penalty's cell, label and colour."""
    for (penalty, cell), shade in zip(grid.items(), PALETTE, strict=False):
        yield cell, f"penalty {penalty:g}" if penalty else "Bayesian (penalty 0)", shade


def draw_arms(report: Report, grid: Grid) -> None:
    """Reward per pull over what the unknown arm pays: learned, and possible."""
    caption = (
        "Data hold only the arm that pays 0.5. Lines: interquartile mean over seeds; bands: 95 % "
        "bootstrap interval. Right: the best any agent could do with these beliefs."
    )
    titles = ("Agents with memory", "Optimal stopping under the same beliefs")
    with picture(report, "arms", caption, titles=titles, sharey=True, height=3.0) as axes:
        for ax, name in zip(axes, ("returns", "optimum"), strict=True):
            for cell, label, shade in _styled(grid):
                curve_with_band(ax, TEST_ARMS, cell[name], label, colour_name=shade)
            best = np.maximum(TEST_ARMS, KNOWN)
            ax.plot(TEST_ARMS, best, "k:", linewidth=1.0, label="always the better arm")
            ax.set_xlabel("what the unknown arm pays")
        axes[0].set_ylabel("reward per pull")


def draw_learning(report: Report, grid: Grid) -> None:
    """Reward per pull while learning, a panel for what the unknown arm pays."""
    caption = (
        "Greedy play of true bandits while the agents learn from imagined ones. Only the Bayesian "
        "leaves 0.5, down where the unknown arm is bad and up where it is good."
    )
    titles = [f"unknown arm pays {arm:g}" for arm in SHOWN]
    style = {"width": 2.3, "height": 2.6, "sharex": True}
    with picture(report, "learning", caption, titles=titles, **style) as axes:
        for ax, arm in zip(axes, SHOWN, strict=True):
            for cell, label, shade in _styled(grid):
                curves(ax, {label: cell}, f"return {arm:g}", colour_name=shade)
            best = np.median(grid[0.0]["optimum"][:, TEST_ARMS.index(arm)])
            level(ax, best, "optimal stopping, penalty 0", linewidth=0.9)
        axes[0].set_ylabel("reward per pull")


def draw_opinions(report: Report, mean: np.ndarray) -> None:
    """What members believe the arms to pay; `mean` is `[seeds, members, arms]`."""
    caption = "What the members believe: they agree on the arm in the data and on nothing else."
    bins = np.linspace(-0.8, 1.6, 61).tolist()
    with picture(report, "opinions", caption, width=4.2, height=2.6) as (ax,):
        for arm, label in enumerate(("arm 0 (1000 pulls)", "arm 1 (never pulled)")):
            style = {"color": PALETTE[arm], "alpha": 0.6, "density": True, "label": label}
            ax.hist(mean[..., arm].reshape(-1), bins, **style)
        ax.set_yscale("symlog", linthresh=1.0)
        ax.set(xlabel="believed mean reward", ylabel="density over members and seeds")

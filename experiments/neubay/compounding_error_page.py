"""Tables, claims and pictures of `compounding_error`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from jaxrl_rollouts.offline.study.model_based import slug
from jaxrl_rollouts.offline.worlds.trust import LEVELS, threshold
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from ..kit.claims import claims
from ..kit.draw import picture
from .compounding_error_cells import Case, Config, rank_correlation, split_error

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), compounding errors of LN and no-LN models"
COLOURS = {"LN": "#0072B2", "no LN": "#D55E00"}
HIGHEST = 1e6  # what lies above is drawn there
DOTS = 4000


def add_pair(report: Report, pair: tuple[str, str], cases: Mapping[str, Case]) -> None:
    """Everything about models of one dataset along another."""
    title = " on ".join(slug(name) for name in pair)
    report.table(title, [row for name, case in cases.items() for row in growth(name, case)])
    report.table(f"{title}: trust", [trust_row(name, case) for name, case in cases.items()])
    add_claims(report, title, cases)
    draw_growth(report, title, cases)
    draw_trust(report, title, cases["LN"])


def note_sizes(report: Report, config: Config) -> None:
    """How many models and trajectories, and what errors are measured in."""
    ensemble = config.ensemble
    report.note(
        f"{config.trajectories} stretches of logged actions, {config.seeds} ensembles of "
        f"{ensemble.members} ({ensemble.elites} kept), at most {ensemble.max_epochs} epochs. "
        "Errors are root mean squares over observation entries in standard deviations of the data "
        "a model was fitted to."
    )


def growth(name: str, case: Case) -> list[dict]:
    """Error after 1, 2, 4, ... steps."""
    length = case.rolled.error.shape[1]
    times = [2**i for i in range(length.bit_length()) if 2**i <= length]
    rows = []
    for t in dict.fromkeys([*times, length]):
        error, bias = case.rolled.error[:, t - 1], case.rolled.reward_bias[:, t - 1]
        columns = {
            "median error": np.median(error, -1),
            "95 % quantile": np.quantile(error, 0.95, axis=-1, method="lower"),
            "reward bias, median": np.median(bias, -1),
        }
        lost = {"lost %": float(100.0 * np.isinf(error).mean())}
        summaries = {column: summarize(values) for column, values in columns.items()}
        rows.append({"model": name, "step": t, **summaries, **lost})
    return rows


def trust_row(name: str, case: Case) -> dict[str, Any]:
    """What the spread knows about the error."""
    below, above = split_error(case)
    limits = {f"u({x:g})": threshold(case.trust, x) for x in LEVELS if x >= 0.9}
    columns = {
        **limits,
        "Spearman of spread and error": rank_correlation(case),
        "95 % of errors up to u(1)": below,
        "median error above u(1)": above,
    }
    summaries = {column: summarize(values) for column, values in columns.items()}
    return {"model": name, "epochs": case.epochs, **summaries}


def add_claims(report: Report, title: str, cases: Mapping[str, Case]) -> None:
    """What layer normalisation and the spread are good for."""
    claim = claims(report, SOURCE)
    last = {name: np.median(case.rolled.error[:, -1], -1) for name, case in cases.items()}
    below, above = split_error(cases["LN"])
    # fmt: off
    claim(f"{title}: without layer normalisation errors explode", last["no LN"] / last["LN"],
          at_least=10, means="median error at the end of the rollouts over that with it")
    claim(f"{title}: the spread knows the error", rank_correlation(cases["LN"]), at_least=0.5,
          means="Spearman correlation (paper: 0.84)")
    if np.isfinite(above / below).all():
        claim(f"{title}: errors are large beyond the data's largest spread", above / below,
              at_least=1, means="median error after the stop over the 95 % quantile before it")
    # fmt: on


def draw_growth(report: Report, title: str, cases: Mapping[str, Case]) -> None:
    """Error, size of the prediction and reward bias over the steps; bands are 5 to 95 %."""
    name, titles = f"growth-{slug(title)}", ("error", "size of the prediction", "reward")
    caption = (
        "Open loop along logged actions: median and 5 to 95 % of all trajectories and ensembles; "
        f"what exceeds {HIGHEST:g} is drawn there."
    )
    with picture(report, name, caption, titles=titles, legend=False, title=title) as axes:
        for model, (rolled, *_) in cases.items():
            quantities = (rolled.error, rolled.norm, np.abs(rolled.reward_bias))
            for ax, values in zip(axes, quantities, strict=True):
                flat = np.swapaxes(values, 0, 1).reshape(values.shape[1], -1)
                flat, steps = np.clip(flat, 1e-6, HIGHEST), np.arange(1, len(flat) + 1)
                low, middle, high = np.quantile(flat, (0.05, 0.5, 0.95), axis=1)
                ax.plot(steps, middle, color=COLOURS[model], label=model)
                ax.fill_between(steps, low, high, color=COLOURS[model], alpha=0.2, linewidth=0)
        units = ("standard deviations of the data", "root mean square, own units", "absolute bias")
        for ax, unit in zip(axes, units, strict=True):
            ax.set(xscale="log", yscale="log", xlabel="steps", ylabel=unit)
        axes[0].legend()


def draw_trust(report: Report, title: str, case: Case) -> None:
    """Error against spread, one dot per step, and the thresholds of the data."""
    spread, error = np.ravel(case.rolled.uncertainty[0]), np.ravel(case.rolled.error[0])
    finite = np.flatnonzero(np.isfinite(spread) & np.isfinite(error))
    shown = np.random.default_rng(0).permutation(finite)[:DOTS]
    caption = (
        "Each dot is a step of an open-loop rollout with layer normalisation, first ensemble; "
        "lines: quantiles of the spread over the data."
    )
    size = {"width": 5.0, "height": 3.2, "title": title, "legend": False}
    with picture(report, f"trust-{slug(title)}", caption, **size) as (ax,):
        style = {"color": COLOURS["LN"], "markersize": 2, "alpha": 0.4}
        ax.plot(spread[shown], error[shown], ".", **style)
        for level, line in ((0.9, ":"), (0.99, "--"), (1.0, "-")):
            at = float(np.asarray(threshold(case.trust, level))[0])
            ax.axvline(at, color="black", linestyle=line, linewidth=0.9, label=f"u({level:g})")
        ax.set(xscale="log", yscale="log", xlabel="spread of the members' means")
        # Spreads cover about a decade: matplotlib's own labels would lie on top of each other.
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_ylabel("error, standard deviations of the data")
        ax.legend()

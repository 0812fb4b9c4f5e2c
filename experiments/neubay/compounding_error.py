"""How errors of a world model compound, with and without layer normalisation.

Models are fitted to one dataset and rolled along the logged actions of another, where their
inputs are not theirs. Layer normalisation bounds how far one step can go, so that long rollouts
stay finite; and the spread of the members says where the error is about to explode.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.scipy.stats import rankdata

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, episodes, load, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.study.model_based import StudyConfig, slug
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, fit_worlds
from jaxrl_rollouts.offline.worlds.judge import OpenLoop, open_loop, windows
from jaxrl_rollouts.offline.worlds.trust import LEVELS, Trust, measure_trust, threshold
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import summarize

from .compounding_pictures import draw_growth, draw_trust

SOURCE = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), compounding errors of LN and no-LN models"
MEDIUM, MIXED = "jr/halfcheetah-medium", "jr/halfcheetah-mixed"


@dataclass(frozen=True)
class Config:
    """Pairs of datasets; each model is fitted to the first and rolled along the second.

    Attributes:
        pairs: names or files; `pendulum-mixed` is made on the spot, the second of a pair with
            other random numbers.
        ensemble: with layer normalisation; the other one differs in that only.
        seeds: independent ensembles.
        length: of the rollouts; a shorter time limit shortens them.
        trajectories: rolled.
        rows: of the first dataset that thresholds are measured on, evenly spaced.
    """

    pairs: tuple[tuple[str, str], ...] = ((MEDIUM, MIXED), (MIXED, MEDIUM), (PENDULUM, PENDULUM))
    ensemble: EnsembleConfig = field(default_factory=lambda: NEUBAY_ENSEMBLE)
    seeds: int = 1
    seed: int = 0
    length: int = 1000
    trajectories: int = 200
    rows: int = 1_000_000

    def validate(self) -> None:
        at_least_one(self, "seeds", "length", "trajectories", "rows")
        if not self.pairs or any(len(pair) != 2 for pair in self.pairs):
            raise ConfigError("pairs", self.pairs, "pairs of two datasets")
        if not self.ensemble.layer_norm:
            raise ConfigError("ensemble.layer_norm", False, "True; it is what is taken away")


class Case(NamedTuple):
    """One ensemble on one pair; fields of `found` are `[seeds, T, B]`."""

    found: OpenLoop
    trust: Trust
    epochs: int


def run_pair(config: Config, pair: tuple[str, str], context: RunContext) -> dict[str, Case]:
    """Fit both kinds of ensembles to the first dataset and roll them along the second."""
    study = StudyConfig(seed=config.seed)
    fitted_to, along = load_dataset(pair[0], study.seed), along_actions_of(pair[1], config)
    length = min(config.length, int(episodes(along.transitions).lengths.max()))
    logged = windows(along.transitions, length, config.trajectories, seed=config.seed)
    step = max(1, len(fitted_to) // config.rows)
    rows = jax.tree.map(lambda x: x[::step], to_device(fitted_to.transitions))
    fit_key, roll_key = jax.random.split(jax.random.key(config.seed))
    cases = {}
    for name, ensemble in (
        ("LN", config.ensemble), ("no LN", replace(config.ensemble, layer_norm=False))
    ):  # fmt: skip
        stage = f"{slug(pair[0])}-{slug(name)}"
        fitted = fit_worlds(
            ensemble, fitted_to.transitions, fit_key, seeds=config.seeds, targets="observations",
            stage=stage, context=context,
        )  # fmt: skip
        fitter = fitted.model.fitter
        dynamics = learned_dynamics(
            fitter, ensemble.elites, termination=never, disagreement=spread_of_means,
            normalised=True,
        )  # fmt: skip
        worlds = [jax.tree.map(lambda x, i=i: x[i], fitted.worlds) for i in range(config.seeds)]
        found = [open_loop(dynamics, w, logged, roll_key) for w in worlds]
        trust = [measure_trust(fitter, w, rows) for w in worlds]
        stacked: Any = jax.tree.map(lambda *x: np.stack(x), *found)
        cases[name] = Case(
            stacked, jax.tree.map(lambda *x: np.stack(x), *trust),
            len(fitted.trained.history.records),
        )  # fmt: skip
    return cases


def along_actions_of(name: str, config: Config) -> Dataset:
    """The dataset to roll along; one made on the spot gets other random numbers."""
    if name != PENDULUM:
        return load(name)
    rows = pendulum_mixed(jax.random.fold_in(jax.random.key(config.seed), 1))
    return replace(load_dataset(name, config.seed), transitions=rows)


def run(config: Config, context: RunContext) -> Report:
    """All pairs: tables, claims, pictures."""
    report = Report.of(context, config.seeds)
    for pair in config.pairs:
        cases = run_pair(config, pair, context)
        title = " on ".join(slug(name) for name in pair)
        report.table(title, [row for name, case in cases.items() for row in growth(name, case)])
        report.table(f"{title}: trust", [trust_row(name, case) for name, case in cases.items()])
        _claims(report, title, cases)
        draw_growth(report, title, {name: case.found for name, case in cases.items()})
        draw_trust(report, title, cases["LN"].found, cases["LN"].trust)
    report.note(
        f"{config.trajectories} stretches of logged actions, {config.seeds} ensembles of "
        f"{config.ensemble.members} ({config.ensemble.elites} kept), at most "
        f"{config.ensemble.max_epochs} epochs. Errors are root mean squares over observation "
        "entries in standard deviations of the data a model was fitted to."
    )
    return report


def growth(name: str, case: Case) -> list[dict]:
    """Error after 1, 2, 4, ... steps."""
    length = case.found.error.shape[1]
    times = [2**i for i in range(length.bit_length()) if 2**i <= length]
    rows = []
    for t in [*times, *([length] if length not in times else [])]:
        error = case.found.error[:, t - 1]
        rows.append(
            {
                "model": name, "step": t,
                "median error": summarize(np.median(error, -1)),
                "95 % quantile": summarize(np.quantile(error, 0.95, axis=-1, method="lower")),
                "reward bias, median": summarize(np.median(case.found.reward_bias[:, t - 1], -1)),
                "lost %": float(100.0 * np.isinf(error).mean()),
            }
        )  # fmt: skip
    return rows


def trust_row(name: str, case: Case) -> dict:
    """What the spread knows about the error."""
    row: dict[str, Any] = {"model": name, "epochs": case.epochs}
    row |= {
        f"u({level:g})": summarize(np.asarray(threshold(case.trust, level)))
        for level in LEVELS
        if level >= 0.9
    }
    below, above = split_error(case)
    return row | {
        "Spearman of spread and error": summarize(rank_correlation(case)),
        "95 % of errors up to u(1)": summarize(below),
        "median error above u(1)": summarize(above),
    }


def rank_correlation(case: Case) -> np.ndarray:
    """Spearman correlation `[seeds]` of spread and error over all finite steps."""
    found = []
    for u, e in zip(case.found.uncertainty, case.found.error, strict=True):
        good = np.isfinite(u) & np.isfinite(e)
        found.append(np.corrcoef(rankdata(u[good]), rankdata(e[good]))[0, 1])
    return np.array(found)


def split_error(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Per seed: the 95 % quantile of errors before a rollout would have stopped at u(1), and the
    median of the errors from there on (NaN where none stopped)."""
    limit = np.asarray(threshold(case.trust, 1.0))[:, None, None]
    stopped = np.maximum.accumulate(case.found.uncertainty > limit, axis=1)
    before, after = [], []
    for error, off in zip(case.found.error, stopped, strict=True):
        kept, cut = error[~off], error[off]
        before.append(np.quantile(kept, 0.95, method="lower") if len(kept) else np.nan)
        after.append(np.median(cut) if len(cut) else np.nan)
    return np.array(before), np.array(after)


def _claims(report: Report, title: str, cases: dict[str, Case]) -> None:
    last = {name: np.median(case.found.error[:, -1], -1) for name, case in cases.items()}
    report.claim(
        Claim.at_least(
            f"{title}: without layer normalisation errors explode", source=SOURCE, threshold=10.0,
            values=last["no LN"] / last["LN"],
            expected="median error at the end of the rollouts over that with it",
        )
    )  # fmt: skip
    report.claim(
        Claim.at_least(
            f"{title}: the spread knows the error", source=SOURCE, threshold=0.5,
            values=rank_correlation(cases["LN"]), expected="Spearman correlation (paper: 0.84)",
        )
    )  # fmt: skip
    below, above = split_error(cases["LN"])
    if np.isfinite(above / below).all():
        report.claim(
            Claim.at_least(
                f"{title}: errors are large beyond the data's largest spread", source=SOURCE,
                threshold=1.0, values=above / below,
                expected="median error after the stop over the 95 % quantile before it",
            )
        )  # fmt: skip


# A quarter of an hour on two cores; the architecture is the paper's.
_SMALL = replace(NEUBAY_ENSEMBLE, members=6, elites=5, max_epochs=12)

EXPERIMENT = Experiment(
    name="compounding_error",
    summary="open-loop error of world models over hundreds of steps, with and without layer norm",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            pairs=((PENDULUM, PENDULUM),), trajectories=8, length=20, rows=500,
            ensemble=replace(NEUBAY_ENSEMBLE, members=3, elites=2, hidden=(16,), max_epochs=1),
        ),
        "cpu": Config(ensemble=_SMALL, seeds=2, rows=20_000),
        "paper": Config(),
    },
    run=run,
)  # fmt: skip

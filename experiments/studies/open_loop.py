"""How errors of a world model compound, with and without layer normalisation.

Models are fitted to one dataset and rolled along the logged actions of another, where their
inputs are not theirs. Layer normalisation bounds how far one step can go, so that long rollouts
stay finite; and the spread of the members says where the error is about to explode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.choosing.scores import rank_correlation as spearman
from jaxrl_rollouts.offline.data import episodes, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.neubay.posterior import PosteriorConfig
from jaxrl_rollouts.offline.task import slug, verify_checksum
from jaxrl_rollouts.offline.worlds import open_loop as quality
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.offline.worlds.thresholds import (
    LEVELS,
    UncertaintyStats,
    threshold_at,
    uncertainty_stats,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS

SOURCE, NEUBAY = LISTINGS["open_loop"].source, PosteriorConfig().ensemble
MEDIUM, MIXED = "halfcheetah-medium-mini-v1", "halfcheetah-medium-replay-mini-v1"
D4RL = "halfcheetah-medium-v2", "halfcheetah-medium-replay-v2"


@dataclass(frozen=True)
class Config:
    """Pairs of datasets; each model is fitted to the first and rolled along the second.

    Attributes:
        pairs: names or files; `pendulum-mixed` is made on the spot, the second of a pair with
            other random numbers.
        ensemble: with layer normalisation; the other one differs in that only.
        seeds: independent ensembles.
        seed: of the random numbers; the same one gives the same numbers.
        length: of the rollouts; a shorter time limit shortens them.
        trajectories: rolled.
        rows: of the first dataset that thresholds are measured on, evenly spaced.
    """

    pairs: tuple[tuple[str, str], ...] = ((MEDIUM, MIXED), (MIXED, MEDIUM), (PENDULUM, PENDULUM))
    ensemble: EnsembleConfig = field(default_factory=lambda: NEUBAY)
    seeds: int = positive(1)
    seed: int = 0
    length: int = positive(1000)
    trajectories: int = positive(200)
    rows: int = positive(1_000_000)

    def validate(self) -> None:
        if not self.pairs or any(len(pair) != 2 for pair in self.pairs):
            raise ConfigError("pairs", self.pairs, "pairs of two datasets")
        if not self.ensemble.layer_norm:
            raise ConfigError("ensemble.layer_norm", False, "True; it is what is taken away")


def rank_correlation(rolled: quality.OpenLoop) -> np.ndarray:
    """Spearman correlation of uncertainty and error over all finite steps; one for each seed.

    Args:
        rolled: fields `[seeds, T, B]`, on the host.
    """
    pairs = zip(rolled.uncertainty, rolled.error, strict=True)
    finite = ((u, e, np.isfinite(u) & np.isfinite(e)) for u, e in pairs)
    return np.array([spearman(u[good], e[good]) for u, e, good in finite])


def split_error(rolled: quality.OpenLoop, limits: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """What a threshold on the uncertainty would have spared a rollout, `[seeds]` each.

    Args:
        rolled: fields `[seeds, T, B]`, on the host.
        limits: uncertainty at which rollouts would have stopped, `[seeds]`.

    Returns:
        The 95 % quantile of the errors before the stop, and the median of those from there on (NaN
        where there are none).
    """
    limit = np.asarray(limits)[:, None, None]
    stopped = np.maximum.accumulate(rolled.uncertainty > limit, axis=1)
    before, after = np.full((2, len(limit)), np.nan)
    for seed, (error, off) in enumerate(zip(rolled.error, stopped, strict=True)):
        if not off.all():
            before[seed] = np.quantile(error[~off], 0.95, method="lower")
        if off.any():
            after[seed] = np.median(error[off])
    return before, after


class RolledWorlds(NamedTuple):
    """One kind of ensemble on one pair; fields of `rolled` are `[seeds, T, B]`."""

    rolled: quality.OpenLoop
    trust: UncertaintyStats
    epochs: int


def run_pair(config: Config, pair: tuple[str, str], context: RunContext) -> dict[str, RolledWorlds]:
    """Fit both kinds of ensembles to the first dataset and roll them along the second."""
    sets = [load(name, config.seed) for name in pair]
    for dataset in sets:
        verify_checksum(dataset, context)
    fitted_to, along = (dataset.with_successors for dataset in sets)
    key = jax.random.key(config.seed)
    if pair[1] == PENDULUM:
        along = pendulum_mixed(jax.random.fold_in(key, 1))
    length = min(config.length, int(episodes(along).lengths.max()))
    logged = quality.windows(along, length, config.trajectories, seed=config.seed)
    step = max(1, len(fitted_to.rewards) // config.rows)
    rows = jax.tree.map(lambda x: x[::step], to_device(fitted_to))
    fit_key, roll_key = jax.random.split(key)
    found = {}
    for name, layer_norm in (("LN", True), ("no LN", False)):
        fitted = fit_world_models(
            replace(config.ensemble, layer_norm=layer_norm),
            fitted_to,
            fit_key,
            seeds=config.seeds,
            targets="observations",
            stage=f"{slug(pair[0])}-{slug(name)}",
            context=context,
        )
        fitter, how = fitted.model.fitter, {"disagreement": spread_of_means, "normalised": True}
        dynamics = learned_dynamics(fitter, fitted.model.elites, termination=never, **how)
        worlds = [jax.tree.map(lambda x, i=i: x[i], fitted.worlds) for i in range(config.seeds)]
        rolled = _stack([quality.open_loop(dynamics, world, logged, roll_key) for world in worlds])
        trust = _stack([uncertainty_stats(fitter, world, rows) for world in worlds])
        found[name] = RolledWorlds(rolled, trust, len(fitted.trained.history.records))
    return found


def _stack(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def run(config: Config, context: RunContext) -> Report:
    """All pairs: tables and claims."""
    report, ensemble = Report.of(context, config.seeds), config.ensemble
    for pair in config.pairs:
        found, title = run_pair(config, pair, context), " on ".join(map(slug, pair))
        report.table(title, [row for name in found for row in growth_rows(name, found[name])])
        report.table(f"{title}: trust", [trust_row(name, worlds) for name, worlds in found.items()])
        add_claims(report, title, found)
    report.note(
        f"{config.trajectories} stretches of logged actions, {config.seeds} ensembles of "
        f"{ensemble.members} ({ensemble.elites} kept), at most {ensemble.max_epochs} epochs. "
        "Errors are root mean squares over observation entries in standard deviations of the data "
        "a model was fitted to."
    )
    return report


def growth_rows(name: str, worlds: RolledWorlds) -> list[dict[str, Any]]:
    """Error after 1, 2, 4, ... steps, and after the last."""
    length, rows = worlds.rolled.error.shape[1], []
    for t in sorted({length, *(2**i for i in range(length.bit_length()))}):
        error = worlds.rolled.error[:, t - 1]
        row = {"model": name, "step": t, "median error": np.median(error, -1)}
        row["95 % quantile"] = np.quantile(error, 0.95, axis=-1, method="lower")
        rows.append(row | {"lost %": float(100.0 * np.isinf(error).mean())})
    return rows


def trust_row(name: str, worlds: RolledWorlds) -> dict[str, Any]:
    """What the spread knows about the error."""
    limits = {f"u({x:g})": threshold_at(worlds.trust, x) for x in LEVELS if x >= 0.9}
    before, after = split_error(worlds.rolled, limits["u(1)"])
    return {
        "model": name,
        "epochs": worlds.epochs,
        **limits,
        "Spearman of spread and error": rank_correlation(worlds.rolled),
        "95 % of errors up to u(1)": before,
        "median error above u(1)": after,
    }


def add_claims(report: Report, title: str, found: Mapping[str, RolledWorlds]) -> None:
    """What layer normalisation and the spread are good for."""
    claim, normalised = claims(report, SOURCE), found["LN"]
    last = {name: np.median(worlds.rolled.error[:, -1], -1) for name, worlds in found.items()}
    before, after = split_error(normalised.rolled, threshold_at(normalised.trust, 1.0))
    # fmt: off
    claim(f"{title}: without layer normalisation errors explode", last["no LN"] / last["LN"],
          at_least=10, means="median error at the end of the rollouts over that with it")
    claim(f"{title}: the spread knows the error", rank_correlation(normalised.rolled),
          at_least=0.5, means="Spearman correlation (paper: 0.84)")
    if np.isfinite(after / before).all():
        claim(f"{title}: errors are large beyond the data's largest spread", after / before,
              at_least=1, means="median error after the stop over the 95 % quantile before it")
    # fmt: on


# The architecture is the paper's; a quarter of an hour on two cores.
_CPU = Config(ensemble=replace(NEUBAY, members=6, elites=5, max_epochs=12), seeds=2, rows=20_000)
_TINY = replace(NEUBAY, members=3, elites=2, hidden_dims=(16,), max_epochs=1)

EXPERIMENT = LISTINGS["open_loop"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(((PENDULUM, PENDULUM),), _TINY, length=20, trajectories=8, rows=500),
        "cpu": _CPU,
        "paper": Config(((D4RL[0], D4RL[1]), (D4RL[1], D4RL[0]), (PENDULUM, PENDULUM))),
    },
    run=run,
)

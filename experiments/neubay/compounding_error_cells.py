"""World models with and without layer normalisation, rolled along logged actions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.scipy.stats import rankdata

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load_dataset
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, episodes, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.study.model_based import slug
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE, fit_worlds
from jaxrl_rollouts.offline.worlds.judge import OpenLoop, open_loop, windows
from jaxrl_rollouts.offline.worlds.trust import Trust, measure_trust, threshold
from jaxrl_rollouts.record.context import RunContext

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


class Case(NamedTuple):
    """One kind of ensemble on one pair; fields of `rolled` are `[seeds, T, B]`."""

    rolled: OpenLoop
    trust: Trust
    epochs: int


def run_pair(config: Config, pair: tuple[str, str], context: RunContext) -> dict[str, Case]:
    """Fit both kinds of ensembles to the first dataset and roll them along the second."""
    fitted_to, along = load_dataset(pair[0], config.seed), along_actions_of(pair[1], config)
    length = min(config.length, int(episodes(along.transitions).lengths.max()))
    logged = windows(along.transitions, length, config.trajectories, seed=config.seed)
    step = max(1, len(fitted_to) // config.rows)
    rows = jax.tree.map(lambda x: x[::step], to_device(fitted_to.transitions))
    fit_key, roll_key = jax.random.split(jax.random.key(config.seed))
    without = replace(config.ensemble, layer_norm=False)
    cases = {}
    for name, ensemble in (("LN", config.ensemble), ("no LN", without)):
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
        rolled = _stack([open_loop(dynamics, world, logged, roll_key) for world in worlds])
        trust = _stack([measure_trust(fitter, world, rows) for world in worlds])
        cases[name] = Case(rolled, trust, len(fitted.trained.history.records))
    return cases


def _stack(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def along_actions_of(name: str, config: Config) -> Dataset:
    """The dataset to roll along; one made on the spot gets other random numbers."""
    dataset = load_dataset(name, config.seed)
    if name != PENDULUM:
        return dataset
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    return replace(dataset, transitions=pendulum_mixed(key))


def rank_correlation(case: Case) -> np.ndarray:
    """Spearman correlation `[seeds]` of spread and error over all finite steps."""
    correlations = []
    for u, e in zip(case.rolled.uncertainty, case.rolled.error, strict=True):
        good = np.isfinite(u) & np.isfinite(e)
        correlations.append(np.corrcoef(rankdata(u[good]), rankdata(e[good]))[0, 1])
    return np.array(correlations)


def split_error(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Per seed: the 95 % quantile of errors before a rollout would have stopped at u(1), and the
    median of the errors from there on (NaN where none stopped)."""
    limit = np.asarray(threshold(case.trust, 1.0))[:, None, None]
    stopped = np.maximum.accumulate(case.rolled.uncertainty > limit, axis=1)
    before, after = [], []
    for error, off in zip(case.rolled.error, stopped, strict=True):
        before_stop, after_stop = error[~off], error[off]
        low = np.quantile(before_stop, 0.95, method="lower") if len(before_stop) else np.nan
        before.append(low)
        after.append(np.median(after_stop) if len(after_stop) else np.nan)
    return np.array(before), np.array(after)

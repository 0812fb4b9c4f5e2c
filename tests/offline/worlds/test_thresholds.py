"""Disagreement over a dataset, its quantiles, and worlds on disk that know their data."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble import max_pairwise, spread_of_means
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.worlds.dynamics import WorldModelParams, predict
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds, fit_world_models
from jaxrl_rollouts.offline.worlds.saved import load_worlds
from jaxrl_rollouts.offline.worlds.thresholds import (
    UncertaintyStats,
    threshold_at,
    uncertainties,
    uncertainty_stats,
    uncertainty_stats_of_seeds,
)
from jaxrl_rollouts.offline.worlds.written import FILE, save_worlds

CONFIG = EnsembleConfig(
    members=5,
    elites=4,
    hidden_dims=(8,),
    layer_norm=True,
    learned_bounds=False,
    bootstrap=False,
    weight_decay=(5e-5,),
    batch_size=64,
    max_epochs=2,
    holdout_rows=50,
)


@functools.cache
def rows() -> Transitions:
    rng = np.random.default_rng(0)
    s = rng.normal(size=(300, 3)).astype(np.float32) * np.array([1.0, 10.0, 0.1], np.float32)
    a = rng.uniform(-1, 1, (300, 2)).astype(np.float32)
    no = np.zeros(300, bool)
    return Transitions(s, a, s[:, 0] + a[:, 0], s * 0.9, no, no)


@functools.cache
def fitted() -> FittedWorlds:
    return fit_world_models(CONFIG, rows(), jax.random.key(0), seeds=2, targets="observations")


def world(seed: int = 0) -> WorldModelParams:
    return jax.tree.map(lambda x: x[seed], fitted().worlds)


def test_spread_at_every_row_in_the_units_of_the_targets() -> None:
    fitter = fitted().model.fitter
    said = predict(fitter, world(), rows().observations, rows().actions)
    means = np.asarray(said.mean) / np.asarray(world().targets.std)
    want = np.sqrt(means.var(0).mean(-1))
    for chunk in (7, 128, 1000):  # pieces that do and do not divide the rows
        got = uncertainties(fitter, world(), rows().observations, rows().actions, chunk=chunk)
        np.testing.assert_allclose(got, want, rtol=1e-4)
    wide = uncertainties(fitter, world(), rows().observations, rows().actions, max_pairwise)
    assert (wide > got).all()


def test_quantiles_and_thresholds() -> None:
    fitter = fitted().model.fitter
    levels = (1.0, 0.5, 0.9)
    found = np.asarray(uncertainties(fitter, world(), rows().observations, rows().actions))
    stats = uncertainty_stats(fitter, world(), rows(), levels)
    np.testing.assert_allclose(stats.levels, [0.5, 0.9, 1.0])
    np.testing.assert_allclose(stats.quantiles, np.quantile(found, [0.5, 0.9, 1.0]), rtol=1e-4)
    np.testing.assert_allclose(stats.mean, found.mean(), rtol=1e-5)
    assert threshold_at(stats, 1.0) == pytest.approx(found.max(), rel=1e-5)
    assert np.isinf(threshold_at(stats, -1.0))
    with pytest.raises(ConfigError, match=r"quantile: found 0.99, expected one of 0.5, 0.9, 1"):
        threshold_at(stats, 0.99)
    for wrong in ((1.1,), (-0.1,)):
        with pytest.raises(ConfigError, match="levels"):
            uncertainty_stats(fitter, world(), rows(), wrong)
    empty = Transitions(*(x[:0] for x in rows()))
    with pytest.raises(ConfigError, match="transitions: found .no rows."):
        uncertainty_stats(fitter, world(), empty)


def of_seeds() -> UncertaintyStats:
    return uncertainty_stats_of_seeds(fitted().model.fitter, fitted().worlds, rows())


def test_seeds_have_thresholds_of_their_own() -> None:
    both = threshold_at(of_seeds(), 1.0)
    assert both.shape == (2,) and both[0] != both[1]
    one = threshold_at(uncertainty_stats(fitted().model.fitter, world(1), rows()), 1.0)
    np.testing.assert_allclose(both[1], one, rtol=1e-5)
    assert threshold_at(of_seeds(), -1.0).shape == (2,)


def dataset(**changes: Any) -> Dataset:
    return replace(Dataset("plane-v0", rows(), None, Path("x.hdf5"), "ab" * 32), **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("worlds") / "plane"
    return save_worlds(where, fitted().worlds, dataset(), CONFIG, "observations", stats=of_seeds())


def test_worlds_come_back_as_they_were(folder: Path) -> None:
    found = load_worlds(folder, dataset())
    for a, b in (
        (found.worlds, fitted().worlds),
        (found.stats, of_seeds()),
        (found.model.data, fitted().model.data),
    ):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    assert found.model.elites == 4 and found.facts["versions"]["jax"] == jax.__version__
    ones = jnp.ones((4, 3)), jnp.ones((4, 2))
    said, want = (
        predict(m.model.fitter, jax.tree.map(lambda x: x[1], m.worlds), *ones)
        for m in (found, fitted())
    )
    np.testing.assert_array_equal(said.mean, want.mean)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sha256": "cd" * 32}, "sha256"),
        ({"transitions": Transitions(*(x[:-1] for x in rows()))}, "rows"),
        ({"transitions": rows()._replace(observations=np.ones((300, 2)))}, "observation_size"),
        ({"transitions": rows()._replace(actions=np.ones((300, 1)))}, "action_size"),
    ],
)
def test_worlds_of_another_dataset_are_refused(folder: Path, changes: dict, named: str) -> None:
    with pytest.raises(DataError, match=f"{FILE}.*{named}"):
        load_worlds(folder, dataset(**changes))


def test_broken_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        load_worlds(tmp_path / "none", dataset())
    facts = json.loads((folder / FILE).read_text())
    del facts["digest"]
    (tmp_path / FILE).write_text(json.dumps(facts | {"format": 99}))
    with pytest.raises(CheckpointError, match="format: found 99"):
        load_worlds(tmp_path, dataset())
    (tmp_path / FILE).write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="no undamaged checkpoint"):
        load_worlds(tmp_path, dataset())


def test_spread_of_means_is_the_default() -> None:
    fitter, one = fitted().model.fitter, world()
    a = uncertainties(fitter, one, rows().observations, rows().actions)
    b = uncertainties(fitter, one, rows().observations, rows().actions, spread_of_means)
    np.testing.assert_array_equal(a, b)

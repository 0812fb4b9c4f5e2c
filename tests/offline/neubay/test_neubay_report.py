"""NEUBAY's tables and pictures."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.fit_data import part_rows
from jaxrl_rollouts.offline.data import Dataset, Transitions, to_device
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.neubay.posterior import Posterior
from jaxrl_rollouts.offline.neubay.report import estimated_and_true, part_spreads
from jaxrl_rollouts.offline.worlds.dynamics import uncertainties
from jaxrl_rollouts.offline.worlds.fit import fit_worlds
from jaxrl_rollouts.offline.worlds.trust import uncertainty_stats_of_seeds
from jaxrl_rollouts.reports.pictures import figure


def test_right_estimates_lie_on_the_dotted_line() -> None:
    _, (ax,) = figure()
    estimated_and_true(ax, {"base": (np.array([5.0, np.nan]), np.array([1.0, 2.0]))})
    assert tuple(ax.lines[0].get_xdata()) == tuple(ax.lines[0].get_ydata()) == (1.0, 5.0)
    assert ax.lines[1].get_ydata()[0] == pytest.approx(5.0)


def test_spreads_are_separate_for_fitted_and_held_out_rows() -> None:
    """Rows that lie elsewhere, and all of them held out, are disagreed about."""
    config = EnsembleConfig(3, 3, (8,), weight_decay=(5e-5,), max_epochs=1, holdout_rows=20)
    random = np.random.default_rng(0)
    s, a = (random.normal(size=(200, n)).astype(np.float32) for n in (4, 1))
    _, held = part_rows(config, 200)
    s[held] *= 50.0
    no = np.zeros(200, bool)
    rows = Transitions(s, np.tanh(a), s[:, 0], 0.9 * s, no, no)
    model, worlds, trained = fit_worlds(
        config, rows, jax.random.key(0), seeds=2, targets="observations"
    )
    stats = uncertainty_stats_of_seeds(model.fitter, worlds, to_device(rows))
    dataset, env = Dataset("scattered", rows, None, Path("[made]"), ""), make("pendulum")
    posterior = Posterior(dataset, env, model, worlds, stats, trained, config, never)
    learned, apart = part_spreads(posterior)
    assert (learned["count"], apart["count"]) == (180, 20)
    for level in (0.5, 0.9, 0.999):
        assert (apart[f"spread at {level:g}"] > 5 * learned[f"spread at {level:g}"]).all()
    first = jax.tree.map(lambda x: x[0], worlds)
    direct = uncertainties(model.fitter, first, s[held], np.tanh(a)[held])
    np.testing.assert_allclose(apart["spread at 0.5"][0], np.median(direct), rtol=1e-4)

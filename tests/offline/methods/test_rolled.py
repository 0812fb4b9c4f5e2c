"""What a training hands to its rollouts: where they end, in what units, in which world models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.method import Method
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.report import world_row
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.offline.worlds.quality import LEVELS, quality
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.run import Run

LOOKS: dict[str, Any] = {"evaluations": 1, "episodes": 2}


def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


def small(name: str, **rollouts: object) -> Method:
    sizes = {"every": 5, "batch_size": 50, **rollouts}
    world = {"hidden_dims": (16, 16), "max_epochs": 3}
    agent = {"hidden_dims": (16,)}
    return recipe(name, "small", steps=10, rollouts=sizes, world=world, agent=agent)


@pytest.mark.parametrize("name", ["mopo", pytest.param("ravl", marks=pytest.mark.slow)])
def test_adaptive_rollouts_are_cut_where_members_disagree_more_than_on_the_data(name: str) -> None:
    fixed, adaptive = (
        train(dataset(), small(name, length=200, adaptive=on), **LOOKS) for on in (False, True)
    )
    lengths = [o.trained.history.last("imagined_length") for o in (fixed, adaptive)]
    assert (lengths[0] == 200.0).all()  # a pendulum's episodes end by their length only
    assert (lengths[1] < 200.0).all() and (lengths[1] >= 1.0).all()


def test_ensembles_are_shown_by_their_selection_metric() -> None:
    method = small("base")
    method = replace(method, world=replace(method.world, selection_metric="nll"))
    result = train(dataset(), method, **LOOKS)
    found = quality(result.source)
    row = world_row(result.source, found)
    nll = result.source.fitted.trained.history.last("best_holdout_nll")
    np.testing.assert_array_equal(row["holdout NLL"], nll)
    assert "holdout MSE" not in row
    assert found.errors.shape == found.unchanged.shape == (50, 200)
    assert found.inside.shape == (len(LEVELS),) and (np.diff(found.inside) >= 0).all()
    assert quality(result.source, horizon=7).errors.shape == (7, 200)


def test_units_of_fitted_models_are_refused_for_given_dynamics() -> None:
    truth = true_dynamics(make("pendulum"))
    with pytest.raises(ConfigError, match="raw with dynamics of your own") as caught:
        train(dataset(), replace(small("mopo"), penalty_scale="mean"), dynamics=truth)
    assert caught.value.setting == "penalty_scale"


def test_an_agent_is_not_taken_for_one_of_other_world_models(tmp_path: Path) -> None:
    method = small("base")
    folder = RunFolder.create(tmp_path, "toy", "test", method, "nothing")
    context = RunContext(folder, progress=False)
    train(dataset(), method, **LOOKS, context=context)
    learned = replace(method, world=replace(method.world, termination="learned"))
    with pytest.raises(CheckpointError, match="termination: found a training with 'known'"):
        train(dataset(), learned, **LOOKS, context=context)


def test_another_world_model_is_another_training(tmp_path: Path) -> None:
    config = EnsembleConfig(hidden_dims=(16,), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2)
    with Run.open(tmp_path, progress=False) as run:
        offline.fit_world_models(config, dataset(), context=run)
        with pytest.raises(CheckpointError, match="lr: found a training with 0.001"):
            offline.fit_world_models(replace(config, lr=2e-3), dataset(), context=run)
        with pytest.raises(CheckpointError, match="targets: found .* 'change', expected 'raw'"):
            offline.fit_world_models(config, dataset(), targets="raw", context=run)
        with pytest.raises(CheckpointError, match="keys of the seeds"):
            offline.fit_world_models(config, dataset(), key=1, context=run)

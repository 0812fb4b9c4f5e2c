"""What a study hands to its rollouts: where they end, in what units, in which world models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.study import small_budget, train
from jaxrl_rollouts.offline.study.budget import Budget
from jaxrl_rollouts.offline.study.page import world_row
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder


def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


def budget(**rollouts: object) -> Budget:
    study = small_budget().study
    changed = replace(study.rollouts, updates_per_epoch=5, rollouts_per_epoch=50, **rollouts)
    study = replace(study, epochs=2, evaluations=2, episodes=2, seeds=2, rollouts=changed)
    return replace(small_budget(), study=study)


@pytest.mark.parametrize("method", ["ravl", "mopo"])
def test_adaptive_rollouts_are_cut_where_members_disagree_more_than_on_the_data(
    method: str,
) -> None:
    fixed, adaptive = (
        train(dataset(), method, budget(horizon=200, adaptive=on)) for on in (False, True)
    )
    lengths = [o.trained.history.last("imagined_length") for o in (fixed, adaptive)]
    assert (lengths[0] == 200.0).all()  # a pendulum's episodes end by their length only
    assert (lengths[1] < 200.0).all() and (lengths[1] >= 1.0).all()


def test_ensembles_are_shown_by_what_they_were_judged_by() -> None:
    small = budget()
    networks = replace(small.study.ensemble, judge="nll")
    judged = replace(small, study=replace(small.study, ensemble=networks))
    outcome = train(dataset(), "base", judged)
    row = world_row(outcome.source)
    found = outcome.source.fitted.trained.history.last("best_holdout_nll")
    np.testing.assert_array_equal(row["holdout NLL"], found)
    assert "holdout MSE" not in row


def test_units_of_fitted_models_are_refused_for_given_dynamics() -> None:
    truth = true_dynamics(make("pendulum"))
    with pytest.raises(ConfigError, match="raw with dynamics of your own") as caught:
        train(dataset(), Mopo(penalty=5.0, unit="mean"), budget(), dynamics=truth)
    assert caught.value.setting == "study.methods.mopo.unit"


def test_an_agent_is_not_taken_for_one_of_other_world_models(tmp_path: Path) -> None:
    small = budget()
    folder = RunFolder.create(tmp_path, "toy", "test", small, "nothing")
    context = RunContext(folder, progress=False)
    train(dataset(), "base", small, context=context)
    learned = replace(small, study=replace(small.study, termination="learned"))
    with pytest.raises(CheckpointError, match="termination: found a training with 'known'"):
        train(dataset(), "base", learned, context=context)

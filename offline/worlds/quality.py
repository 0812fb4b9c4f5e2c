"""Accuracy of fitted world models: open-loop error and calibration, for reports."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.fit_data import part_rows

from ..data import episodes, to_device
from ..task import termination_of
from .dynamics import learned_dynamics
from .fit import FittedDataset
from .open_loop import calibration, open_loop, unchanged, windows

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
HORIZON = 50  # steps at most over which the open-loop error is measured
LOOK = 2**31  # a stream that no split reaches: `split(key, n)[i]` is `fold_in(key, i)`


class Quality(NamedTuple):
    """What a world model gets right.

    Attributes:
        errors: `[T, B]` open-loop error in dataset standard deviations.
        inside: `[levels]` share of outcomes inside the central intervals of `LEVELS`, of rows that
            were held out.
        unchanged: as `errors`, of a model that predicts no change.
    """

    errors: np.ndarray
    inside: np.ndarray
    unchanged: np.ndarray


def quality(fitted: FittedDataset, horizon: int = HORIZON) -> Quality:
    """Measure the first world model.

    Args:
        fitted: a dataset with its world models.
        horizon: steps; at most the longest episode of the dataset.
    """
    rows, config = fitted.reward.of(fitted.dataset.with_successors), fitted.config
    horizon = min(horizon, int(episodes(rows).lengths.max()))
    logged = windows(rows, horizon, 200)
    model, first = fitted.fitted.model, fitted.fitted.world(0)
    rule = termination_of(fitted.dataset, fitted.env, config)
    dynamics = learned_dynamics(model.fitter, config.elites, termination=rule)
    look_key = jax.random.fold_in(jax.random.key(fitted.seed), LOOK)
    errors = open_loop(dynamics, first, logged, look_key).error
    unseen = part_rows(config, len(rows.rewards))[1]
    held_out = to_device(jax.tree.map(lambda x: x[unseen], rows))
    inside = calibration(model.fitter, first, held_out, LEVELS)
    still = unchanged(logged, np.asarray(first.inputs.std)[: rows.observations.shape[1]])
    return Quality(np.asarray(errors), np.asarray(inside), still)

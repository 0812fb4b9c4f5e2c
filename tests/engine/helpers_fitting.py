"""Rows of a linear system with Gaussian noise, and an ensemble small enough for them."""

from __future__ import annotations

import numpy as np

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.fit_data import FitData, split_holdout

SMALL = EnsembleConfig(
    members=3,
    elites=2,
    hidden_dims=(16,),
    lr=1e-2,
    weight_decay=(0.0,),
    batch_size=64,
    max_epochs=40,
    holdout_rows=200,
)
SLOPE = np.array([[1.0, -0.5], [0.3, 0.8]], np.float32)
NOISE = np.array([0.2, 0.5], np.float32)


def linear_data(config: EnsembleConfig = SMALL, rows: int = 2000) -> FitData:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    y = x @ SLOPE + NOISE * rng.normal(size=(rows, 2)).astype(np.float32)
    return split_holdout(config, x, y)


DATA = linear_data()

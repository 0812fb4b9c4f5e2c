"""Rows of ensembles: holdouts, and members that learn from groups of rows of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fit_data import part_rows, split_holdout
from jaxrl_rollouts.fitting import FitParts, epoch_order, make_fitter, select_snapshots

TWO = EnsembleConfig(
    members=4, elites=4, hidden_dims=(16,), lr=1e-2, weight_decay=(0.0,), batch_size=32,
    max_epochs=30, patience=30, variance="output",
)  # fmt: skip


def test_split_holdout() -> None:
    x = np.arange(50.0)[:, None]
    data = split_holdout(EnsembleConfig(), x, 2 * x)
    assert data.holdout_inputs.shape == (10, 1) and data.inputs.shape == (40, 1)
    rows = np.concatenate([data.inputs, data.holdout_inputs])[:, 0]
    assert sorted(rows) == list(range(50))
    kept, held = part_rows(EnsembleConfig(), 50)
    np.testing.assert_array_equal(data.inputs[:, 0], kept)
    np.testing.assert_array_equal(data.holdout_inputs[:, 0], held)
    np.testing.assert_array_equal(data.targets, 2 * data.inputs)
    np.testing.assert_array_equal(data.holdout_targets, 2 * data.holdout_inputs)
    assert len(split_holdout(EnsembleConfig(holdout_rows=3), x, x).holdout_inputs) == 3
    other = split_holdout(EnsembleConfig(), x, x, seed=1)
    assert set(other.holdout_inputs[:, 0].tolist()) != set(data.holdout_inputs[:, 0].tolist())
    with pytest.raises(ConfigError, match="rows: found 4"):
        split_holdout(EnsembleConfig(), x[:4], x[:4])


def opposed(rows: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`y = x` in the first third and `y = -x` in the rest: which is which no input tells."""
    x = np.random.default_rng(0).normal(size=(rows, 1)).astype(np.float32)
    groups = (np.arange(rows) >= rows // 3).astype(int)
    return x, np.where(groups[:, None], -x, x), groups


def test_the_holdout_does_not_depend_on_groups() -> None:
    x, y, groups = opposed()
    alone, own = split_holdout(TWO, x, y), split_holdout(TWO, x, y, groups=groups)
    for a, b in zip(alone[:4], own[:4], strict=True):
        np.testing.assert_array_equal(a, b)
    assert alone.own is None and own.own is not None


def test_members_see_rows_of_their_group_and_all_of_them() -> None:
    x, y, groups = opposed()
    config = replace(TWO, bootstrap=False)
    data = split_holdout(config, x, y, groups=groups)
    assert data.own is not None
    fitter = make_fitter(config, 1, 1)
    state = fitter.init(jax.random.key(0))
    parts = FitParts(config, fitter.ensemble, None)  # type: ignore[arg-type]
    seen: list[Any] = [epoch_order(parts, state._replace(epoch=jnp.int32(e)), data) for e in (0, 1)]
    index = np.concatenate(seen).swapaxes(0, 1).reshape(4, -1)
    slope = np.asarray(data.targets / data.inputs)[:, 0]
    for member, want in enumerate((1, -1, 1, -1)):
        np.testing.assert_allclose(slope[index[member]], want, rtol=1e-6)
        own = np.flatnonzero(np.isclose(slope, want))
        # A batch that is not full is left out of an epoch, not always of the same rows.
        assert set(index[member]) <= set(own) and len(set(index[member])) > 0.98 * len(own)


@pytest.mark.parametrize("by", ["mse", "nll"])
def test_members_are_evaluated_on_their_group(by: Any) -> None:
    x, y, groups = opposed()
    config = replace(TWO, selection_metric=by)
    data = split_holdout(config, x, y, groups=groups)
    fitter = make_fitter(config, 1, 1)
    params = fitter.init(jax.random.key(0)).params
    parts = FitParts(config, fitter.ensemble, None)  # type: ignore[arg-type]
    found, _ = select_snapshots(parts, params, jnp.full(4, jnp.inf), data)
    mean, log_var = map(np.asarray, fitter.ensemble.apply_all(params, data.holdout_inputs))
    held = np.asarray(data.holdout_targets)
    if by == "mse":
        each = (mean - held)[..., 0] ** 2
    else:
        squared = (mean - held) ** 2 / np.exp(log_var)
        each = 0.5 * (squared + log_var + np.log(2 * np.pi))[..., 0]
    group = np.where(np.isclose(held / np.asarray(data.holdout_inputs), 1.0), 0, 1)[:, 0]
    for member in range(4):
        rows = each[member, group == member % 2]
        # Of the smaller group some rows count twice.
        assert rows.min() <= found[member] <= rows.max()
        np.testing.assert_allclose(found[member], rows.mean(), rtol=0.15)


@pytest.mark.parametrize(
    ("groups", "change", "setting", "says"),
    [
        (np.zeros(40, int), {}, "groups", "one number for each row"),
        (np.repeat([0, 2], 25), {}, "groups", "every number from 0 to 2"),
        (np.repeat([0, 1, 2], [20, 20, 10]), {}, "members", "multiple of the 3 groups"),
        (np.repeat([0, 1], 25), {"elites": 2}, "elites", "each stands for its group"),
        (np.r_[1, np.zeros(49, int)], {}, "groups", "rows of every group"),
    ],
)
def test_groups_are_checked(groups: np.ndarray, change: dict, setting: str, says: str) -> None:
    x = np.arange(50.0)[:, None]
    with pytest.raises(ConfigError, match=says) as caught:
        split_holdout(replace(TWO, **change), x, x, groups=groups)
    assert caught.value.setting == setting

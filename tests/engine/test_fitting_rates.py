"""Fitted ensembles: weight decay, rates, holdouts, and rows of members' own groups."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers_fitting import DATA, SMALL

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fit_data import part_rows, split_holdout
from jaxrl_rollouts.fitting import (
    FitParts,
    _optimiser,
    annealed,
    epoch_order,
    gaussian_network,
    judge,
    make_fitter,
    next_rate,
)


@pytest.mark.parametrize("decay", [(0.1, 0.2, 0.4), (0.3,)])
def test_weight_decay_is_per_layer_and_spares_all_but_kernels(decay: tuple) -> None:
    config = EnsembleConfig(
        hidden=(5, 4), layer_norm=True, lr=2.0, weight_decay=decay, decay="decoupled"
    )
    optimiser = _optimiser(config)
    params = gaussian_network(config, 3, 2).init(jax.random.key(0))
    params = jax.tree.map(lambda p: p + 1.0, params)
    nothing = jax.tree.map(jnp.zeros_like, params)
    step, _ = optimiser.update(nothing, optimiser.init(params), params)
    each = [*decay, decay[-1]] if len(decay) > 1 else decay * 4  # two heads share the last layer's
    strengths = {f"Dense_{i}": strength for i, strength in enumerate(each)}
    decayed = set()
    for path, leaf in jax.tree_util.tree_flatten_with_path(step)[0]:
        names = [p.key for p in path]
        strength = strengths[names[-2]] if names[-1] == "kernel" else 0.0
        want = functools.reduce(lambda tree, name: tree[name], names, params) * -2.0 * strength
        np.testing.assert_allclose(leaf, want, rtol=1e-6)
        decayed |= {names[-2]} if strength else set()
    assert decayed == set(strengths)


def test_coupled_decay_is_part_of_the_gradient_that_adam_scales() -> None:
    config = EnsembleConfig(hidden=(5,), lr=0.5, weight_decay=(0.3,))
    params = gaussian_network(config, 3, 2).init(jax.random.key(0))
    gradient = jax.tree.map(lambda p: 0.1 * jnp.cos(7.0 * p) + 0.2, params)
    ours, theirs = _optimiser(config), optax.adam(0.5)
    state, moments = ours.init(params), theirs.init(params)
    for _ in range(3):
        step, state = ours.update(gradient, state, params)
        penalised = jax.tree_util.tree_map_with_path(
            lambda path, g, p: g + 0.3 * p if path[-1].key == "kernel" else g, gradient, params
        )
        want, moments = theirs.update(penalised, moments, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), step, want)


@pytest.mark.slow
def test_the_rate_falls_along_a_cosine_over_the_epochs() -> None:
    config = replace(SMALL, cosine=True, max_epochs=4, patience=9)
    f = make_fitter(config, 2, 2)
    update, state, rates = jax.jit(f.update), f.init(jax.random.key(5)), []
    for _ in range(5):
        state, _ = update(state, DATA)
        rates.append(float(state.opt_state[-1]))
    want = 0.5 * SMALL.lr * (1 + np.cos(np.pi * np.array([0, 0.25, 0.5, 0.75, 1])))
    np.testing.assert_allclose(rates, want, rtol=1e-5, atol=1e-9)


def test_rates_as_functions_of_the_epoch() -> None:
    """What the two slow tests see in a fit, here by itself."""
    parts: Any = SimpleNamespace(config=replace(SMALL, cosine=True, max_epochs=8))
    rates = [float(annealed(parts, ("moments", 9.9), jnp.int32(at))[-1]) for at in (0, 2, 4, 8, 20)]
    shares = np.array([1.0, 0.5 + np.sqrt(0.125), 0.5, 0.0, 0.0])
    np.testing.assert_allclose(rates, SMALL.lr * shares, atol=1e-8)
    parts = SimpleNamespace(config=replace(SMALL, lr_drop=0.3))
    full = jnp.float32(SMALL.lr)
    for early, rate, want, said in [
        (True, full, 0.3 * SMALL.lr, True),
        (True, 0.3 * full, 0.3 * SMALL.lr, False),  # once only
        (False, full, SMALL.lr, False),
    ]:
        (_, found), lowered = next_rate(parts, ("moments", rate), jnp.bool_(early))
        np.testing.assert_allclose(found, want, rtol=1e-6)
        assert bool(lowered) == said


@pytest.mark.slow
def test_patience_before_the_least_epochs_lowers_the_rate_once() -> None:
    config = replace(SMALL, patience=2, improvement=0.9, min_epochs=9, lr_drop=0.3, max_epochs=30)
    f = make_fitter(config, 2, 2)
    update, state = jax.jit(f.update), f.init(jax.random.key(5))
    rates, stale, done = [], [], []
    for _ in range(12):
        state, metrics = update(state, DATA)
        rates.append(float(state.opt_state[-1]) / config.lr)
        stale.append(int(state.stale))
        done.append(f.finished(jax.tree.map(np.asarray, metrics)))
    dropped = next(i for i, rate in enumerate(rates) if rate < 0.9)
    np.testing.assert_allclose(rates[dropped:], 0.3, rtol=1e-6)
    assert stale[dropped] == 0 and dropped < 8
    assert stale[dropped + 1 : dropped + 3] == [1, 2]  # patience begins anew, and runs out again
    assert done.index(True) == 8 and int(state.epoch) == 9  # and then all stand still


TWO = EnsembleConfig(
    members=4, elites=4, hidden=(16,), lr=1e-2, weight_decay=(0.0,), batch_size=32,
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
def test_members_are_judged_on_their_group(by: Any) -> None:
    x, y, groups = opposed()
    config = replace(TWO, selection_metric=by)
    data = split_holdout(config, x, y, groups=groups)
    fitter = make_fitter(config, 1, 1)
    params = fitter.init(jax.random.key(0)).params
    parts = FitParts(config, fitter.ensemble, None)  # type: ignore[arg-type]
    found, _ = judge(parts, params, jnp.full(4, jnp.inf), data)
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

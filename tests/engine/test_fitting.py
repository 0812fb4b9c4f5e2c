"""Fitting Gaussian ensembles: what is learned, which epoch is kept and when it ends."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import wrong
from helpers_fitting import DATA, NOISE, SLOPE, SMALL

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import (
    FitParts,
    FitState,
    elite_members,
    gaussian_network,
    loss,
    make_fitter,
    make_optimiser,
)
from jaxrl_rollouts.loop import train_loop


@functools.cache
def fitter() -> Any:
    return make_fitter(SMALL, 2, 2)


def fit(fitter: Any, config: EnsembleConfig, keys: jax.Array) -> Any:
    return train_loop(
        fitter.update,
        fitter.init,
        keys,
        DATA,
        iterations=config.max_epochs,
        stage="fit",
        finished=fitter.finished,
    )


@functools.cache
def fitted() -> FitState:
    return seed_of(fit(fitter(), SMALL, jax.random.split(jax.random.key(0), 1)).state, 0)


def seed_of(state: FitState, i: int) -> FitState:
    return jax.tree.map(lambda x: x[i], state)


def test_a_linear_gaussian_system_is_recovered() -> None:
    x = DATA.holdout_inputs
    mean, log_var = fitter().ensemble.apply_all(fitted().best, x)
    for member in range(SMALL.members):
        error = np.abs(mean[member] - x @ SLOPE)
        assert error.mean() < 0.06
        np.testing.assert_allclose(np.exp(0.5 * log_var[member]).mean(0), NOISE, rtol=0.15)


def test_seeds_side_by_side_are_single_fits() -> None:
    """A seed that is done stands still until the others are done, too."""
    config = replace(SMALL, patience=1, improvement=0.3, lr=3e-3)  # few epochs
    f, keys = make_fitter(config, 2, 2), jax.random.split(jax.random.key(0), 4)
    together = fit(f, config, keys)
    lengths = []
    for i in range(4):
        single = fit(f, config, keys[i : i + 1])
        lengths.append(single.history.records[-1].iteration)
        a, b = seed_of(single.state, 0), seed_of(together.state, i)
        assert int(a.stale) == int(b.stale) == 1
        assert int(a.epoch) == int(b.epoch)
        for x, y in ((a.params, b.params), (a.best, b.best), (a.best_loss, b.best_loss)):
            jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=2e-3, atol=2e-4), x, y)
    assert len(set(lengths)) > 1  # otherwise nothing was tested
    assert together.history.records[-1].iteration == max(lengths) < config.max_epochs


def test_the_best_epoch_of_each_member_is_kept_and_then_all_stand_still() -> None:
    config = replace(SMALL, patience=2, lr=3e-2, improvement=0.1)
    f = make_fitter(config, 2, 2)
    update, predict = jax.jit(f.update), jax.jit(f.ensemble.apply_all)
    state = f.init(jax.random.key(5))
    snapshots, best = [None] * 3, np.full(3, np.inf)
    stale, epochs = 0, 0
    while stale < config.patience:
        state, metrics = update(state, DATA)
        mean = np.asarray(predict(state.params, DATA.holdout_inputs)[0])
        loss = np.square(mean - np.asarray(DATA.holdout_targets)).mean((1, 2))
        better = loss < best * 0.9
        for i in np.flatnonzero(better):
            snapshots[i], best[i] = jax.tree.map(lambda p, i=i: p[i], state.params), loss[i]
        stale = 0 if better.any() else stale + 1
        epochs += 1
        assert int(metrics["stale_epochs"]) == stale
        np.testing.assert_allclose(state.best_loss, best, rtol=1e-4)
        assert f.finished({"stale_epochs": np.array([stale])}) == (stale == config.patience)
    assert 3 <= epochs < 60
    for i in range(3):
        kept = jax.tree.map(lambda p, i=i: p[i], state.best)
        jax.tree.map(np.testing.assert_array_equal, kept, snapshots[i])
    later, _ = update(state, DATA)
    later = later._replace(key=jax.random.key_data(later.key))
    state = state._replace(key=jax.random.key_data(state.key))
    jax.tree.map(np.testing.assert_array_equal, later, state)


def test_finished_waits_for_all_seeds() -> None:
    assert not fitter().finished({"stale_epochs": np.array([5, 4])})
    assert fitter().finished({"stale_epochs": np.array([5, 6])})


def test_elites_come_best_first() -> None:
    state = fitted()._replace(best_loss=jnp.array([0.3, 0.1, 0.2]))
    assert elite_members(state, 2).tolist() == [1, 2]
    assert elite_members(state, 3).tolist() == [1, 2, 0]


def first_gradients(bootstrap: bool, batch: int, count: int, same: bool = True) -> np.ndarray:
    """Each member's mean gradient (Adam's first moment) in an epoch, members starting equal."""
    config = replace(SMALL, bootstrap=bootstrap, batch_size=batch)
    f = make_fitter(config, 2, 2)
    state = f.init(jax.random.key(0))
    if same:
        state = state._replace(params=jax.tree.map(lambda p: jnp.stack([p[0]] * 3), state.params))
    state = state._replace(epoch=jnp.int32(count))
    moment = jax.jit(f.update)(state, DATA)[0].opt_state[1].mu
    return np.concatenate([leaf.reshape(3, -1) for leaf in jax.tree.leaves(moment)], -1)


def test_bootstrap_samples_differ_between_members_and_stay_over_epochs() -> None:
    whole = len(DATA.inputs)  # one step per epoch: the order of rows does not matter
    plain = first_gradients(False, whole, 0)
    np.testing.assert_allclose(plain - plain[:1], 0.0, atol=1e-5)
    drawn = first_gradients(True, whole, 0)
    gaps = [np.abs(drawn[i] - drawn[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(gaps) > 1e-3
    np.testing.assert_allclose(first_gradients(True, whole, 40), drawn, atol=1e-5)


def test_the_order_of_rows_differs_between_members_and_epochs() -> None:
    half = len(DATA.inputs) // 2 + 1  # one step per epoch, on a part of the rows
    first, later = first_gradients(False, half, 0), first_gradients(False, half, 40)
    assert np.abs(first[0] - first[1]).max() > 1e-3
    assert np.abs(first[0] - later[0]).max() > 1e-3


def drawn(config: EnsembleConfig) -> tuple[Any, ...]:
    """A fitter, what its functions are bound to, fresh parameters, and rows of their own."""
    f, rng = make_fitter(config, 2, 2), np.random.default_rng(1)
    x, y = (rng.normal(size=(SMALL.members, 7, 2)).astype(np.float32) for _ in range(2))
    parts = FitParts(config, f.ensemble, make_optimiser(config))
    return f, parts, f.init(jax.random.key(0)).params, x, y


def test_the_loss_is_the_public_codes_with_bounds_shared_by_the_members() -> None:
    """OfflineRL-Kit: `sum_n mean((m - y)^2 / var + log var) + 0.01 (sum high - sum low)`."""
    f, parts, params, x, y = drawn(SMALL)
    mean, log_var = map(np.asarray, f.ensemble.apply_each(params, x))
    want = ((y - mean) ** 2 / np.exp(log_var) + log_var).mean((1, 2)).sum()
    want += 0.01 * (2 * 0.5 + 2 * 10.0)
    constant = SMALL.members * np.log(2 * np.pi)
    got, _ = loss(params, parts, x, y)
    np.testing.assert_allclose(float(got) - constant, want, rtol=1e-5)


def test_one_variance_for_each_output_is_least_squares_with_the_noise_beside_it() -> None:
    config = replace(SMALL, variance="output")
    f, parts, params, x, y = drawn(config)
    mean, _ = map(np.asarray, f.ensemble.apply_each(params, x))
    plain = SMALL.members * np.log(2 * np.pi)  # the variances begin at one
    got = float(loss(params, parts, x, y)[0]) - plain
    np.testing.assert_allclose(got, ((y - mean) ** 2).mean((1, 2)).sum(), rtol=1e-4)
    end = seed_of(fit(f, config, jax.random.split(jax.random.key(0), 1)).state, 0)
    mean, log_var = map(np.asarray, f.ensemble.apply_all(end.best, DATA.holdout_inputs))
    assert np.abs(mean - DATA.holdout_inputs @ SLOPE).mean() < 0.06
    assert np.ptp(log_var, axis=1).max() == 0.0  # over rows
    np.testing.assert_allclose(np.exp(0.5 * log_var[:, 0]), NOISE[None].repeat(3, 0), rtol=0.15)


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_rows_count_by_a_power_of_their_variance_as_seitzer_et_al_have_it(beta: float) -> None:
    """Equation 5 of arXiv 2203.09168; at one the mean's gradient is that of least squares."""
    config = replace(SMALL, beta=beta, learned_bounds=False)
    f, parts, params, x, y = drawn(config)
    mean, log_var = map(np.asarray, f.ensemble.apply_each(params, x))
    var, residual = np.exp(log_var), mean - y
    nll = 0.5 * (residual**2 / var + log_var + np.log(2 * np.pi))
    want = 2.0 * (var**beta * nll).mean((1, 2)).sum()
    slope, _ = jax.grad(loss, has_aux=True)(params, parts, x, y)
    np.testing.assert_allclose(float(loss(params, parts, x, y)[0]), want, rtol=1e-5)
    heads = slope["MLP_0"]
    pulled = 2.0 * var ** (beta - 1.0) * residual / (7 * 2)
    np.testing.assert_allclose(heads["Dense_1"]["bias"], pulled.sum(1), rtol=1e-4, atol=1e-6)
    assert np.abs(heads["Dense_2"]["bias"]).min() > 0  # variances are learned as well


def test_inputs_far_outside_are_cut() -> None:
    network = gaussian_network(replace(SMALL, input_clip=2.0), 2, 2)
    params = network.init(jax.random.key(0))
    far, edge = jnp.array([[90.0, -0.5]]), jnp.array([[2.0, -0.5]])
    for a, b in zip(network.apply(params, far), network.apply(params, edge), strict=True):
        np.testing.assert_array_equal(a, b)
    plain = gaussian_network(SMALL, 2, 2).apply(params, far)[0]
    assert np.abs(plain - network.apply(params, far)[0]).max() > 0.1


def test_log_variance_respects_its_bounds_and_the_bounds_learn() -> None:
    config = replace(SMALL, log_var_low=-3.0, log_var_high=-1.0)
    network = gaussian_network(config, 2, 2)
    params = network.init(jax.random.key(0))
    assert params["log_var_low"].tolist() == [-3.0] * 2
    _, log_var = network.apply(params, 100.0 * jax.random.normal(jax.random.key(1), (500, 2)))
    assert -3.001 < log_var.min() < -2.9 and -1.1 < log_var.max() < -0.87
    fixed = gaussian_network(replace(config, learned_bounds=False), 2, 2)
    assert "log_var_low" not in fixed.init(jax.random.key(0))
    moved = fitted().params
    # The regulariser pulls them together.
    assert (moved["log_var_high"] < SMALL.log_var_high).all()
    assert (moved["log_var_low"] > SMALL.log_var_low).all()


@pytest.mark.parametrize(
    ("change", "setting"),
    wrong(
        dict(elites=8, activation="tan", initialiser="tan", weight_decay=(1e-5, 1e-4), beta=1.5),
        dict(elites=0, log_var_low=0.5, batch_size=0, max_epochs=0, patience=0),
        dict(cosine=True),
    ),
)
def test_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_fitter(replace(EnsembleConfig(lr_drop=0.3), **change), 2, 2)
    assert caught.value.setting == setting


def test_weights_begin_as_their_initialiser_says() -> None:
    kernels = {}
    for name in ("uniform", "truncated_normal"):
        config = replace(
            EnsembleConfig(),
            members=2,
            elites=1,
            hidden_dims=(100,),
            initialiser=name,
            weight_decay=(0.0,),
        )
        kernel = make_fitter(config, 25, 2).init(jax.random.key(0)).params["MLP_0"]["Dense_0"]
        kernels[name] = np.asarray(kernel["kernel"]) * 5.0  # sqrt(fan_in)
    assert 0.95 < np.abs(kernels["uniform"]).max() <= 1.0
    np.testing.assert_allclose(kernels["uniform"].std(), 1 / np.sqrt(3), rtol=0.05)
    np.testing.assert_allclose(kernels["truncated_normal"].std(), 0.5, rtol=0.05)


def test_equal_settings_share_their_functions() -> None:
    assert make_fitter(replace(SMALL), 2, 2) is fitter()

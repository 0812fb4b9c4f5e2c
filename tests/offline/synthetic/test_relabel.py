"""Relabelled paths: what a known model tells, what is unknown, whole sets out of `synthesise`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError, DivergenceError
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.synthetic.relabel import (
    RelabelConfig,
    Relabelled,
    Relabeller,
    along,
    fit_relabeller,
    relabel,
    relabelled,
    relabelled_rows,
    settle,
)
from jaxrl_rollouts.offline.synthetic.synthesis import synthesise
from jaxrl_rollouts.rollouts import Model, step_result

KEY = jax.random.key(0)
NETWORKS = EnsembleConfig(
    members=3, elites=2, hidden_dims=(32, 32), weight_decay=(1e-5,), max_epochs=15, batch_size=64
)


def linear_rows(count: int, *, ending: bool = False, seed: int = 0) -> Transitions:
    """`s' = 0.9 s + 0.5 a`, reward `s_0 + a_0`, over where `s'_0 > 1`; two entries each."""
    rng = np.random.default_rng(seed)
    s, a = rng.normal(size=(count, 2)), rng.uniform(-1, 1, (count, 2))
    following = 0.9 * s + 0.5 * a
    over = (following[:, 0] > 1.0) & ending
    parts = [x.astype(np.float32) for x in (s, a, s[:, 0] + a[:, 0], following)]
    return Transitions(*parts, over, ~over)


def counting(params: jax.Array, key: Any, state: jax.Array, action: jax.Array, member: Any) -> Any:
    """The state grows by action times `params[member]`; terminated beyond 3."""
    following = state + action * params[member][:, None]
    found = {"reward": member.astype(jnp.float32), "uncertainty": jnp.abs(following[:, 0])}
    return following, step_result(len(state), terminated=following[:, 0] > 3.0, **found)


def made_paths(batch: int, steps: int) -> Transitions:
    """Paths of a unit action whose next observations and rewards are nonsense."""
    shape = batch, steps
    lies, flags = np.full((*shape, 1), 99.0, np.float32), np.zeros(shape, bool)
    start = np.tile(np.linspace(0, 1, batch, dtype=np.float32)[:, None, None], (1, steps, 1))
    return Transitions(start, np.ones((*shape, 1), np.float32), lies[..., 0], lies, flags, flags)


def counting_relabeller(**settings: Any) -> Relabeller:
    return Relabeller(
        along(Model(counting), 2), jnp.array([1.0, 1.0]), jnp.float32(2.2), **settings
    )


def test_paths_are_rolled_along_their_actions_and_end_where_the_model_says() -> None:
    found = relabel(counting_relabeller(batch=3), made_paths(7, 5), KEY)
    start = np.linspace(0, 1, 7, dtype=np.float32)
    expected = start[:, None] + np.arange(1, 6)
    np.testing.assert_allclose(found.paths.next_observations[..., 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(
        found.paths.next_observations[:, :-1], found.paths.observations[:, 1:]
    )
    np.testing.assert_allclose(found.disagreement, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.paths.terminations, expected > 3)
    # The step that ends an episode counts, those after it do not.
    np.testing.assert_array_equal(found.valid, expected - 1 <= 3)
    assert set(np.unique(found.paths.rewards)) == {0.0, 1.0}  # both members are drawn
    assert (found.paths.rewards.min(1) < found.paths.rewards.max(1)).any()  # anew at every step


def test_unknown_steps_are_kept_dropped_or_weighed() -> None:
    paths = made_paths(2000, 2)
    found = relabel(counting_relabeller(), paths, KEY)
    everywhere = np.ones((2000, 2), bool)

    def settled(how: Any, valid: np.ndarray = everywhere) -> tuple[Transitions, np.ndarray]:
        rows, counts = settle(how, jnp.float32(2.2), found, valid, KEY)
        return jax.tree.map(np.asarray, rows), np.asarray(counts)

    rows, counts = settled("keep")
    np.testing.assert_array_equal(counts, found.valid)
    np.testing.assert_array_equal(
        rows.truncations[:, -1], counts[:, -1] & ~rows.terminations[:, -1]
    )
    rows, counts = settled("drop")
    np.testing.assert_array_equal(counts, found.disagreement <= 2.2)
    # A path is cut where the model stops knowing it.
    np.testing.assert_array_equal(rows.truncations[:, 0], ~counts[:, 1])
    # What did not count before does not count now, nor do the weights ask about it.
    rows, counts = settled("weigh", everywhere & np.array([True, False]))
    assert not counts[:, 1].any() and abs(rows.observations[:, 0, 0].mean() - 0.5) < 0.02
    # With both steps the worst disagreement is 2 + s: weights min(1, 2.2 / (2 + s)).
    rows, counts = settled("weigh")
    start = np.linspace(0, 1, 2000)
    weights = np.minimum(1.0, 2.2 / (2.0 + start))
    expected = (weights * start).sum() / weights.sum()
    assert expected < 0.475
    np.testing.assert_allclose(rows.observations[:, 0, 0].mean(), expected, atol=0.015)


def test_what_is_not_finite_never_counts() -> None:
    paths = made_paths(4, 3)
    broken = paths._replace(next_observations=paths.next_observations.copy())
    broken.next_observations[1, 1] = np.nan
    flags = np.ones((4, 3), bool)
    found = Relabelled(broken, flags, np.where(np.isnan(broken.rewards), 0, 1.0))
    _, counts = settle("keep", jnp.float32(2.2), found, flags, KEY)
    np.testing.assert_array_equal(np.asarray(counts)[1], [True, False, False])
    assert np.asarray(counts).sum() == 10
    with pytest.raises(DivergenceError, match="found none of 3 steps"):
        relabelled(
            counting_relabeller(beyond_threshold="drop"),
            made_paths(1, 3)._replace(observations=np.full((1, 3, 1), 2.5, np.float32)),
            np.ones((1, 3), bool),
            KEY,
        )


@pytest.mark.parametrize("by", [pytest.param("ensemble", marks=pytest.mark.slow), "model"])
def test_a_fitted_model_tells_what_follows(by: Any) -> None:
    rows, lies = linear_rows(3000, ending=True), linear_rows(400, seed=1)
    truth = linear_rows(400, ending=True, seed=1)
    lies = lies._replace(next_observations=-lies.next_observations, rewards=0 * lies.rewards)
    config = RelabelConfig(by, NETWORKS, noise=False)
    relabeller = fit_relabeller(rows, config, KEY)
    found = relabelled_rows(relabeller, lies, KEY)
    np.testing.assert_array_equal(found.actions, lies.actions)
    np.testing.assert_array_equal(found.observations, lies.observations)
    assert np.square(found.next_observations - truth.next_observations).mean() < 0.01
    assert np.square(found.rewards - truth.rewards).mean() < 0.02
    # The learned ending; the environment's own is exact.
    assert (found.terminations == truth.terminations).mean() > 0.95
    assert bool(np.isfinite(relabeller.uncertainty_threshold)) == (by == "ensemble")
    rule = lambda s, a, following: following[..., 0] > 0.0  # noqa: E731
    known = fit_relabeller(rows, config, KEY, termination=rule)
    found = relabelled_rows(known, lies, KEY)
    np.testing.assert_array_equal(found.terminations, found.next_observations[:, 0] > 0.0)
    np.testing.assert_array_equal(found.truncations, ~found.terminations)


def test_rows_far_from_the_data_are_the_ones_that_drop() -> None:
    far = linear_rows(400, seed=1)
    far = far._replace(
        observations=far.observations * np.where(np.arange(400) < 200, 1, 20)[:, None]
    )
    config = RelabelConfig("ensemble", NETWORKS, beyond_threshold="drop")
    found = relabelled_rows(fit_relabeller(linear_rows(3000), config, KEY), far, KEY)
    kept = np.isin(far.observations[:, 0], found.observations[:, 0])
    assert kept[:200].mean() > 0.9 and kept[200:].mean() < 0.3
    assert not found.terminations.any()  # the data have none: nothing was learned that could end


def test_the_inverse_finds_the_action_behind_a_change() -> None:
    rows, made = linear_rows(3000), linear_rows(200, seed=1)
    lies = made._replace(actions=np.zeros_like(made.actions))
    found = relabelled_rows(
        fit_relabeller(rows, RelabelConfig("inverse", NETWORKS), KEY), lies, KEY
    )
    assert np.square(found.actions - made.actions).mean() < 0.02 < np.square(made.actions).mean()
    np.testing.assert_array_equal(found.next_observations, made.next_observations)
    np.testing.assert_array_equal(found.rewards, made.rewards)


def pendulum() -> Dataset:
    rows = pendulum_mixed(KEY, 400)
    return Dataset("pendulum-mixed", rows, None, Path("(made)"), "", {"format": "made"})


@pytest.mark.slow
def test_sets_are_relabelled_in_one_call() -> None:
    networks = RelabelConfig(networks=replace(NETWORKS, max_epochs=1))
    synther = replace(recipe("synther", "smoke"), relabel=networks)
    plain = synthesise(pendulum(), replace(synther, relabel=None), 50)
    made = synthesise(pendulum(), synther, 50, relabel="ensemble")
    assert made.name == "pendulum-mixed-synther-ensemble" and len(made) == 50
    assert made.attributes["relabelled"] == "ensemble" and "relabelled" not in plain.attributes
    one, two = plain.transitions, made.transitions
    np.testing.assert_array_equal(one.observations, two.observations)
    np.testing.assert_array_equal(one.actions, two.actions)
    assert np.abs(one.next_observations - two.next_observations).max() > 0.01
    pgd = replace(recipe("pgd", "smoke"), relabel=networks)
    windows = synthesise(pendulum(), pgd, 50, relabel="model").transitions
    within = ~(windows.truncations | windows.terminations)[:-1]
    assert within.sum() == 33
    np.testing.assert_array_equal(
        windows.next_observations[:-1][within], windows.observations[1:][within]
    )
    again = synthesise(pendulum(), pgd, 50, relabel="model").transitions
    np.testing.assert_array_equal(windows.next_observations, again.next_observations)


def test_settings_of_relabelling_are_checked() -> None:
    for wrong, setting in (
        ({"relabel_with": "guess"}, "relabel_with"),
        ({"beyond_threshold": "burn"}, "beyond_threshold"),
    ):
        with pytest.raises(ConfigError, match=setting):
            check(RelabelConfig(**wrong))
    with pytest.raises(ConfigError, match="uncertainty_quantile"):
        check(RelabelConfig(uncertainty_quantile=1.5))
    with pytest.raises(ConfigError, match="relabel_with: found 'guess'"):
        synthesise(pendulum(), recipe("synther", "small"), relabel="guess")  # type: ignore[arg-type]

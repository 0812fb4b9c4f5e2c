"""The bandits, true and imagined, and what an ensemble believes of an arm nobody pulled."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.experiments.studies.bandit_beliefs import (
    REWARD_ENSEMBLE,
    FittedRewards,
    fit_rewards,
    logged_pulls,
    penalised,
)
from jaxrl_rollouts.experiments.studies.bandit_task import (
    IMAGINED_BANDITS,
    PULLS,
    TRUE_BANDITS,
    Arms,
    reset,
)
from jaxrl_rollouts.fitting import make_fitter
from jaxrl_rollouts.rollouts import Members, rollout


def in_turn(params: None, key: jax.Array, seen: jax.Array, memory: jax.Array) -> tuple:
    """Arms 0, 0, 1, 1, 0, 0, ... of every row."""
    return jnp.full(seen.shape[0], (memory[0] // 2) % 2, jnp.int32), memory + 1


def played(model, params, rows: int, choices: int):
    return jax.jit(
        lambda key: rollout(
            model,
            params,
            reset(rows),
            key,
            horizon=PULLS,
            policy=in_turn,
            memory=jnp.zeros(rows, jnp.int32),
            members=Members(jnp.arange(choices), per="trajectory", shuffle=False),
        )
    )(jax.random.key(0))


def test_true_bandits_pay_by_their_chances_and_are_seen_one_step_later() -> None:
    chances = jnp.array([[0.5, 0.0], [1.0, 0.2]])
    steps = played(TRUE_BANDITS, chances, 2000, 2).steps
    rewards, arms = np.asarray(steps.rewards), np.asarray(steps.actions)
    assert set(np.unique(rewards)) == {0.0, 1.0}
    for row in (0, 1):
        for arm in (0, 1):
            rewarded = rewards[:, row::2][arms[:, row::2] == arm].mean()
            np.testing.assert_allclose(rewarded, chances[row, arm], atol=0.01)
    seen = np.asarray(steps.next_observations)
    np.testing.assert_array_equal(seen[..., 3], rewards)
    np.testing.assert_array_equal(seen[..., 1:3], np.eye(2)[arms])
    np.testing.assert_array_equal(seen[..., 0], 0.0)
    np.testing.assert_array_equal(steps.observations[1:], seen[:-1])
    np.testing.assert_array_equal(steps.observations[0], [[0, 1, 0, 0]] * 2000)
    assert not steps.terminations.any()
    np.testing.assert_array_equal(steps.truncations.any(1), np.arange(PULLS) == PULLS - 1)


def test_imagined_bandits_show_what_is_paid_and_learn_from_less() -> None:
    arms = Arms(
        jnp.array([[0.5, 0.1], [0.4, 0.9]]),
        jnp.array([[0.1, 0.2], [0.3, 0.0]]),
        jnp.array([0.05, 0.4]),
        jnp.float32(0.5),
    )
    steps = played(IMAGINED_BANDITS, arms, 4000, 2).steps
    chosen = np.asarray(steps.actions)
    rewarded = np.asarray(steps.next_observations[..., 3])
    for row in (0, 1):
        for arm in (0, 1):
            drawn = rewarded[:, row::2][chosen[:, row::2] == arm]
            np.testing.assert_allclose(drawn.mean(), arms.mean[row, arm], atol=0.003)
            np.testing.assert_allclose(drawn.std(), arms.std[row, arm], atol=0.003)
    spread = np.asarray(arms.spread)[chosen]
    np.testing.assert_allclose(steps.uncertainties, spread)
    np.testing.assert_allclose(steps.rewards, rewarded - 0.5 * spread, atol=1e-6)


def test_the_log_is_the_published_one() -> None:
    arms, rewards = logged_pulls()
    assert not arms.any() and len(arms) == 1000 and rewards.mean() == pytest.approx(0.494)
    assert rewards.reshape(10, 100).mean(1)[[0, 9]] == pytest.approx([0.57, 0.5])
    assert (logged_pulls(1)[1] != rewards).any()


SMALL = replace(REWARD_ENSEMBLE, members=4, elites=3, max_epochs=3)


@functools.cache
def fitted() -> FittedRewards:
    """Two seeds."""
    return fit_rewards(SMALL, logged_pulls(), jax.random.key(1), seeds=2)


def test_a_penalty_is_all_that_conservatism_changes() -> None:
    arms = fitted().arms
    harsher = penalised(arms, 2.5)
    np.testing.assert_array_equal(harsher.penalty, [2.5, 2.5])
    np.testing.assert_array_equal(arms.penalty, [0.0, 0.0])
    assert harsher.mean is arms.mean and harsher.spread is arms.spread


def test_seeds_have_opinions_of_their_own() -> None:
    both = fitted()
    assert both.arms.mean.shape == (2, 3, 2) and both.arms.penalty.shape == (2,)
    assert (both.arms.mean[0] != both.arms.mean[1]).all()
    np.testing.assert_allclose(both.arms.spread, both.arms.mean.std(1), rtol=1e-4)
    assert (np.diff(both.nll, axis=1) >= 0).all()  # best first


def test_likelihood_judges_snapshots_and_uniform_biases_are_drawn() -> None:
    """The two settings that the reward ensemble added to the fitter."""
    config = replace(REWARD_ENSEMBLE, members=3, elites=2, improvement=0.5)
    fitter = make_fitter(config, 2, 1)
    state = jax.jit(fitter.init)(jax.random.key(0))
    bias = np.abs(state.params["MLP_0"]["Dense_0"]["bias"])
    assert (bias > 0).all() and 0.6 < bias.max() <= 2**-0.5
    zero = jax.jit(make_fitter(replace(config, biases="zero"), 2, 1).init)(jax.random.key(0))
    np.testing.assert_array_equal(zero.params["MLP_0"]["Dense_0"]["bias"], 0.0)
    fit = fit_rewards(replace(config, max_epochs=4), logged_pulls(), jax.random.key(0))
    curve = fit.trained.history.curve("best_holdout_nll")[1][:, 0]
    # From about 1.5 to at least 0.72 no member can improve by 0.5 twice.
    assert fit.nll.min() > 0.7 and len(np.unique(curve)) <= 3

"""The learned termination: found where it is learnable, calibrated to the dataset's share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.endings import TerminationConfig, ended, fit_endings, log_odds
from jaxrl_rollouts.offline.worlds.fit import fit_world_models

CONFIG = TerminationConfig(hidden_dims=(32, 32), steps=3000, per_iteration=1000)


def falling(rows: int, limit: float, seed: int = 0) -> Transitions:
    """Terminates where the first entry of the next state passes `limit`."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(rows, 3)).astype(np.float32)
    a = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    following = s + 0.3 * np.concatenate([a, np.zeros((rows, 1), np.float32)], 1)
    return Transitions(s, a, s[:, 0], following, following[:, 0] > limit, np.zeros(rows, bool))


@pytest.fixture(scope="module")
def endings() -> tuple:
    return fit_endings(CONFIG, falling(4000, 1.8), jax.random.key(0), seeds=2)


def test_rare_terminations_are_found_and_others_left_alone(endings: tuple) -> None:
    fresh = falling(4000, 1.8, seed=1)
    truth = np.asarray(fresh.terminations)
    assert 0.02 < truth.mean() < 0.06
    for seed in range(2):
        one = jax.tree.map(lambda x, i=seed: x[i], endings[0])
        said = ended(CONFIG, one, *(jnp.asarray(c) for c in (fresh[0], fresh[1], fresh[3])))
        depth = fresh.next_observations[:, 0] - 1.8
        assert said[depth > 0.3].mean() > 0.97, "only near the limit may it be unsure"
        assert not said[depth < -0.3].any()
        # The shift puts the share of the dataset back, which balanced batches hide.
        assert abs(said.mean() - truth.mean()) < 0.01


def test_odds_are_those_of_the_data_where_most_rows_end() -> None:
    """Kinds of states that end with 0.3 and 0.95: told apart from a half, and calibrated."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 8000)
    ends = rng.uniform(size=8000) < np.array([0.3, 0.95])[kind]
    state = kind[:, None].astype(np.float32)
    nothing = np.zeros((8000, 1), np.float32)
    rows = Transitions(state, nothing, nothing[:, 0], state, ends, np.zeros(8000, bool))
    config = TerminationConfig(hidden_dims=(8,), lr=3e-3, steps=2000)
    fitted, _ = fit_endings(config, rows, jax.random.key(0))
    ending = jax.tree.map(lambda x: x[0], fitted)
    one = np.concatenate([state, nothing, state], 1)[[kind.argmin(), kind.argmax()]]
    odds = log_odds(config, ending, jnp.asarray(one))
    shares = np.array([ends[kind == k].mean() for k in (0, 1)])
    np.testing.assert_allclose(odds, np.log(shares / (1 - shares)), atol=0.25)


def test_seeds_start_from_different_weights(endings: tuple) -> None:
    first, second = (jax.tree.map(lambda x, i=i: x[i], endings[0].params) for i in range(2))
    gaps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), first, second)
    assert max(jax.tree.leaves(gaps)) > 0.01


def test_no_termination_in_the_data_is_none_in_the_model() -> None:
    calm = falling(200, 1e9)
    ending, trained = fit_endings(CONFIG, calm, jax.random.key(0))
    assert trained is None
    one = jax.tree.map(lambda x: x[0], ending)
    assert not ended(CONFIG, one, *(jnp.asarray(c) for c in (calm[0], calm[1], calm[3]))).any()


def test_dynamics_end_where_the_classifier_says(endings: tuple) -> None:
    config = EnsembleConfig(
        members=2, elites=2, hidden_dims=(16,), weight_decay=(0.0,), max_epochs=1, batch_size=256
    )
    rows = falling(1000, 1.8)
    fitted = fit_world_models(config, rows, jax.random.key(0))
    world = jax.tree.map(lambda x: x[0], fitted.worlds)
    dynamics = learned_dynamics(fitted.model.fitter, 2, termination=CONFIG)
    start, action = jnp.asarray(rows.observations[:64]), jnp.asarray(rows.actions[:64])
    members = jnp.tile(jnp.arange(2, dtype=jnp.int32), 32)
    with pytest.raises(ConfigError, match=r"world.ending"):
        dynamics.model.step(world, jax.random.key(1), start, action, members)
    one = jax.tree.map(lambda x: x[0], endings[0])
    world = world._replace(ending=one)
    following, out = dynamics.model.step(world, jax.random.key(1), start, action, members)
    np.testing.assert_array_equal(out.terminated, ended(CONFIG, one, start, action, following))


@pytest.mark.parametrize("name", ["batch_size", "steps", "per_iteration"])
def test_bad_settings_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: found 0"):
        check(TerminationConfig(**{name: 0}))

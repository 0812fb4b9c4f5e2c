"""Elites by open-loop error, against a rollout of every member by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.worlds.dynamics import WorldModelParams, predict
from jaxrl_rollouts.offline.worlds.elites import WINDOWS, by_open_loop
from jaxrl_rollouts.offline.worlds.fit import make_world_model
from jaxrl_rollouts.offline.worlds.open_loop import windows

MEMBERS, ELITES, LONG = 5, 2, 12


def walk() -> Transitions:
    """Six episodes of twelve steps of a noisy walk."""
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (72, 1)).astype(np.float32)
    path = np.zeros((6, LONG + 1, 2), np.float32)
    for t in range(LONG):
        path[:, t + 1] = 0.9 * path[:, t] + a.reshape(6, LONG, 1)[:, t]
    last = np.arange(72) % LONG == LONG - 1
    s, n = (x.reshape(72, 2) for x in (path[:, :-1], path[:, 1:]))
    return Transitions(s, a, s[:, 0], n, np.zeros(72, bool), last)


def by_hand(model: Any, world: WorldModelParams, rows: Transitions) -> np.ndarray:
    """Mean over steps of the median error of every member, `[N]`."""
    logged = windows(rows, LONG, WINDOWS)
    every: Any = world._replace(
        elites=jax.tree.map(lambda *x: jnp.concatenate(x), world.elites, world.others), others=None
    )
    size = len(jax.tree.leaves(every.elites)[0])
    state = jnp.broadcast_to(logged.observations[0], (size, WINDOWS, 2))
    found = []
    for t in range(LONG):
        mean = [predict(model.fitter, every, s, logged.actions[t]).mean for s in state]
        state = jnp.stack([s + mean[i][i, :, :2] for i, s in enumerate(state)])
        gap = (state - logged.observations[t + 1]) / world.inputs.std[:2]
        found.append(np.median(np.sqrt(np.square(gap).mean(-1)), 1))
    return np.mean(found, 0)


def test_elites_are_the_members_of_the_lowest_error_over_many_steps() -> None:
    config = EnsembleConfig(members=MEMBERS, elites=ELITES, hidden_dims=(8,), holdout_rows=20)
    rows = walk()
    model = make_world_model(config, rows)
    begun = [
        model.world(model.fitter.init(k, model.data)) for k in jax.random.split(jax.random.key(1))
    ]
    worlds = jax.tree.map(lambda *x: jnp.stack(x), *begun)
    chosen = by_open_loop(model.fitter, worlds, rows)
    for seed, before in enumerate(begun):
        after = jax.tree.map(lambda x, i=seed: x[i], chosen)
        errors = by_hand(model, after, rows)
        assert (np.diff(errors) >= -1e-5).all() and errors[0] < errors[-1]
        np.testing.assert_allclose(np.sort(by_hand(model, before, rows)), errors, rtol=1e-4)
        assert len(jax.tree.leaves(after.elites)[0]) == ELITES
        assert len(jax.tree.leaves(after.others)[0]) == MEMBERS - ELITES

"""The study's controllers, what world models are trained with, and cells that are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.experiments.studies import control_from_a_log as study
from jaxrl_rollouts.offline.behaviours.ks_control import Feedback, feedback_policy, ks_random
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.ks_control import KS_CONTROL
from jaxrl_rollouts.offline.worlds.dynamics import uncertainties
from jaxrl_rollouts.offline.worlds.fit import fit_world_models
from jaxrl_rollouts.record.arrays import remember
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

SMOKE = study.PRESETS["smoke"]


def test_linear_feedback_of_the_jets_own_sensors_is_proportional() -> None:
    u = jax.random.normal(jax.random.key(0), (5, 64))
    want, _ = feedback_policy(KS_CONTROL)(Feedback(gain=0.7), jax.random.key(0), u, ())
    found, _ = study.linear(jnp.array([0.7, 0, 0, 0, 0]), None, u, ())
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_linear_feedback_sees_both_neighbours_alike() -> None:
    """A unit at the sensor half-way between jets 1 and 2 is an eighth from both of them, and three
    eighths from jets 0 and 3."""
    u = jnp.zeros((1, 64)).at[0, 32].set(0.1)
    found, _ = study.linear(jnp.array([9.0, 1.0, 9.0, 3.0, 9.0]), None, u, ())
    np.testing.assert_allclose(found, [[-0.15, -0.05, -0.05, -0.15]], rtol=1e-6)


def test_half_of_the_worlds_have_a_threshold_and_one_penalty_is_none() -> None:
    rows = ks_random(jax.random.key(0), 400)
    data = Dataset("log", rows, KS_CONTROL.name, Path("(made)"), "")
    fitted = fit_world_models(SMOKE.mlp.ensemble, data, 0, seeds=2)
    given = study.in_worlds(SMOKE, SMOKE.mopo, data, fitted)
    worlds, dynamics = given["world_models"], given["dynamics"]
    spread: Any = [
        uncertainties(fitted.model.fitter, fitted.world(k), rows.observations, rows.actions)
        for k in (0, 1)
    ]
    limits = worlds.uncertainty_threshold
    assert given["seeds"] == 4 and np.isinf(limits[:2]).all()
    np.testing.assert_allclose(limits[2:], [np.max(x) for x in spread], rtol=1e-5)
    remembered = study.in_worlds(SMOKE, SMOKE.neubay, data, fitted)
    stops = remembered["world_models"].uncertainty_threshold
    assert "seeds" not in remembered and np.array_equal(stops, limits[2:])
    mean = float(np.mean([np.mean(x) for x in spread]))
    want: Any = (0.0, SMOKE.penalty / mean)
    np.testing.assert_allclose(given["sweep"]["penalty"], want, rtol=1e-5)
    # Members predict means, and rewards are the environment's own of what they predict.
    one, u, a = jax.tree.map(lambda x: x[0], worlds), rows.observations[:8], rows.actions[:8]
    both = [
        dynamics.model.step(one, jax.random.key(k), u, a, jnp.zeros(8, jnp.int32)) for k in (0, 1)
    ]
    (after, out), (again, _) = both
    np.testing.assert_array_equal(after, again)
    assert KS_CONTROL.reward is not None
    np.testing.assert_allclose(out.reward, KS_CONTROL.reward(u, a, after), rtol=1e-4)


def test_cells_that_are_left_out_stay_empty_and_found_ones_are_read(tmp_path: Path) -> None:
    config = replace(SMOKE, only=("nothing", "proportional"))
    folder = RunFolder.create(tmp_path, "control_from_a_log", "smoke", config, "nothing")
    context = RunContext(folder, False)
    for world, error in (("fields", 0.1), ("mlp", 0.4)):
        kept: Any = {"error": np.full(2, error), "unchanged": 1.0, "weights": 9.0}
        remember(context, "cells", f"mixed-{world}-error", lambda kept=kept: kept)
    report = study.run(config, context)
    rows = {row["arm"]: row for row in report.tables["returns"]}
    nothing, proportional = (rows[name]["return"].values for name in ("nothing", "proportional"))
    assert all(-900 < x < -600 for x in nothing) and all(-500 < x < -330 for x in proportional)
    assert "return" not in rows["best linear"] and "return" not in rows["RAVL, mlp"]
    first, second = report.claims
    assert not first.holds and np.isnan(first.measured)
    assert second.holds and second.measured == 0.25

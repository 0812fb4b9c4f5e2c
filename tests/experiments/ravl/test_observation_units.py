"""Units of observations: what a view is, that only the view differs, what is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl.observation_units import (
    EXPERIMENT,
    SLOW,
    STANDARD,
    VIEWS,
    add_claims,
    seen_in,
    units_of,
)
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.rollouts import rollout
from jaxrl_rollouts.scaler import Scaler, fit_scaler

SMOKE = EXPERIMENT.preset("smoke")
ROWS = Scaler(jnp.array([1.0, -2.0, 3.0]), jnp.array([0.5, 4.0, 2.0]))


def test_views_subtract_and_divide_what_they_say() -> None:
    x = np.array([[2.0, 2.0, 2.0]])
    seen = {view: units_of(view, ROWS, 1).normalise(x)[0].tolist() for view in VIEWS}
    assert seen["raw"] == [2.0, 2.0, 2.0] and seen["centred"] == [1.0, 4.0, -1.0]
    assert seen["scaled"] == [4.0, 0.5, 1.0]
    assert seen[STANDARD] == seen[SLOW] == [2.0, 1.0, -0.5]
    assert seen["positions"] == [2.0, 2.0, 2.0] and seen["velocities"] == [2.0, 1.0, -0.5]


def test_a_world_in_other_units_is_the_same_world() -> None:
    """A policy that looks at the same thing goes the same way, in model and environment."""
    rows = pendulum_mixed(jax.random.key(0), 1000)
    dataset = Dataset("toy", rows, "pendulum", Path("x"), "")
    source, truth = Setting(dataset, PENDULUM), true_dynamics(PENDULUM)
    units = fit_scaler(jnp.asarray(dataset.transitions.observations))
    setting, moved = seen_in(units, source, truth)
    start = dataset.transitions.observations[:50]
    np.testing.assert_allclose(
        units.denormalise(setting.dataset.transitions.observations[:50]), start, atol=1e-5
    )

    def looking(scaler: Scaler | None) -> Any:
        def policy(params: Any, key: Any, seen: jax.Array, memory: Any) -> tuple:
            raw = seen if scaler is None else scaler.denormalise(seen)
            return jnp.tanh(raw[:, :1] - raw[:, 2:3]), memory

        return policy

    def roll(dynamics: Any, begin: np.ndarray, scaler: Scaler | None) -> Any:
        key = jax.random.key(1)
        return rollout(
            dynamics.model, (), jnp.asarray(begin), key, horizon=8, policy=looking(scaler)
        ).steps

    plain = roll(truth, start, None)
    other = roll(moved, setting.dataset.transitions.observations[:50], units)
    np.testing.assert_allclose(other.rewards, plain.rewards, atol=1e-3)
    back = units.denormalise(other.next_observations)
    np.testing.assert_allclose(back, plain.next_observations, atol=1e-3)
    state = PENDULUM.reset(jax.random.key(2), 4)
    seen, raw = setting.env.observe(state), PENDULUM.observe(state)
    np.testing.assert_allclose(units.denormalise(seen), raw, atol=1e-5)


def cell(promised: float) -> Cell:
    return Cell(extra={"estimated_value": np.array([promised, promised])}, seeds=2)


def test_claims_are_in_powers_of_ten() -> None:
    promised = {"raw": 1e3, "centred": 1e5, "scaled": 1e6, STANDARD: 1e6, "positions": 1e6}
    cells = {(view,): cell(value) for view, value in promised.items()}
    report = Report("observation_units", "smoke", {}, "jaxrl-rollouts run observation_units", 2)
    add_claims(report, Grid(("view",), cells))
    assert [claim.holds for claim in report.claims] == [True, True, False, True]


@pytest.mark.slow
def test_all_views_learn_from_one_world(made_data: Path, tmp_path: Path) -> None:
    args = ["observation_units", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(["run", *args])
    report = load_report(next(tmp_path.iterdir()))
    assert [row["view"] for row in report.tables["views"]] == list(SMOKE.views)
    assert set(report.pictures) == {"promises"} and len(report.tables["observations"]) == 11
    assert not any(claim.holds for claim in report.claims), "too short for a verdict"


@pytest.mark.parametrize(
    ("change", "setting"),
    [({"views": ("raw",)}, "views"), ({"views": (*VIEWS, "upside down")}, "views")],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(SMOKE, **change))
    assert caught.value.setting == setting

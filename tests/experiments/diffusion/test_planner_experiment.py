"""The planner's experiment: true plans make no error, every way to draw is of the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import JumpConfig, SamplerConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.planner import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.planner_cells import (
    BASELINES,
    DRAWS,
    MANY,
    ONE,
    drawing,
    plan_paths,
)
from jaxrl_rollouts.experiments.diffusion.planner_page import calls, gain
from jaxrl_rollouts.offline.agents.planner import init
from jaxrl_rollouts.offline.agents.planner_parts import planner_parts
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")


def test_draws_say_how_many_calls_they_take() -> None:
    for name, how in DRAWS.items():
        assert f", {calls(name)} call" in name
        assert ("student" in name) == isinstance(how, JumpConfig)
    assert (calls(MANY), calls(ONE)) == (255, 1)


def test_every_draw_is_of_the_same_weights() -> None:
    """Only who draws, and how, differs: the actor that one training made fits all of them."""
    trained = planner_parts(SMOKE.planner, 3, 1)
    for name, how in DRAWS.items():
        config = drawing(SMOKE.planner, name)
        same = replace(
            config, by="student", jumps=SMOKE.planner.jumps, sampler=SMOKE.planner.sampler
        )
        assert same == SMOKE.planner
        assert (config.by == "student") == isinstance(how, JumpConfig)
        assert isinstance(how, SamplerConfig) == (config.sampler == how)
        parts = planner_parts(config, 3, 1)
        assert parts.denoiser is trained.denoiser and parts.student is trained.student


def test_paths_of_plans_go_from_the_present_with_the_inverse_models_actions() -> None:
    config = replace(SMOKE.planner, history=2, by="teacher")
    parts = planner_parts(config, 3, 1)
    actor = init(parts, jax.random.key(0)).actor
    plan = jax.random.normal(jax.random.key(1), (4, config.length, 3))
    paths = plan_paths(config, parts, actor, plan)
    np.testing.assert_array_equal(paths.observations, plan[:, 1:-1])
    np.testing.assert_array_equal(paths.next_observations, plan[:, 2:])
    assert paths.actions.shape == (4, config.horizon, 1)
    # The scaler is the identity: the inverse model sees a state and the change.
    now, change = plan[:, 2], plan[:, 3] - plan[:, 2]
    want = jnp.tanh(parts.inverse.apply(actor.net.inverse, now, change))
    np.testing.assert_allclose(paths.actions[:, 1], want, atol=1e-6)


def test_gains_are_in_percent_of_the_size() -> None:
    found = gain(np.array([-90.0, 95.0]), np.array([-100.0, 100.0]))
    np.testing.assert_allclose(found, [10.0, -5.0])


@pytest.mark.slow
def test_the_smoke_run_has_every_arm(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "planner", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["arms"]
    assert [row["arm"] for row in rows] == ["behaviour", *BASELINES, *DRAWS]
    assert all(len(row["return"].values) == SMOKE.seeds for row in rows[1:])
    assert {row["calls"] for row in rows[3:]} == {255, 7, 4, 2, 1}
    assert len(report.claims) == 7
    assert set(report.pictures) == {"returns", "calls", "training"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"datasets": ()}, "datasets"),
        ({"episodes": (1, 2)}, "episodes"),
        ({"updates": 15}, "updates"),
        ({"agent_updates": 15}, "agent_updates"),
        ({"planner": replace(SMOKE.planner, by="teacher")}, "planner.by"),
        ({"plans": 0}, "plans"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(SMOKE, **change))
    assert setting in caught.value.setting

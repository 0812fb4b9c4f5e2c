"""Few calls: the ring is one, what is compared is compared fairly, the smoke run has all parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import JumpConfig, SamplerConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.few_steps import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.few_steps_cells import (
    Config,
    agent_arms,
    points,
    references,
)
from jaxrl_rollouts.experiments.diffusion.few_steps_page import best
from jaxrl_rollouts.experiments.diffusion.few_steps_ring import (
    STD,
    centres,
    off_mode,
    ring,
    teachers_samplers,
)
from jaxrl_rollouts.experiments.diffusion.few_steps_windows import WindowsConfig
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")


def test_the_ring_has_its_modes_and_nearly_unit_variance() -> None:
    rows = np.asarray(ring(jax.random.key(0), 40_000))
    nearest = np.linalg.norm(rows[:, None] - centres(), axis=-1).argmin(1)
    np.testing.assert_allclose(np.bincount(nearest) / len(rows), 1 / 8, atol=0.01)
    np.testing.assert_allclose(rows.std(0), 1.0, atol=0.02)
    # Two-dimensional normals beyond three deviations: exp(-9 / 2).
    np.testing.assert_allclose(off_mode(rows), np.exp(-4.5), atol=0.002)
    assert off_mode(centres() * (1 + 2 * STD)) == 0.0 and off_mode(np.zeros((5, 2))) == 1.0


def test_solvers_take_the_calls_they_are_listed_with() -> None:
    listed = teachers_samplers((1, 2, 4, 8))
    assert set(listed["Heun"]) == {3, 7, 15} and set(listed["2M"]) == {2, 4, 8}
    for settings in listed.values():
        for calls, sampler in settings.items():
            assert isinstance(sampler, SamplerConfig | JumpConfig) and sampler.calls == calls


def test_the_teacher_competes_with_its_best_solver_seed_by_seed() -> None:
    values = {("a", 4): [1.0, 5.0], ("b", 4): [3.0, 2.0], ("c", 8): [0.0, 0.0]}
    cells = {key: Cell(extra={"distance": np.array(v)}, seeds=2) for key, v in values.items()}
    grid = Grid(("solver", "calls"), cells)
    np.testing.assert_array_equal(best(grid, "distance", lambda key: key[1] <= 4), [1.0, 2.0])


def test_points_are_between_random_and_expert() -> None:
    data: Any = None
    acrobot = Setting(Dataset("toy", data, "acrobot", Path("x"), ""), ACROBOT)
    ends = references(acrobot, 0)
    assert ends is not None and ends[0] < -180 and ends[1] > -45
    np.testing.assert_allclose(points(acrobot, ends, np.array(ends)), [0.0, 100.0])
    pendulum = Setting(Dataset("toy", data, "pendulum", Path("x"), ""), PENDULUM)
    assert references(pendulum, 0) is None
    np.testing.assert_array_equal(points(pendulum, None, np.array([-3.0])), [-3.0])


@pytest.mark.slow
def test_the_smoke_run_reports_every_part(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "few_steps", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    assert {"ring", "transitions", "agents", "windows"} <= set(report.tables)
    assert [row["rows"] for row in report.tables["agents"]] == list(agent_arms(SMOKE))
    rows = {row["sampler"]: row for row in report.tables["transitions"]}
    assert rows["Heun with churn, 128 levels"]["calls"] == 255 and rows["student, 4"]["calls"] == 4
    told = rows["student, told anew, 4"]  # the same states, another next one
    assert told["calls"] == 4
    assert told["next observation"].values != rows["student, 4"]["next observation"].values
    agree = next(c for c in report.claims if c.name.startswith("EDM's sampler and"))
    assert agree.holds
    assert set(report.pictures) == {"ring", "samples", "transitions", "agents", "windows"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"parts": ("agents",)}, "parts"),
        ({"parts": ("rings",)}, "parts"),
        ({"calls": (4,)}, "calls"),
        ({"calls": (4, 2)}, "calls"),
        ({"updates": 1234}, "updates"),
        ({"windows": WindowsConfig(windows=0)}, "windows.windows"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Config(**change))
    assert caught.value.setting == setting

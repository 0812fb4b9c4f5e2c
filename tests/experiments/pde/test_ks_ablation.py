"""Sweeps of PDE-Refiner's settings, at smoke size."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.ks_ablation import EXPERIMENT, settings
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.study.train import StudyData
from jaxrl_rollouts.reports.report import Report, load_report

pytest.importorskip("exponax")
SMOKE = EXPERIMENT.preset("smoke")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_ablation", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    return load_report(folder)


@pytest.mark.slow
def test_every_sweep_has_a_table_that_holds_the_base(report: Report) -> None:
    assert list(report.tables) == ["noise floor", "step size", "history", "share of the data"]
    floors = [(r["noise floor"], r["method"]) for r in report.tables["noise floor"]]
    assert floors == [(1e-6, "refiner"), (1e-3, "refiner")]
    histories = [(r["history"], r["method"]) for r in report.tables["history"]]
    assert histories == [(1, "mse"), (2, "mse"), (1, "refiner"), (2, "refiner")]
    base = {
        (name, row["method"]): row["one-step MSE"].values
        for name, value in (("step size", 1), ("history", 1), ("share of the data", 1.0))
        for row in report.tables[name]
        if row[name] == value
    }
    for method in ("mse", "refiner"):
        same = [values for (_, m), values in base.items() if m == method]
        assert len(same) == 3 and all(np.array_equal(same[0], v) for v in same)
    assert set(report.pictures) == {"sweeps"} and len(report.claims) == 3


def test_a_longer_step_makes_fewer_of_them() -> None:
    found = {(s.sweep, s.value): s for s in settings(SMOKE)}
    longer = found["step size", 2]
    assert (longer.study["steps"], longer.study["every"]) == (SMOKE.study.steps // 2, 2)
    assert longer.methods == ("mse", "refiner") and found["noise floor", 1e-3].methods == (
        "refiner",
    )


def test_the_scale_is_that_of_a_steps_change() -> None:
    ramp = jnp.arange(6.0)[None, :, None, None] * jnp.asarray([0.25, -0.25])
    data = StudyData(Fields(ramp, jnp.zeros((1, 0))), Fields(ramp, ramp), 1.0, np.ones(1))
    assert data.step_scale() == pytest.approx(0.25)
    assert data.step_scale(every=2) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"shares": (0.0,)}, "shares"),
        ({"every": (3,)}, "every"),
        ({"histories": (4,)}, "test.frames"),  # of every setting, before the first is run
        ({"noise_variances": (2.0,)}, "min_noise_variance"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))


def test_the_cpu_preset_is_valid() -> None:
    config = EXPERIMENT.preset("cpu")
    check(config)
    sweeps = {s.sweep for s in settings(config)}
    assert len(sweeps) == 7 and config.study.seeds >= 2 and config.study.test.trajectories >= 256

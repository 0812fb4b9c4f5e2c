"""The comparison of emulators at smoke size, and what its claims are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ks_refiner import EXPERIMENT, _pearson
from jaxrl_rollouts.experiments.ks_study import KsConfig, times
from jaxrl_rollouts.report import load_report

pytest.importorskip("exponax")
SMOKE = ["--preset", "smoke", "--no-progress"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_refiner", *SMOKE, "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


def test_it_compares_all_methods(finished: Path) -> None:
    report = load_report(finished)
    rows = report.tables["rollouts"]
    assert [row["method"] for row in rows] == ["mse", "pushforward", "correction", "refiner"]
    for row in rows:
        assert len(row["one-step MSE"].values) == 2 and min(row["one-step MSE"].values) > 0
        top = 12 * 0.8
        assert all(0 <= t <= top + 1e-9 for t in row["T(0.8), mean curve"].values)
    assert set(report.pictures) == {"rollouts", "correlation", "spectra", "refiner"}
    names = {claim.name for claim in report.claims}
    assert "refinement repairs high wavenumbers" in names and len(names) == 6
    repairs = next(c for c in report.claims if c.name == "refinement repairs high wavenumbers")
    errors = [r["error at wavenumbers 20 and above"].values for r in (rows[3], rows[0])]
    np.testing.assert_allclose(repairs.values, np.divide(*errors), rtol=1e-5)


def test_a_second_look_solves_and_trains_nothing_and_says_the_same(finished: Path) -> None:
    files = {p: p.stat().st_mtime_ns for p in (finished / "data").iterdir()}
    before = load_report(finished)
    cli.dispatch(["resume", str(finished), "--no-progress"])
    assert files == {p: p.stat().st_mtime_ns for p in (finished / "data").iterdir()}
    after = load_report(finished)
    assert [c.values for c in before.claims] == [c.values for c in after.claims]


class Curves:
    """Two seeds, 10 steps, 2 trajectories: correlation 1 for 6 and for 2 steps."""

    correlation = np.zeros((2, 10, 2))
    correlation[:, :6, 0] = 1.0
    correlation[:, :2, 1] = 1.0


def test_the_two_times_of_a_method() -> None:
    mean_curve, own = times({"a": Curves()}, 0.5)["a"]  # type: ignore[dict-item]
    np.testing.assert_array_equal(mean_curve, [1.0, 1.0])
    np.testing.assert_array_equal(own, [2.0, 2.0])


def test_pearson_of_horizons() -> None:
    assert _pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert _pearson(np.ones(3), np.array([1.0, 2.0, 3.0])) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"seeds": 0}, {"samples": 1}, {"methods": ("mse", "best")}, {"methods": ()}, {"steps": 13}],
)
def test_settings_are_checked(wrong: dict) -> None:
    config: KsConfig = EXPERIMENT.preset("smoke")
    named = {"steps": "test.frames"}.get(next(iter(wrong)), next(iter(wrong)))
    with pytest.raises(ConfigError, match=named):
        replace(config, **wrong).validate()


def test_the_cpu_preset_is_what_the_claims_need() -> None:
    config: KsConfig = EXPERIMENT.preset("cpu")
    config.validate()
    assert config.seeds >= 3 and config.test.trajectories >= 256 and config.samples >= 16
    assert config.train.points % config.points == 0

"""The comparison of emulators at smoke size, and what its claims are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.ks_refiner import (
    EXPERIMENT,
    KsConfig,
    bands,
    pearson,
    where_first_off,
)
from jaxrl_rollouts.pde.study.look import high_correlation_times
from jaxrl_rollouts.pde.study.train import StudyConfig
from jaxrl_rollouts.record.sealed import seal_file
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE = ["--preset", "smoke", "--no-progress"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_refiner", *SMOKE, "--methods", "mse", "refiner", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


@pytest.mark.slow
def test_all_methods_and_the_control_are_compared(tmp_path: Path) -> None:
    cli.dispatch(["run", "ks_refiner", *SMOKE, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["rollouts"]
    assert [row["method"] for row in rows] == ["mse", "pushforward", "correction", "refiner"]
    control = report.claims[-1]
    assert len(report.claims) == 8 and control.name.startswith("extra calls without noise")
    bands = {r["method"]: r for r in report.tables["one-step error by wavenumber"]}
    errors = [bands[name]["20 and above"].values for name in ("correction", "mse")]
    np.testing.assert_allclose(control.values, np.divide(*errors), rtol=1e-5)


def test_it_compares_methods(finished: Path) -> None:
    report = load_report(finished)
    rows = report.tables["rollouts"]
    assert [row["method"] for row in rows] == ["mse", "refiner"]
    for row in rows:
        assert len(row["one-step MSE"].values) == 2 and min(row["one-step MSE"].values) > 0
        top = 12 * 0.8
        assert all(0 <= t <= top + 1e-9 for t in row["T(0.8), mean curve"].values)
    pictures = {"rollouts", "correlation", "spectra", "refinement", "samples"}
    assert set(report.pictures) == pictures
    assert len(report.claims) == 7
    repairs = next(c for c in report.claims if c.name == "refinement repairs high wavenumbers")
    bands = {r["method"]: r for r in report.tables["one-step error by wavenumber"]}
    errors = [bands[name]["20 and above"].values for name in ("refiner", "mse")]
    np.testing.assert_allclose(repairs.values, np.divide(*errors), rtol=1e-5)


def test_a_second_look_solves_and_trains_nothing_and_says_the_same(finished: Path) -> None:
    files = {p: p.stat().st_mtime_ns for p in (finished / "data").iterdir()}
    before = load_report(finished)
    cli.dispatch(["resume", str(finished), "--no-progress"])
    assert files == {p: p.stat().st_mtime_ns for p in (finished / "data").iterdir()}
    after = load_report(finished)
    assert [c.values for c in before.claims] == [c.values for c in after.claims]


@pytest.mark.slow
def test_what_was_evaluated_is_kept(finished: Path) -> None:
    """Rollouts and samples are read back, not made again: a changed file shows in the report.

    Changed and sealed, that is: one that was merely changed counts as damaged.
    """
    kept = finished / "refiner" / "sampled.npz"
    assert set(np.load(kept)) == {"cross", "spread", "error"}
    assert np.load(kept)["cross"].shape == (2, 10, 4)
    before = load_report(finished)
    other = dict(np.load(finished / "mse" / "evaluated.npz"))
    other["one_step"] = 2.0 * other["one_step"]
    np.savez(finished / "mse" / "evaluated.npz", **other)
    seal_file(finished / "mse" / "evaluated.npz")
    cli.dispatch(["resume", str(finished), "--no-progress"])
    after = load_report(finished)
    once, twice = (r.tables["rollouts"][0]["one-step MSE"].values for r in (before, after))
    np.testing.assert_allclose(twice, 2.0 * np.asarray(once))


def test_where_a_spectrum_first_fails() -> None:
    late = np.array([[9.0, 1.0, 1.9, 2.0, 5.0], [1.0, 1.0, 0.4, 3.0, 1.0], [1.0] * 5])
    np.testing.assert_array_equal(where_first_off(late), [3, 2, 4])


def test_the_two_times_of_a_method() -> None:
    """Two seeds, 10 steps, 2 trajectories: correlation 1 for 6 and for 2 steps."""
    correlation = np.zeros((2, 10, 2))
    correlation[:, :6, 0] = 1.0
    correlation[:, :2, 1] = 1.0
    mean_curve, own = high_correlation_times(correlation, 0.5)
    np.testing.assert_array_equal(mean_curve, [1.0, 1.0])
    np.testing.assert_array_equal(own, [2.0, 2.0])


def test_bands_fit_the_grid() -> None:
    assert list(bands(64)) == ["1-7", "12-19", "20 and above"]
    assert bands(64)["20 and above"] == slice(20, 33) and list(bands(32)) == ["1-7", "12-19"]


def test_pearson_of_horizons() -> None:
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert pearson(np.ones(3), np.array([1.0, 2.0, 3.0])) == 0.0


@pytest.mark.parametrize("methods", [("mse", "best"), ()])
def test_methods_are_checked(methods: tuple) -> None:
    with pytest.raises(ConfigError, match="methods"):
        check(replace(EXPERIMENT.preset("smoke"), methods=methods))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"seeds": 0}, "seeds"),
        ({"samples": 1}, "samples"),
        ({"history": 0}, "history"),
        ({"every": 0}, "every"),
        ({"steps": 13}, "test.frames"),
        ({"every": 2}, "test.frames"),
        ({"history": 2}, "test.frames"),
        ({"sampled_steps": 13}, "sampled_steps"),
    ],
)
def test_a_study_is_checked(wrong: dict, named: str) -> None:
    study: StudyConfig = EXPERIMENT.preset("smoke").study
    with pytest.raises(ConfigError, match=named):
        check(replace(study, **wrong))


@pytest.mark.parametrize("preset", ["cpu", "gpu", "paper"])
def test_presets_are_valid(preset: str) -> None:
    config: KsConfig = EXPERIMENT.preset(preset)
    check(config)
    study = config.study
    check(study)
    assert study.train.points % study.points == 0 and study.samples >= 16
    if preset == "cpu":
        assert study.seeds >= 3 and study.test.trajectories >= 256 and study.sampled >= 256

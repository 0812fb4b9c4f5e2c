"""Mixers compared, at smoke size, and how updates and sizes are matched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.drift_net import EXPERIMENT
from jaxrl_rollouts.experiments.pde.drift_net_cells import MIXERS, PARTS, parameters, updates_of
from jaxrl_rollouts.experiments.pde.drift_net_page import one_step, rolled, shell_errors
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "drift_net", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


@pytest.mark.slow
def test_the_page_of_a_whole_run(finished: Path) -> None:
    report = load_report(finished)
    assert set(report.pictures) >= {"errors", "shells", "drift", "rollouts"}
    rows = {row["arm"]: row for row in report.tables["shear_layer"]}
    assert list(rows) == [
        "drift", "attention", "fno", "no low mixing", "attention, equal seconds", "persistence",
        "linear", "solver",
    ]  # fmt: skip
    # What is solved on the emulators' grid is wrong by what the finer grid resolves.
    assert rows["solver"]["one step L1 %"].value < rows["persistence"]["one step L1 %"].value / 5
    claims = {claim.name: claim for claim in report.claims}
    measured = [rows[name]["one step L1 %"].values for name in ("drift", "attention")]
    ratio = np.divide(*measured)
    np.testing.assert_allclose(claims["DRIFT beats attention: shear_layer, updates"].values, ratio)
    speeds = {row["arm"]: row for row in report.tables["training speed"]}
    assert speeds["attention"]["published"] == pytest.approx(158 / 118)


def test_mixers_of_the_preset_have_as_many_parameters_within_five_percent() -> None:
    sizes = {name: parameters(CPU.arm(name), CPU.train.points) for name in (*MIXERS, "fno")}
    assert all(abs(size / sizes["drift"] - 1) <= 0.05 for size in sizes.values())
    wide = replace(CPU, conv=replace(CPU.conv, dims=(40, 80)))
    with pytest.raises(ConfigError, match="conv"):
        check(wide)


def test_ablations_take_one_thing_away() -> None:
    for part, change in PARTS.items():
        assert CPU.arm(part) == replace(CPU.drift, **change)


def test_as_many_seconds_are_updates_in_the_ratio_of_speeds() -> None:
    def cells(attention: float) -> Grid:
        rates = {"drift": np.array([9.0, 10.0, 30.0]), "attention": np.full(3, attention)}
        made = {("updates", k): Cell(extra={"speed": v}) for k, v in rates.items()}
        return Grid(("matching", "arm"), made)

    updates = CPU.training.updates
    ratio = np.median(7.3 / np.array([9.0, 10.0, 30.0]))
    assert updates_of(CPU, "attention", cells(7.3)) == 20 * round(ratio * updates / 20)
    assert updates_of(CPU, "attention", cells(1e-6)) == 20


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"mixers": ("drift", "conv")}, "mixers"),
        ({"seconds": ("drift",)}, "seconds"),
        ({"parts": ("no head",)}, "parts"),
        ({"steps": 9}, "test.frames"),
        ({"seeds": 0}, "seeds"),
        ({"training": replace(SMOKE.training, updates=30, per_iteration=10)}, "training.updates"),
        ({"training": replace(SMOKE.training, per_iteration=10)}, "training.per_iteration"),
    ],
)
def test_bad_settings_are_named(changes: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as found:
        check(replace(SMOKE, **changes))
    assert found.value.setting == setting


def test_measures_are_medians_of_a_starts_own_trajectories() -> None:
    """Two seeds, four test trajectories, of which the last two are asked for."""
    l1 = np.arange(2 * 4 * 3, dtype=float).reshape(2, 4, 3)
    steps = np.arange(2 * 5 * 4, dtype=float).reshape(2, 5, 4)
    spectra = np.ones((2, 4, 6)) * np.array([1.0, 1.0, 3.0, 5.0])[:, None]
    cell = Cell(extra={"one_step_l1": l1, "relative_l1": steps, "step_spectrum": spectra}, seeds=2)
    rows = slice(2, 4)
    np.testing.assert_allclose(one_step(cell, rows), [850.0, 2050.0])
    np.testing.assert_allclose(rolled(cell, rows, 2), [650.0, 2650.0])
    np.testing.assert_allclose(shell_errors(cell, rows, np.full(6, 2.0)), 2.0)
    lost = replace(cell, diverged=True)
    assert np.isnan(one_step(lost, rows)).all() and one_step(lost, rows).shape == (2,)

"""One emulator over many viscosities, at smoke size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.pde.ks_conditional import EXPERIMENT
from jaxrl_rollouts.pde.files import read_pdearena
from jaxrl_rollouts.reports.report import load_report

pytest.importorskip("exponax")
SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_trajectories_of_all_viscosities_are_told_apart_and_counted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "ks_conditional", "--preset", "smoke", "--no-progress", "--out", str(out)])
    (folder,) = out.iterdir()
    report = load_report(folder)
    rows = report.tables["horizon by viscosity"]
    viscosity = read_pdearena(folder / "data" / "ks_test.h5").parameters["viscosity"]
    assert len(np.unique(viscosity)) == 8 and 0.5 <= viscosity.min() < viscosity.max() <= 1.5
    counted = {row["viscosity"]: row["trajectories"] for row in rows}
    low = int((viscosity < 1.0).sum())
    expected = {"0.5 to 1": low, "1 to 1.5": 8 - low}
    assert counted == {name: n for name, n in expected.items() if n}
    for row in rows:
        assert len(row["mse T(0.8)"].values) == len(row["refiner T(0.8)"].values) == 2
        assert row["change"] > 0.01
    assert set(report.pictures) == {"horizon", "rollouts"}
    assert len(report.claims) == 3
    told = {row["prediction"] for row in report.tables["error of a step"]}
    assert told == {"mse", "refiner, first call", "refiner"}


@pytest.mark.parametrize(
    ("wrong", "named"), [({"bins": 0}, "bins"), ({"conditions": ()}, "study.conditions")]
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    bad = (
        replace(SMOKE, **wrong)
        if "bins" in wrong
        else replace(SMOKE, study=replace(SMOKE.study, **wrong))
    )
    with pytest.raises(ConfigError, match=named):
        check(bad)


def test_one_viscosity_is_no_range() -> None:
    test = replace(SMOKE.study.test, parameter=(1.0, 1.0))
    with pytest.raises(ConfigError, match="study.test.parameter"):
        check(replace(SMOKE, study=replace(SMOKE.study, test=test)))


@pytest.mark.parametrize("preset", ["cpu", "gpu", "paper"])
def test_presets_are_valid(preset: str) -> None:
    config = EXPERIMENT.preset(preset)
    check(config)
    check(config.study)
    assert config.study.train.parameter == (0.5, 1.5)
    assert config.study.test.trajectories >= 256

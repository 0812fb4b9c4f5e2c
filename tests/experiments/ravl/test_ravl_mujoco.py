"""The MuJoCo comparison at smoke size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.offline.data import data_folder
from jaxrl_rollouts.reports.report import load_report

DATA = data_folder() / "hopper_mixed.hdf5"
SMOKE = ["--preset", "smoke", "--no-progress"]


@pytest.mark.skipif(not DATA.is_file(), reason="the real datasets are not here")
def test_ravl_mujoco_compares_methods_on_real_data(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    cli.dispatch(["run", "ravl_mujoco", *SMOKE, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["results"]
    assert [row["method"] for row in rows] == ["behaviour", "base", "ravl"]
    # Whole episodes of hopper_mixed: what its makers state.
    assert rows[0]["return"] == pytest.approx(551.768, abs=0.01)
    # D4RL's formula with D4RL's hopper references.
    expected = 100 * (rows[0]["return"] + 20.272305) / (3234.3 + 20.272305)
    assert rows[0]["score"] == pytest.approx(expected, rel=1e-4)
    assert len(rows[1]["return"].values) == 2
    assert {"comparison", "world_model"} <= set(report.pictures)
    assert any("not D4RL's files" in note for note in report.notes)
    by_name = {claim.name: claim for claim in report.claims}
    beats = by_name["RAVL beats base on hopper-mixed"]
    difference = np.subtract(rows[2]["return"].values, rows[1]["return"].values)
    np.testing.assert_allclose(beats.values, difference, rtol=1e-5)

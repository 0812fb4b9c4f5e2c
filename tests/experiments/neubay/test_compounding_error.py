"""The experiment at smoke size, and what its numbers mean on rollouts that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay.compounding_error import (
    EXPERIMENT,
    JudgedWorlds,
    growth_rows,
    trust_row,
)
from jaxrl_rollouts.offline.worlds.fit import NEUBAY_ENSEMBLE as NEUBAY
from jaxrl_rollouts.offline.worlds.judge import OpenLoop
from jaxrl_rollouts.offline.worlds.trust import LEVELS, Trust
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_smoke(tmp_path: Path) -> None:
    command = ["run", "compounding_error", "--preset", "smoke", "--no-progress"]
    cli.dispatch([*command, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    title = "pendulum-mixed on pendulum-mixed"
    rows = report.tables[title]
    assert [r["step"] for r in rows] == [1, 2, 4, 8, 16, 20] * 2
    assert [r["model"] for r in rows] == ["LN"] * 6 + ["no LN"] * 6
    assert all(np.isfinite(r["median error"].values).all() for r in rows)
    trust = report.tables[f"{title}: trust"]
    for row in trust:
        limits = [row[f"u({level:g})"].values[0] for level in LEVELS if level >= 0.9]
        assert limits == sorted(limits) and limits[0] > 0
        assert -1 <= row["Spearman of spread and error"].values[0] <= 1
    assert set(report.pictures) == {
        "growth-pendulum-mixed-on-pendulum-mixed",
        "trust-pendulum-mixed-on-pendulum-mixed",
    }
    assert {c.name.split(": ")[1] for c in report.claims} >= {
        "without layer normalisation errors explode",
        "the spread knows the error",
    }


def judged(error: np.ndarray, uncertainty: np.ndarray, largest: float) -> JudgedWorlds:
    """One ensemble; the data's spread has this maximum."""
    quantiles = np.linspace(0.0, largest, len(LEVELS))[None]
    trust = Trust(np.array([LEVELS]), quantiles, np.array([0.1]))
    zero = np.zeros_like(error)
    return JudgedWorlds(OpenLoop(error, error, zero, zero - 0.5, uncertainty), trust, 3)


def test_growth_reads_steps_from_one_and_ends_at_the_end() -> None:
    error = np.broadcast_to(np.arange(1.0, 7.0)[:, None], (6, 3))[None].copy()
    error[0, 5, 2] = np.inf
    rows = growth_rows("LN", judged(error, error, 10.0))
    assert [r["step"] for r in rows] == [1, 2, 4, 6]
    assert [r["median error"].values for r in rows] == [(1.0,), (2.0,), (4.0,), (6.0,)]
    assert [round(r["lost %"], 1) for r in rows] == [0.0, 0.0, 0.0, 33.3]
    assert rows[0]["reward bias, median"].values == (-0.5,)


def test_trust_says_what_was_spared_by_a_stop_at_the_largest_spread() -> None:
    spread = np.array([[0.1, 0.2], [0.3, 1.5], [0.2, 0.2]])[None]
    error = np.array([[1.0, 2.0], [3.0, 40.0], [4.0, 50.0]])[None]
    row = trust_row("LN", judged(error, spread, 1.0))
    assert row["u(1)"].values == (1.0,) and row["epochs"] == 3
    assert row["95 % of errors up to u(1)"].values == (3.0,)
    assert row["median error above u(1)"].values == (45.0,)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"pairs": ()}, "pairs"),
        ({"length": 0}, "length"),
        ({"ensemble": replace(NEUBAY, layer_norm=False)}, "ensemble.layer_norm"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))


def test_the_members_are_the_specs() -> None:
    assert (NEUBAY.members, NEUBAY.elites, NEUBAY.hidden) == (128, 100, (200,) * 4)
    assert not NEUBAY.learned_bounds and not NEUBAY.bootstrap and NEUBAY.layer_norm
    # Log-variances are twice log sigma's [-5, 0.25].
    assert (NEUBAY.log_var_low / 2, NEUBAY.log_var_high / 2) == (-5.0, 0.25)

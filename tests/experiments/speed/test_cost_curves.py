"""What is built is of the size that is asked for, and promises become claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.costs import Curve
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.speed import cost_curves
from jaxrl_rollouts.experiments.speed.cost_curves import EXPERIMENT, PROMISES, cache_bytes
from jaxrl_rollouts.experiments.speed.cost_curves_cells import (
    AXES,
    Config,
    horizon_cost,
    reading_cost,
    seeds_cost,
    works,
)
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_every_curve_is_measured(tmp_path: Path) -> None:
    cli.dispatch(
        ["run", "cost_curves", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    )
    (folder,) = tmp_path.iterdir()
    report = load_report(folder)
    for axis in AXES:
        rows = report.tables[axis]
        assert {row[axis] for row in rows} == set(getattr(SMOKE, axis))
        assert all(row["seconds"] > 0 and row["MB"] > 0 for row in rows)
        assert all((row["slope"] is None) == (row[axis] == getattr(SMOKE, axis)[0]) for row in rows)
        assert axis in report.pictures
    spans = report.tables["where it is linear"]
    assert len(spans) == len(list(works(SMOKE, tmp_path)))
    assert not list(folder.glob(".files-*")), "files that were read are gone"


def test_every_promise_is_about_work_that_is_measured(tmp_path: Path) -> None:
    known = {(work.axis, work.name): work for work in works(Config(), tmp_path)}
    for promise in PROMISES:
        work = known[promise.axis, promise.work]
        assert {promise.start, promise.end} <= set(getattr(Config(), work.sizes or work.axis))


def test_promises_hold_where_slopes_are_within() -> None:
    config, curves = Config(), {}
    grows = {(promise.axis, promise.work) for promise in PROMISES if promise.low is not None}
    for promise in PROMISES:
        sizes = np.array(getattr(config, promise.axis))
        power = float((promise.axis, promise.work) in grows)
        seconds = sizes[:, None] ** power * np.array([1.0, 1.1, 1.2])
        curves[promise.axis, promise.work] = Curve(sizes, seconds, sizes**1.5, *[0 * sizes] * 3)
    report = Report("cost_curves", "cpu", {}, "jaxrl-rollouts run cost_curves", 1)
    cost_curves.claim_promises(report, curves)
    assert len(report.claims) == len(PROMISES)
    for claim in report.claims:
        assert claim.holds == ("bytes" not in claim.expected), claim.name
    smaller = {at: curve._replace(sizes=curve.sizes + 1) for at, curve in curves.items()}
    report = Report("cost_curves", "smoke", {}, "jaxrl-rollouts run cost_curves", 1)
    cost_curves.claim_promises(report, smaller)
    assert not report.claims, "sizes that were not measured"


@pytest.mark.slow
def test_a_rollout_records_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the recorded trajectory grow by those of a step."""
    plans = [horizon_cost(replace(SMOKE, rolled=200), horizon) for horizon in (10, 110)]
    _, trajectory = plans[0].call()
    assert trajectory.steps.observations.shape == (10, 200, 17)
    grown = plans[1].bytes - plans[0].bytes
    recorded = sum(leaf.nbytes for leaf in jax.tree.leaves(trajectory)) / 10
    assert grown == pytest.approx(100 * recorded, rel=0.2)


@pytest.mark.slow
def test_seeds_keep_their_own_states() -> None:
    one, four = seeds_cost(SMOKE, 1), seeds_cost(SMOKE, 4)
    assert four.kept == 4 * one.kept
    state, metrics = four.call()
    assert all(len(leaf) == 4 for leaf in jax.tree.leaves((state, metrics)))


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    cost = reading_cost(SMOKE, tmp_path, 3000)
    rows = cost.call().transitions
    assert len(rows.rewards) == 3000 and rows.truncations.sum() == 3
    held = sum(array.nbytes for array in rows)
    assert held < cost.bytes < 6 * held
    assert cost.kept == (tmp_path / "3000.hdf5").stat().st_size


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"seeds": (4, 2)}, "seeds"),
        ({"rows": (10,)}, "rows"),
        ({"unet_points": (8, 20)}, "unet_points"),
    ],
)
def test_sizes_that_make_no_curve_are_refused(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}"):
        check(Config(**wrong))


def test_caches_are_read_as_the_system_tells_them(tmp_path: Path) -> None:
    for i, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 3, "32768K")]
    ):
        index = tmp_path / f"index{i}"
        index.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (index / name).write_text(f"{value}\n")
    assert cache_bytes(tmp_path) == {"L1": 48 * 1024, "L3": 32 * 1024 * 1024}
    assert cache_bytes(tmp_path / "none") == {}

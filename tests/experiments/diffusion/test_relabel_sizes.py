"""Sizes of what tells samples anew: the arms, what is shared between them, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.relabel_sizes import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.relabel_sizes_cells import AXES, Arm, Config, made_rows
from jaxrl_rollouts.experiments.diffusion.relabel_sizes_page import page
from jaxrl_rollouts.experiments.diffusion.synther_small_data_rows import Share, own_rows
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.claims import TIME_CONSTANTS
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE, CPU, KEY = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu"), jax.random.key(0)


def setting(name: str, rows: int = 2000) -> Setting:
    data = pendulum_mixed(KEY, rows)
    return Setting(Dataset(name, data, None, Path("(made)"), "", {}), PENDULUM)


def context(tmp_path: Path, config: Config) -> RunContext:
    folder = RunFolder.create(tmp_path, "relabel_sizes", "test", config, "")
    return RunContext(folder, progress=False)


def test_arms_differ_in_one_thing_from_the_study() -> None:
    centre = Arm("model", 128, 200, 0.0)
    assert CPU.centre == centre
    arms = CPU.arms()
    assert arms[0] == Arm("rows") and len(set(arms)) == len(arms) == 13
    told = [arm for arm in arms if arm.kind == "model"]
    assert len(told) == 7  # the study's own, and two more along each of three axes
    for arm in told:
        assert sum(a != b for a, b in zip(arm, centre, strict=True)) == (arm != centre)
    drawn = [arm for arm in arms if arm.kind == "samples"]
    assert len(drawn) == 5 and {arm.network for arm in drawn} == {0}
    # A network's width says nothing about samples as drawn: they are one arm.
    assert set(CPU.along("network", "samples")) == {Arm("samples", 128, 0, 0.0)}
    assert [arm.real for arm in CPU.along("real", "model")] == list(CPU.real_shares)
    assert str(told[0]) == "model, denoiser 32, network 200, 0 % real"
    assert str(arms[0]) == "rows"


def test_an_arm_has_its_own_sizes_and_the_studys_otherwise() -> None:
    study = CPU.at(Arm("model", 32, 400, 0.5))
    assert study.synther.network.width == 32 and study.real_share == 0.5
    assert study.networks.hidden == (400, 400, 400)  # as many layers as the study's
    assert study.synther.training == CPU.study.synther.training
    assert CPU.at(CPU.centre) == CPU.study
    check(study)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"study": replace(CPU.study, told=())}, "study.told"),
        ({"study": replace(CPU.study, told=("oracle",))}, "study.told"),
        ({"study": replace(CPU.study, told=("model", "ensemble"))}, "study.told"),
        ({"denoisers": (32, 64)}, "denoisers"),
        ({"networks": (200, 32)}, "networks"),
        ({"real_shares": (-0.5, 0.0)}, "real_shares"),
        ({"real_shares": (0.0, 1.0)}, "real_shares"),
        ({"study": replace(CPU.study, real_share=0.25)}, "real_shares"),
    ],
)
def test_sizes_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(CPU, **change))
    assert caught.value.setting == setting


def test_presets_are_valid_and_read_after_three_time_constants() -> None:
    for name in ("smoke", "cpu"):
        check(EXPERIMENT.preset(name))
    for agent in CPU.study.agents:
        rate = bootstrap_rate(CPU.study.named(agent))
        assert CPU.study.updates * rate >= TIME_CONSTANTS - 1e-9


@pytest.mark.slow
def test_a_network_is_fitted_once_and_told_samples_lie_where_they_were_drawn(
    tmp_path: Path,
) -> None:
    config = replace(SMOKE, study=replace(SMOKE.study, seeds=1), networks=(16,))
    run = context(tmp_path, config)
    where = setting("pendulum-mixed")
    rows = own_rows(where.dataset.transitions, 0.05, KEY, 1)
    part = Share(rows, 0.05, PENDULUM, KEY, "5-percent")
    made = dict(made_rows(part, config, KEY, run))
    assert set(made) == {
        Arm(kind, width, 16 * (kind == "model"), 0.0)
        for kind in ("samples", "model")
        for width in config.denoisers
    }
    for width in config.denoisers:
        (drawn,) = made[Arm("samples", width, 0, 0.0)].rows
        (told,) = made[Arm("model", width, 16, 0.0)].rows
        np.testing.assert_array_equal(told.observations, drawn.observations)
        np.testing.assert_array_equal(told.actions, drawn.actions)
        assert np.abs(told.next_observations - drawn.next_observations).max() > 0.01
        assert (
            made[Arm("model", width, 16, 0.0)].seconds > made[Arm("samples", width, 0, 0.0)].seconds
        )
    small, large = (made[Arm("samples", width, 0, 0.0)].rows[0] for width in config.denoisers)
    assert np.abs(small.observations - large.observations).max() > 0.01
    stages = {path.name for path in run.folder.path.iterdir() if path.is_dir()}
    assert {name for name in stages if "network" in name} == {
        "5-percent-network-16-model-0",
        "5-percent-network-16-told-model",
    }


def cells(config: Config, scores: dict[str, float]) -> Grid:
    """That earn these scores of HalfCheetah, give or take a point by seed; larger models more."""
    found = {}
    for agent in config.study.agents:
        for arm in config.arms():
            score = scores[arm.kind] + (arm.denoiser + arm.network) / 100 + 10 * arm.real
            earned = -280.178953 + (12135.0 + 280.178953) * score / 100
            history = History()
            history.append(3, {"return": np.array([earned - 124.0, earned + 124.0])})
            made = ("models", "error", "learning")
            extra = {} if arm == Arm("rows") else {name: np.ones(2) for name in made}
            found[agent, *arm] = Cell(history, extra, rate=1.0, seeds=2)
    return Grid(AXES, found)


def test_the_page_says_what_small_models_cost_and_what_real_rows_bring(tmp_path: Path) -> None:
    grids = {
        share: cells(CPU, {"rows": rows, "samples": 20.0, "model": 30.0})
        for share, rows in ((0.03, 15.0), (1.0, 27.5))
    }
    report = Report.of(context(tmp_path, CPU), 2)
    page(report, CPU, setting("halfcheetah-mixed", 400), grids)
    claims = {claim.name: claim for claim in report.claims}
    assert len(claims) == 8
    for agent in ("TD3+BC", "IQL"):
        good = "told by one network, are as good as rows from the smallest"
        for what, points in (("denoiser", -5.18), ("network", -5.9)):
            claim = claims[f"{agent}: samples of 100 %, {good} {what}"]
            assert claim.verdict == "no" and np.mean(claim.values) == pytest.approx(
                points, abs=0.01
            )
        claim = claims[f"{agent}: samples of 100 % as drawn are better from the largest denoiser"]
        assert np.mean(claim.values) == pytest.approx(2.24 * 124.15179, rel=1e-4)
        mixed = f"{agent}: rows of 3 % with samples, told by one network, among them are better"
        assert claims[mixed].verdict == "yes"
        assert "50 % real rows" in claims[mixed].expected
    table = report.tables["returns"]
    assert len(table) == 2 * 2 * 13
    plain, *others = table[:13]
    assert "points over the rows" not in plain and plain["denoiser"] == "-"
    assert all("points over the rows" in row and row["error"].mean == 1.0 for row in others)
    assert set(report.pictures) == {"sizes-3-percent", "sizes-100-percent"}


@pytest.mark.slow
def test_the_smoke_run_varies_every_size(tmp_path: Path) -> None:
    run = context(tmp_path, SMOKE)
    EXPERIMENT.run(SMOKE, run).save(tmp_path)
    report = load_report(tmp_path)
    assert len(report.tables["returns"]) == 2 * len(SMOKE.arms())
    assert {row["arm"] for row in report.tables["clock"]} == {str(arm) for arm in SMOKE.arms()}
    again = load_report(tmp_path)
    EXPERIMENT.run(SMOKE, RunContext(run.folder, progress=False)).save(tmp_path)
    assert load_report(tmp_path).tables["returns"] == again.tables["returns"]  # resumed

"""NEUBAY on MuJoCo data at smoke size, and what its arms are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay.neubay_mujoco import EXPERIMENT
from jaxrl_rollouts.offline.data import episode_returns, load
from jaxrl_rollouts.reports.report import load_report

SMOKE = EXPERIMENT.preset("smoke")
ARMS = ["neubay", "markov", "quantile 0.9", "penalty 1"]


@pytest.mark.slow
def test_arms_and_methods_on_data_that_anyone_can_make(made_data: Path, tmp_path: Path) -> None:
    cli.dispatch(
        ["run", "neubay_mujoco", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    )
    report = load_report(next(tmp_path.iterdir()))
    rows = {row["method"]: row for row in report.tables["results"]}
    assert list(rows) == ["behaviour", *ARMS, "ravl"]
    played = episode_returns(load(made_data / "hopper-random.hdf5").transitions)
    assert rows["behaviour"]["return"] == pytest.approx(played[:-1].mean(), rel=1e-4)
    rollouts = report.tables["rollouts of the last collection"]
    assert [row["arm"] for row in rollouts] == ARMS
    for row in rollouts:
        ended = ("ended by threshold", "by termination", "by the limit")
        assert sum(row[k].mean for k in ended) == pytest.approx(1.0, abs=1e-5)
        # Hopper's alpha is the paper's fixed one.
        assert row["alpha"].values == pytest.approx((0.2, 0.2))
    claims = {claim.name: claim for claim in report.claims}
    assert len(claims) == 6
    helps = claims["a memory helps on hopper-random"].values
    returns = [rows[name]["return"].values for name in ("neubay", "markov")]
    np.testing.assert_allclose(helps, np.subtract(*returns), rtol=1e-4, atol=1e-3)
    gap = claims["NEUBAY does not promise more than it earns on hopper-random"].values
    own = rows["neubay"]
    difference = np.subtract(own["estimated value"].values, own["true value"].values)
    np.testing.assert_allclose(gap, difference, rtol=1e-4, atol=1e-3)
    pictures = {"comparison", "values", "world_model", "horizons-hopper-random"}
    assert pictures | {"learning-hopper-random"} == set(report.pictures)
    assert any("data make" in note for note in report.notes)


def test_every_dataset_has_the_papers_settings() -> None:
    paper = EXPERIMENT.preset("paper")
    assert paper.neubay.ensemble.members == 128 and paper.neubay.ensemble.elites == 100
    found = {
        name: (a.memory_rate, a.real_weight, a.learn_alpha)
        for name in paper.datasets
        for a in [paper.arms(name)["neubay"].agent]
    }
    assert found == {
        "halfcheetah-random-v2": (3e-5, 0.8, True),
        "halfcheetah-medium-v2": (3e-5, 0.8, True),
        "halfcheetah-medium-replay-v2": (1e-5, 0.05, True),
        "hopper-medium-replay-v2": (3e-7, 0.5, False),
    }
    own = paper.arms("hopper-mixed")["neubay"]
    assert (own.level, own.penalty, own.rollouts, own.tape) == (1.0, 0.0, 100, 2048)
    assert own.agent.steps == 2_000_000 and own.agent.critics == 10
    arms = paper.arms("hopper-mixed")
    assert {a.level for a in arms.values()} == {0.9, 0.99, 0.999, 1.0}
    assert {a.penalty for a in arms.values()} == {0.0, 0.04, 0.2, 1.0, 5.0}
    assert paper.arms("another")["neubay"] == paper.neubay.agent


@pytest.mark.parametrize("preset", list(EXPERIMENT.presets))
def test_presets_are_sound(preset: str) -> None:
    config = EXPERIMENT.preset(preset)
    check(config)
    per_epoch = config.study.rollouts.updates_per_epoch
    assert config.study.epochs * per_epoch == config.neubay.agent.agent.steps


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"methods": ("neubay",)}, "methods: found 'neubay'"),
        ({"datasets": ()}, "datasets"),
        ({"levels": (1.5,)}, "levels"),
        ({"penalties": (0.0,)}, "penalties"),
        ({"study": replace(SMOKE.study, epochs=3, evaluations=1)}, "gradient steps: found 30"),
        (
            {"study": replace(SMOKE.study, ensemble=replace(SMOKE.study.ensemble, max_epochs=2))},
            "max_epochs: found 2",
        ),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(SMOKE, **wrong))

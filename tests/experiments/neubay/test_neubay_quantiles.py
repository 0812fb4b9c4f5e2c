"""Quantiles at smoke size: arms, comparison with the simulator, claims, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.experiments.neubay.neubay_quantiles import (
    EXPERIMENT,
    add_claims,
    chosen,
    collections,
    imagined_per_real,
)
from jaxrl_rollouts.offline.data import load
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")


@pytest.mark.slow
def test_values_on_the_data_are_held_against_the_simulator(made_data: Path, tmp_path: Path) -> None:
    command = ["run", "neubay_quantiles", "--preset", "smoke", "--no-progress", "--out"]
    cli.dispatch([*command, str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    rows = {row["arm"]: row for row in report.tables["values on the data"]}
    assert list(rows) == ["quantile 0.9", "quantile 1"]
    for row in rows.values():
        share = np.divide(row["promised on the data"].values, row["true there"].values)
        np.testing.assert_allclose(row["promised over true"].values, share, rtol=1e-4)
        # An entropy above zero, of a policy that has hardly learned, is worth something.
        assert (np.array(row["true there"].values) > row["without entropy"].values).all()
        assert np.isfinite(row["in the models"].values).all()
    assert {"values", "horizons-hopper-random"} == set(report.pictures)
    verdicts = {claim.name: claim for claim in report.claims}
    ratio = verdicts["short rollouts promise more: quantile 0.9 against quantile 1"]
    low, high = (row["promised on the data"].values for row in rows.values())
    np.testing.assert_allclose(ratio.values, np.divide(low, high), rtol=1e-4)
    assert any("data make" in note for note in report.notes)
    learned, held = report.tables["learned from and held out"]
    assert (learned["rows"], held["rows"]) == ("learned from", "held out")
    assert learned["count"] + held["count"] == report.tables["posteriors"][0]["rows"]


def test_rows_are_of_the_data_with_their_own_states(made_hopper: Path) -> None:
    dataset = load(made_hopper / "hopper-random.hdf5", infos=True)
    rows, qpos, qvel = chosen(dataset, 50, 0)
    env = make("mujoco/Hopper-v4")
    assert env.reset_to is not None and len(qpos) == 50
    np.testing.assert_allclose(env.observe(env.reset_to(qpos, qvel)), rows.observations, atol=1e-5)
    again, other = chosen(dataset, 50, 0)[1], chosen(dataset, 50, 1)[1]
    assert (again == qpos).all() and not (other == qpos).all()
    assert len(chosen(dataset, 10**6, 0)[1]) == len(dataset)
    with pytest.raises(DataError, match="infos"):
        chosen(replace(dataset, infos={}), 5, 0)


def test_collections_are_counted_and_their_rows_too() -> None:
    """Five steps an iteration: owed 3 after the first, a second collection, then none."""
    history = History()
    for i, (owed, share) in enumerate([(3.0, 0.2), (9.0, 0.6), (4.0, 0.6)]):
        history.append(i + 1, {"owed": np.full(2, owed), "imagined_share": np.full(2, share)})
    cell = Cell(history, updates=5, seeds=2)
    assert collections(cell).tolist() == [2, 2]
    mean = (0.2 + 0.6 + 0.6) / 3
    np.testing.assert_allclose(imagined_per_real(cell), mean / (1 - mean))


@pytest.mark.parametrize("preset", list(EXPERIMENT.presets))
def test_presets_are_sound(preset: str) -> None:
    config = EXPERIMENT.preset(preset)
    check(config)
    agent = config.neubay.agent
    assert agent.markov and agent.weighting == "transition" and config.levels[-1] == 1.0
    if preset == "cpu":
        learner = agent.agent
        clock = learner.steps * learner.polyak * (1 - learner.discount)
        assert clock >= 3, "values are read after three time constants"
        assert config.study.seeds == config.neubay.worlds >= 3


def test_no_threshold_is_an_arm_and_no_quantile() -> None:
    config = replace(SMOKE, levels=(1.0, -1.0, 0.9))
    check(config)
    assert config.names == {"quantile 1": 1.0, "no threshold": -1.0, "quantile 0.9": 0.9}
    assert config.quantiles == [0.9, 1.0]


def of_arm(promised: float, horizon: float) -> Cell:
    """A converged cell of two seeds that promises as much where 1 is true."""
    history = History()
    for i in range(1, 6):
        history.append(i, {"horizon_median": np.full(2, horizon), "q_real": np.full(2, promised)})
    values = {"promised": np.full((2, 3), promised), "true": np.ones((2, 3))}
    return Cell(history, values, updates=1000, rate=1.0, seeds=2)


def test_claims_are_of_the_arms_that_were_trained() -> None:
    arms = {"quantile 0.9": (8.0, 2.0), "quantile 1": (1.4, 40.0), "no threshold": (1.1, 66.0)}
    for levels, holding in (
        ((0.9, 1.0, -1.0), [True, True, True, False, False, True, True]),
        ((1.0, -1.0), [False, False, True, True]),
        ((-1.0,), [True, True]),
    ):
        config, report = replace(SMOKE, levels=levels), Report("", "", {}, "", seeds=2)
        check(config)
        grid = Grid(("arm",), {(name,): of_arm(*arms[name]) for name in config.names})
        add_claims(report, config, grid)
        assert [claim.holds for claim in report.claims] == holding


def test_settings_that_mean_nothing_are_named() -> None:
    agent = SMOKE.neubay.agent
    memory = replace(agent.agent, memory=MemoryConfig("lru", width=8, state=4, layers=1))
    tapes = replace(agent, agent=memory, weighting="episode", tape=1002)
    for changed, what in (
        (replace(SMOKE, levels=()), "levels"),
        (replace(SMOKE, levels=(1.5,)), "at least one, above 0"),
        (replace(SMOKE, levels=(0.0, 0.9, 1.0)), "levels"),
        (replace(SMOKE, neubay=replace(SMOKE.neubay, agent=tapes)), "memory.kind"),
        (replace(agent, tape=33), "two tokens"),
        (replace(agent, agent=memory), "two tokens"),
    ):
        with pytest.raises(ConfigError, match=what):
            check(changed)

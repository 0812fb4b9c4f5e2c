"""`run offline --method neubay`: report, policy, saved worlds, bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.main_job import EXPERIMENT
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.offline.study.neubay import (
    NeubayStudyConfig,
    fit_posterior,
    markov,
    small_neubay,
)
from jaxrl_rollouts.reports.report import load_report

SMOKE = ["--preset", "smoke", "--no-progress"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    cli.dispatch(["run", "offline", *SMOKE, "--method", "neubay", "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


def test_report_says_what_was_run_and_measured(finished: Path) -> None:
    report = load_report(finished)
    assert [row["method"] for row in report.tables["result"]] == ["behaviour", "neubay"]
    assert report.numbers["return"].seeds == 2
    # Pendulum's returns lie between about -2000 (worst) and 0.
    assert -2000 < report.numbers["return"].mean < 0
    (claim,) = report.claims
    assert claim.holds == (claim.measured >= claim.threshold)
    (row,) = report.tables["rollouts"]
    ended = [row[k].mean for k in ("ended by threshold", "by termination", "by the limit")]
    assert sum(ended) == pytest.approx(1.0, abs=1e-5) and ended[1] == 0
    assert 1 <= row["median horizon"].mean <= row["longest"].mean <= 200
    (world,) = report.tables["world model"]
    assert world["members"] == 2 and 0 < world["spread at 0.9"].mean <= world["spread at 1"].mean
    assert any(note.startswith("Token rings: 20,000 tokens per seed") for note in report.notes)
    names = {"values", "horizons-pendulum-mixed", "learning-pendulum-mixed"}
    assert set(report.pictures) == names
    for picture in report.pictures.values():
        assert (finished / picture.file).read_bytes().startswith(b"\x89PNG")


def test_its_policy_is_kept(finished: Path) -> None:
    saved = read_policy(finished)
    assert saved.facts["method"] == "neubay" and saved.environment == "pendulum"
    assert saved.remembers and saved.facts["observation_size"] == 3 + 1 + 1
    returns = load_report(finished).numbers["return"].values
    np.testing.assert_allclose(saved.facts["returns"], returns)


def test_worlds_of_a_run_serve_another_and_no_other_dataset(finished: Path) -> None:
    (folder,) = (path.parent for path in finished.rglob("world.json"))
    config = EXPERIMENT.preset("smoke")
    dataset = load_dataset(config.dataset, config.study.seed)
    found = fit_posterior(dataset, config.study, replace(config.neubay, folder=str(folder)), None)
    assert found.trained is None and found.trust.mean.shape == (1,)
    (row,) = load_report(finished).tables["world model"]
    np.testing.assert_allclose(found.trust.mean, row["mean spread"].values, rtol=1e-5)
    other = replace(
        dataset, transitions=type(dataset.transitions)(*(x[:-1] for x in dataset.transitions))
    )
    with pytest.raises(DataError, match="rows"):
        fit_posterior(other, config.study, replace(config.neubay, folder=str(folder)), None)


def test_the_markov_arm_differs_in_its_memory_only() -> None:
    own = small_neubay().agent
    without = markov(own)
    assert without.markov and not own.markov
    assert without.agent.memory_rate == own.agent.head_rate
    memory, rate = own.agent.memory, own.agent.memory_rate
    agent = replace(without.agent, memory=memory, memory_rate=rate)
    assert replace(without, agent=agent) == own


def test_worlds_are_counted() -> None:
    with pytest.raises(ConfigError, match="worlds"):
        check(NeubayStudyConfig(worlds=0))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--neubay.agent.horizon", "0"], "horizon: found 0"),
        (["--neubay.agent.tape", "30000"], "capacity: found 20000, expected at least one tape"),
        (["--neubay.agent.level", "0.77", "--neubay.folder", "nowhere"], "nowhere"),
    ],
)
def test_bad_settings_are_one_line_and_exit_2(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        given = ["--method", "neubay", "--out", str(tmp_path / "runs"), *arguments]
        cli.main(["run", "offline", *SMOKE, *given])
    assert stop.value.code == 2
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error:")]
    assert len(lines) == 1 and says in lines[0]

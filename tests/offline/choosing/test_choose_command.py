"""`jaxrl-rollouts choose` on a policy's folder, and how it is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import jax
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import Bc
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.choose_command import main
from jaxrl_rollouts.offline.data import Dataset, write_d4rl


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of ten short episodes and a policy cloned from it for four steps."""
    here = tmp_path_factory.mktemp("choose")
    rows = pendulum_mixed(jax.random.key(0), 2000)
    data = Dataset("mixed", rows, None, Path("(made)"), "")
    write_d4rl(here / "log.hdf5", data.transitions)
    method = Bc(hidden_dims=(8,), batch_size=16, steps=4, per_iteration=2, actor_lr=1e-3)
    offline.train(data, method, seeds=1, evaluations=1, environment="none").save(here / "cloned")
    return here


def test_it_prints_a_verdict_and_writes_three_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "choose.json"
    given = [str(folder / "cloned"), "--data", str(folder / "log.hdf5"), "--preset", "smoke"]
    main([*given, "--estimators", "models", "--out", str(out)], "jaxrl-rollouts choose")
    printed = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["verdict"] in printed and "bc/0" in printed and "Check " in printed
    assert [row["policy"] for row in found["rows"]] == ["bc/0"]
    assert found["behaviour"]["low"] < found["behaviour"]["value"] < 0
    assert out.with_suffix(".csv").is_file() and out.with_suffix(".png").is_file()


def test_a_log_in_units_has_the_bounds_that_the_policy_learned_it_with(folder: Path) -> None:
    shutil.copy(folder / "log.hdf5", folder / "units.hdf5")
    with h5py.File(folder / "units.hdf5", "r+") as file:
        file["actions"][...] = 2.0 * file["actions"][...]
    data = offline.load(folder / "units.hdf5", action_low=[-2.0], action_high=[2.0])
    method = Bc(hidden_dims=(8,), batch_size=16, steps=4, per_iteration=2, actor_lr=1e-3)
    offline.train(data, method, seeds=1, evaluations=1, environment="none").save(folder / "units")
    found = []
    for policy, log in (("cloned", "log.hdf5"), ("units", "units.hdf5")):
        given = [str(folder / policy), "--data", str(folder / log), "--preset", "smoke"]
        out = folder / f"{policy}.json"
        main([*given, "--estimators", "models", "--out", str(out)], "jaxrl-rollouts choose")
        found.append(json.loads(out.read_text()))
    values = [[row["value"] for row in one["rows"]] for one in found]
    assert values[0] == values[1] and found[0]["behaviour"] == found[1]["behaviour"]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ([], "--data: found '', expected the log, which .*cloned does not say: it is no run"),
        (["--out", "choose.txt"], "--out: found 'choose.txt'"),
        (["--undiscounted"], "--undiscounted"),
        (["--estimators", "magic"], "magic"),
        (["--preset", "big"], "big"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, more: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        main([str(folder / "cloned"), *more], "jaxrl-rollouts choose")


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([], "jaxrl-rollouts choose")
    printed = " ".join(capsys.readouterr().out.split())
    assert "without a simulator" in printed and "do not deploy" in printed

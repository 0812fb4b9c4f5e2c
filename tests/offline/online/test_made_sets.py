"""Datasets made by name: which policies, which rows, the same bytes twice, found afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import load, reference_scores, resolve
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.mujoco import make_gymnasium
from jaxrl_rollouts.offline.online.learner import OnlineConfig
from jaxrl_rollouts.offline.online.sets import RECIPES, Recipe, make_set, parts_of, split_name

TINY = Recipe(
    260,
    SacConfig(hidden=(8, 8)),
    OnlineConfig(environments=2, rows=20, warmup=60, batch_size=16, looks=5, episodes=1),
)


def curve(returns: list[float]) -> Any:
    steps = 100 * np.arange(1, len(returns) + 1)
    return SimpleNamespace(curve=lambda: (steps, np.array(returns)[:, None]))


def test_which_policies_play() -> None:
    training = curve([-90.0, -10.0, 20.0, 35.0, 80.0, 120.0, 150.0, 200.0, 180.0, 210.0])
    assert [p[:2] for p in parts_of("expert", training, -90.0, 100)] == [(9, 1000)]
    # A third of the way from -90 to 210 is 10.
    assert [p[:3] for p in parts_of("medium", training, -90.0, 100)] == [(2, 300, 20.0)]
    mixed = parts_of("mixed", training, -90.0, 102)
    assert [p.steps for p in mixed] == [100, 300, 500, 700, 900]
    assert sum(p.rows for p in mixed) == 102 and {p.rows for p in mixed} == {20, 21}
    assert parts_of("random", None, -90.0, 7) == [(None, 0, -90.0, 7)]


def test_names() -> None:
    assert split_name("inverted-double-pendulum-mixed") == ("inverted-double-pendulum", "mixed")
    for name in RECIPES:
        assert make(f"{name}-expert").name == make(name).name
    assert make("inverted-double-pendulum-mixed").name == "mujoco/InvertedDoublePendulum-v4"
    assert reference_scores("hopper-mixed") == reference_scores("hopper-medium-v2")
    assert reference_scores("reacher-mixed") is None
    with pytest.raises(ConfigError, match="did you mean halfcheetah-mixed"):
        split_name("halfcheeta-mixed")
    with pytest.raises(DataError, match="make it with: jaxrl-rollouts data make hopper-mixed"):
        load("hopper-mixed", data_dir="nowhere")


def test_two_makings_give_the_same_bytes_and_another_seed_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mujoco")
    name, made = "inverted-double-pendulum-mixed", []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / folder).mkdir()
        made.append(make_set(name, tmp_path / folder, rows=100, seed=seed, recipe=TINY))
    assert made[0].sha256 == made[1].sha256 != made[2].sha256
    record = json.loads((tmp_path / "a" / f"{name}.json").read_text())
    assert record["sha256"] == made[0].sha256 and record["part_rows"] == [20] * 5
    assert record["learning_curve"]["steps"] == [100, 140, 180, 220, 260]
    # The middles of five times 52 steps; before the warm-up there is no policy.
    assert record["part_steps"] == [100, 100, 140, 180, 220]
    with h5py.File(made[0].path) as file:
        facts = dict(file.attrs)
        qpos, qvel = file["infos/qpos"][()], file["infos/qvel"][()]
    assert facts["env_id"] == "mujoco/InvertedDoublePendulum-v4" and facts["seed"] == 0
    assert facts["command"].startswith(f"jaxrl-rollouts data make {name} --rows 100 --seed 0")
    assert json.loads(facts["training"])["hidden"] == [8, 8] and "jax" in facts["versions"]
    # The folder may be any of those that are named, and is found by the set's name.
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", f"{tmp_path / 'none'}:{tmp_path / 'a'}")
    assert resolve(name) == made[0].path
    rows = load(name).transitions
    assert load(name).name == name and len(rows.rewards) == 100 == len(qpos)
    check_rows_in_the_simulator(rows, qpos, qvel)


def check_rows_in_the_simulator(rows: Any, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """From the stored state the stored action leads to the stored successor."""
    simulator = make_gymnasium("InvertedDoublePendulum-v4").unwrapped
    simulator.reset(seed=0)
    for row in (0, 20, 55, 99):
        simulator.set_state(qpos[row], qvel[row])
        np.testing.assert_allclose(simulator._get_obs()[:8], rows.observations[row, :8], atol=1e-6)
        seen, reward, ended, _, _ = simulator.step(rows.actions[row].copy())
        np.testing.assert_allclose(seen[:8], rows.next_observations[row, :8], atol=1e-5)
        np.testing.assert_allclose(reward, rows.rewards[row], rtol=1e-5)
        assert ended == rows.terminations[row]


def test_the_command_makes_a_set_and_says_what_it_is(tmp_path: Path, capsys: Any) -> None:
    cli.main(["data", "make", "pendulum-random", "--rows", "300", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "300 transitions" in out and "random actions" in out and "sha256: " in out
    assert load("pendulum-random", data_dir=tmp_path).transitions.truncations.sum() == 2
    with pytest.raises(SystemExit):
        cli.main(["data", "make", "pendulum-mixed", "--out", str(tmp_path)])
    assert "made on the spot" in capsys.readouterr().err


def test_a_set_of_another_size_elsewhere_does_not_train_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training of the data folder is taken, and what plays is the same policy."""
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(RECIPES, "pendulum", TINY)
    command = ["data", "make", "pendulum-expert", "--no-progress"]
    scores = []
    for rows, more in ((400, []), (200, ["--out", str(tmp_path / "small")])):
        cli.main([*command, "--rows", str(rows), *more])
        out = capsys.readouterr().out
        assert f"{rows} transitions" in out
        scores.append(out.partition("rows: policy")[2].splitlines()[0])
    assert scores[0] == scores[1] and "260 steps" in scores[0]
    assert (tmp_path / "small" / "pendulum-expert.hdf5").is_file()
    assert not (tmp_path / "small" / "training").exists()

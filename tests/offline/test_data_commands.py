from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import episode_returns, load
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.saved_policies import save_policy


def collect(path: Path, *options: str) -> None:
    cli.main(["data", "collect", "--out", str(path), *options])


def fails(arguments: list[str], capsys: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["data", *arguments])
    err = capsys.readouterr().err
    assert caught.value.code == 2
    assert "Traceback" not in err
    return err


def test_collected_files_load_and_describe_themselves(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "scripted.hdf5"
    collect(path, "--policy", "scripted", "--steps", "450", "--seed", "7")
    out = capsys.readouterr().out
    assert "450 transitions, 3 episodes of pendulum" in out
    transitions = load(path).transitions
    assert transitions.observations.shape == (450, 3)
    assert np.flatnonzero(transitions.truncations).tolist() == [199, 399, 449]
    with h5py.File(path) as file:
        assert file.attrs["policy"] == "scripted" and file.attrs["seed"] == 7
        assert file.attrs["env_id"] == "pendulum" and file.attrs["max_episode_steps"] == 200


def test_policies_differ_in_quality(tmp_path: Path) -> None:
    means = {}
    for policy in ("random", "mixed", "scripted"):
        path = tmp_path / f"{policy}.hdf5"
        collect(path, "--policy", policy, "--steps", "2000")
        means[policy] = episode_returns(load(path).transitions).mean()
    assert means["random"] < means["mixed"] < means["scripted"]


def test_the_seed_decides(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        collect(tmp_path / f"{name}.hdf5", "--steps", "50", "--seed", seed)
        files.append(load(tmp_path / f"{name}.hdf5").transitions.observations)
    np.testing.assert_array_equal(files[0], files[1])
    assert not np.array_equal(files[0], files[2])


def test_inspect_prints_and_draws(tmp_path: Path, capsys: Any) -> None:
    path, picture = tmp_path / "d.hdf5", tmp_path / "d.png"
    collect(path, "--steps", "400")
    cli.main(["data", "inspect", str(path), "--out", str(picture)])
    out = capsys.readouterr().out
    assert "400" in out and "2 truncated" in out and f"picture: {picture}" in out.replace("\n", "")
    assert imread(picture).ndim == 3


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("hopper-medium-mini-v1", "episodes    119: "),
        ("pendulum-mixed", "100: 0 terminated, 100 truncated"),
    ],
)
def test_inspect_knows_what_load_knows(name: str, shown: str, capsys: Any) -> None:
    """Tapes are replayed and logs made, as for a training; neither is read as a file of arrays."""
    cli.main(["data", "inspect", name])
    assert shown in capsys.readouterr().out
    assert "made by a program" in fails(["inspect", name, "--action-low", "-2"], capsys)


def test_inspect_replays_a_tape_of_ones_own(made_hopper: Path, capsys: Any) -> None:
    tape = str(made_hopper / "hopper-random.tape")
    cli.main(["data", "inspect", tape])
    assert "11 observation, 3 action entries" in capsys.readouterr().out
    assert "made by a program" in fails(["inspect", tape, "--action-low", "-2"], capsys)


def test_inspect_describes_a_file_that_load_refuses(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "d.hdf5"
    collect(path, "--steps", "400")
    with h5py.File(path, "r+") as file:
        file["rewards"][3] = np.nan
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        cli.main(["data", "inspect", str(path)])
    printed = capsys.readouterr()
    assert caught.value.code == 2
    assert "episodes" in printed.out and "non-finite" in printed.out
    assert "error: " in printed.err and "rewards" in printed.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> Path:
    """A policy folder of two seeds whose mean actions are constant: 0.5 and -0.25."""
    config = SacConfig(num_critics=2, eta=0.0, hidden_dims=(4,))
    agent = make_sac(config, 3, 1)
    actors = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2)).actor
    actors = jax.tree.map(jnp.zeros_like, actors)
    bias = actors["Dense_1"]["bias"]
    actors["Dense_1"]["bias"] = bias.at[:, 0].set(jnp.arctanh(jnp.array([0.5, -0.25])))
    run = tmp_path_factory.mktemp("run")
    save_policy(run / "s" / "policy", config, actors, PENDULUM, method="ravl", dataset="d")
    return run


@pytest.mark.parametrize(("training_seed", "action"), [(0, 0.5), (1, -0.25)])
def test_a_trained_policy_acts(
    tmp_path: Path, trained: Path, training_seed: int, action: float
) -> None:
    path = tmp_path / "d.hdf5"
    collect(path, "--policy", str(trained), "--steps", "30", "--training-seed", str(training_seed))
    dataset = load(path)
    np.testing.assert_allclose(dataset.transitions.actions, action, rtol=1e-6)
    assert dataset.environment == "pendulum"
    assert dataset.attributes["policy"] == "ravl trained on d"
    collect(path, "--policy", str(trained / "s" / "policy"), "--steps", "30", "--sample")
    assert load(path).transitions.actions.std() > 0.1


def test_policies_that_cannot_act(tmp_path: Path, trained: Path, capsys: Any) -> None:
    def said(*options: str) -> str:
        out = str(tmp_path / "a.hdf5")
        return fails(["collect", "--out", out, "--steps", "5", *options], capsys)

    assert "expected 0 to 1" in said("--policy", str(trained), "--training-seed", "2")
    assert "observation_size 3" in said("--policy", str(trained), "--env", "plane")
    assert "no trained policy" in said("--policy", str(tmp_path))
    two = tmp_path / "two"
    for name in "ab":
        shutil.copytree(trained / "s", two / name)
    assert "found 2 times policy.json, expected one; name one: a/policy, b/policy" in said(
        "--policy", str(two)
    )
    file = two / "a" / "policy" / "policy.json"
    record = json.loads(file.read_text())
    del record["digest"]
    for change, message in (
        ({"format": 9}, "format: found 9"),
        ({"seeds": 0}, "seeds: found 0"),
        ({"seeds": 3}, "does not fit"),
        ({"agent": {"critics": "two"}}, "critics"),
        ({"agent": record["agent"] | {"hidden_dims": [5]}}, "does not fit"),
    ):
        file.write_text(json.dumps(record | change))
        assert message in said("--policy", str(file.parent)), change
    file.write_text("{")
    assert "no valid JSON" in said("--policy", str(file.parent))
    assert not (tmp_path / "a.hdf5").exists()


BAD = {
    "suffix": (["--out", "a.csv"], "--out: found 'a.csv'"),
    "folder": (["--out", "none/a.hdf5"], "existing folder"),
    "steps": (["--out", "a.hdf5", "--steps", "0"], "--steps: found 0"),
    "seed": (["--out", "a.hdf5", "--seed", "-1"], "--seed: found -1"),
    "environment": (["--out", "a.hdf5", "--env", "pendulm"], "did you mean pendulum"),
    "policy": (["--out", "a.hdf5", "--env", "plane", "--policy", "mixed"], "--policy: found"),
    "elsewhere": (["--out", "a.hdf5", "--policy", "broad"], "try --environment acrobot"),
    "choice": (["--out", "a.hdf5", "--policy", "best"], "mixed, or the folder of a run"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(tmp_path: Path, monkeypatch: Any, capsys: Any, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    options, message = BAD[case]
    assert message in fails(["collect", *options], capsys)
    assert list(tmp_path.iterdir()) == []


def test_inspect_of_no_file(tmp_path: Path, capsys: Any) -> None:
    assert "nowhere.hdf5" in fails(["inspect", str(tmp_path / "nowhere.hdf5")], capsys)

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.image import imread

from jaxrl_rollouts import cli
from jaxrl_rollouts.offline.data import episode_returns, load


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


BAD = {
    "suffix": (["--out", "a.csv"], "--out: found 'a.csv'"),
    "folder": (["--out", "none/a.hdf5"], "existing folder"),
    "steps": (["--out", "a.hdf5", "--steps", "0"], "--steps: found 0"),
    "seed": (["--out", "a.hdf5", "--seed", "-1"], "--seed: found -1"),
    "environment": (["--out", "a.hdf5", "--env", "pendulm"], "did you mean pendulum"),
    "policy": (["--out", "a.hdf5", "--env", "plane", "--policy", "mixed"], "--policy: found"),
    "choice": (["--out", "a.hdf5", "--policy", "best"], "best"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(tmp_path: Path, monkeypatch: Any, capsys: Any, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    options, message = BAD[case]
    assert message in fails(["collect", *options], capsys)
    assert list(tmp_path.iterdir()) == []


def test_inspect_of_no_file(tmp_path: Path, capsys: Any) -> None:
    assert "nowhere.hdf5" in fails(["inspect", str(tmp_path / "nowhere.hdf5")], capsys)

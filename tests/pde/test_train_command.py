"""What `pde train` makes of its options; training itself is in `test_fit`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts import plugins
from jaxrl_rollouts.cli import main as main_of_commands
from jaxrl_rollouts.cli.main import main
from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.config_json import from_json, to_json
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde import Fno, Mse, Refiner, Resnet, commands, train_command
from jaxrl_rollouts.pde.files.joined import part_of
from jaxrl_rollouts.pde.split import split_files, with_validation
from jaxrl_rollouts.pde.train_command import TrainConfig
from jaxrl_rollouts.record.files import write_json_atomically
from jaxrl_rollouts.record.folder import RunFolder

OWN = """
from dataclasses import dataclass
from jaxrl_rollouts.pde import Fno

@dataclass(frozen=True)
class Mine(Fno):
    width: int = 4
"""


def parsed(*options: str) -> TrainConfig:
    return parse_run(plugins.load_experiment("pde_train"), options)[1]


def test_options_are_those_of_the_chosen_network_and_objective() -> None:
    asked = ("--network", "fno", "--network.width", "4")
    config = parsed(*asked, "--objective", "refiner", "--objective.refinements", "2")
    assert config.network == Fno(width=4) and config.objective == Refiner(refinements=2)
    assert from_json(TrainConfig, to_json(config), "run.json") == config
    plain = parsed()
    assert plain.network == Resnet() and plain.objective == Mse()
    with pytest.raises(ConfigError, match="--network.blocks"):
        parsed(*asked, "--network.blocks", "2")
    with pytest.raises(ConfigError, match="did you mean fno"):
        parsed("--network", "fmo")


@pytest.mark.parametrize("inner", ["data", ""])
def test_a_folder_that_is_split_trains_validates_and_tests_on_its_parts(
    tmp_path: Path, inner: str
) -> None:
    for split, rows in (("train", 4), ("valid", 2), ("test", 3)):
        folder = tmp_path / inner / split
        folder.mkdir(parents=True)
        for D in (1.0, 2.0):
            u = np.random.default_rng(rows).normal(size=(rows, 5, 8))
            np.savez(folder / f"D_{D}.npz", u=u, dt=0.1, dx=0.5, D=D)
    config = TrainConfig(file=str(tmp_path))
    train, test = split_files(config)
    training, validation = with_validation(config, train)
    assert validation is not None and validation.path.parent == tmp_path / inner / "valid"
    assert (training.shape[0], validation.shape[0], test.shape[0]) == (8, 4, 6)
    assert test.path.parent == tmp_path / inner / "test"
    assert with_validation(replace(config, validation_share=0.0), train) == (train, None)
    assert split_files(replace(config, test=str(tmp_path / inner / "valid")))[1].shape[0] == 4
    shorter = replace(config, every=2)
    for part in (*split_files(shorter), with_validation(shorter, train)[1]):
        assert part is not None and part.shape[1] == 3 and part.dt[0] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("rows", "tested", "validated"),
    [
        ((6, 6, 6), [5, 11, 16, 17], [15]),  # 4 of 18, then 1 of 14
        ((1,) * 10, [4, 9], [8]),  # every fifth file
        ((10,), [8, 9], [7]),
    ],
)
def test_of_several_files_each_has_a_part_in_the_test(
    tmp_path: Path, rows: tuple[int, ...], tested: list[int], validated: list[int]
) -> None:
    """Else a set of one file for each parameter is tested on its last parameter alone."""
    number = 0.0
    for i, count in enumerate(rows):
        u = np.random.default_rng(i).normal(size=(count, 5, 8))
        u[:, 0, 0] = number + np.arange(count)
        number += count
        np.savez(tmp_path / f"nu_{i}.npz", u=u, nu=float(i))
    config = TrainConfig(file=str(tmp_path))
    whole, test = split_files(config)
    training, validation = with_validation(config, whole)
    assert validation is not None
    found = [part.array()[:, 0, 0, 0].astype(int).tolist() for part in (training, validation, test)]
    assert found[1:] == [validated, tested]
    assert sorted(sum(found, [])) == [*range(sum(rows))]
    np.testing.assert_array_equal(
        test.parameters["nu"], np.repeat(np.arange(len(rows)), rows)[tested]
    )


def test_files_named_by_their_split_are_split(tmp_path: Path) -> None:
    """As PDEArena's, in one folder, `NavierStokes2D_train_42.h5`."""
    for i, part in enumerate(("train_1", "train_2", "valid_1", "test_1")):
        u = np.random.default_rng(i).normal(size=(4, 5, 8))
        np.savez(tmp_path / f"flow_{part}.npz", u=u)
    config = TrainConfig(file=str(tmp_path))
    train, test = split_files(config)
    training, validation = with_validation(config, train)
    assert training.parts == (4, 4) and validation is not None
    assert [part.path.stem for part in (training, validation, test)] == [
        *("flow_train_1", "flow_valid_1", "flow_test_1")
    ]
    assert [file.stem for file in part_of(tmp_path, "train")] == ["flow_train_1", "flow_train_2"]
    np.savez(tmp_path / "more.npz", u=u)  # of no split: a folder of files
    assert part_of(tmp_path, "test") == [] and split_files(config)[0].parts == (4, 3, 3, 3, 3)


def test_many_files_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of several files are longer than a file's may be."""
    monkeypatch.chdir(tmp_path)
    names = [f"trajectory_{i:03}.npz" for i in range(40)]
    for name in names:
        np.savez(name, u=np.random.default_rng(0).normal(size=(1, 5, 8)))
    commands.main(["inspect", *names], "pde")
    first = "trajectory_000.npz and 39 more: array, 40 trajectories of 5 frames"
    assert capsys.readouterr().out.splitlines()[0] == first
    assert split_files(TrainConfig(file=",".join(names)))[1].parts == (1,) * 8


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("data/ks.h5", "ks"),
        ("a/one.h5,b/two.h5", "one"),
        ("data/nu_*.h5", "nu"),
        ("sets/**/*.h5", "sets"),
        ("*.h5", "fields"),
    ],
)
def test_a_run_is_named_by_its_files(file: str, name: str) -> None:
    assert train_command.EXPERIMENT.title(TrainConfig(file=file)).startswith(name)


def test_a_time_between_the_files_frames_is_longer_with_every(tmp_path: Path) -> None:
    np.save(tmp_path / "u.npy", np.random.default_rng(0).normal(size=(5, 9, 8)))
    train, test = split_files(TrainConfig(file=str(tmp_path / "u.npy"), dt=0.1, every=4))
    for part in (train, test):
        assert part.shape[1] == 3 and part.every == 4
        np.testing.assert_allclose(part.dt, 0.4)


def test_files_one_after_the_other_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(main_of_commands, "dispatch", asked.append)
    commands.main(["train", "a.h5", "b.h5", "--steps", "5"], "pde")
    commands.main(["train", "--file", "a.h5"], "pde")
    assert asked == [
        ["run", "pde_train", "--file", "a.h5,b.h5", "--steps", "5"],
        ["run", "pde_train", "--file", "a.h5"],
    ]
    assert commands.one_file(["roll", "RUN", "a", "b", "--rows", "2"], 2) == [
        *("roll", "RUN", "a,b", "--rows", "2")
    ]


def test_a_network_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    words = ["--network", "mine.py:Mine", "--network.modes", "3"]
    with pytest.raises(ConfigError, match="no code to import but what you name"):
        parsed(*words)
    plugins.trust(*plugins.typed(words))
    network = parsed(*words).network
    assert (type(network).__name__, network.width, network.modes) == ("Mine", 4, 3)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"updates": 20}, "updates: found 'an unknown setting'"),
        ({"objective": "mse", "mse": {"unroll": 1}}, "mse: found 'an unknown setting'"),
        ({"objective": {"refiner": {"steps": 3}}}, "objective.steps: found 'an unknown setting'"),
        ({"network": {"kind": "fno", "width": 3}}, r"network: found \['kind', 'width'\], expected"),
        ({"objective": {"one_step": {}}}, "objective: found 'one_step', expected one of mse"),
    ],
)
def test_a_run_of_an_earlier_version_ends_in_one_line(
    tmp_path: Path, changes: dict[str, Any], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, "pde_train", "smoke", TrainConfig(), "")
    record = json.loads((folder.path / "run.json").read_text())
    record["config"].update(changes)
    record.pop("digest")
    write_json_atomically(folder.path / "run.json", record, seal=True)
    with pytest.raises(SystemExit, match=str(ConfigError.exit_code)):
        main(["resume", str(folder.path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(found, line)
    assert line.endswith("settings were renamed since it was written: start a new run")

"""What a sweep consists of: the product, options handed on, a plan that grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.plugins import Experiment, load_experiment
from jaxrl_rollouts.sweep.command import SweepOptions, own_options, split
from jaxrl_rollouts.sweep.plan import (
    Plan,
    folder_name,
    joined,
    make_plan,
    read_plan,
    varied,
    write_plan,
)


@dataclass(frozen=True)
class Study:
    """How it is studied.

    Attributes:
        seeds, seed: how many, and which.
        rate: of learning.
    """

    seeds: int = 3
    seed: int = 0
    rate: float = 0.1

    def validate(self) -> None:
        if self.rate <= 0:
            raise ConfigError("rate", self.rate, "above 0")


@dataclass(frozen=True)
class Config:
    """A study of something.

    Attributes:
        study: how.
        dataset: which.
        method: of two.
        environment: where.
        strength: of the second method.
    """

    study: Study = field(default_factory=Study)
    dataset: str = "swing"
    method: str = "plain"
    environment: str = ""
    strength: float = 1.0


EXPERIMENT = Experiment(
    "swept", "Studies.", "", Config, {"cpu": Config(), "smoke": Config(Study(seeds=2))},
    lambda config, context: None, choices={"method": ("plain", "bold")},
)  # fmt: skip


def planned(swept: Mapping[str, Any], *given: str, command: str = "sweep") -> Plan:
    return make_plan(EXPERIMENT, swept, given, command, Path("/data"))[0]


def test_the_plan_is_the_product_and_each_task_a_command_of_one_seed() -> None:
    plan = planned({"dataset": ["a/x.h5", "swing"], "method": ["plain", "bold"], "seed": [0, 7]})
    assert len(plan.tasks) == 8 and len({task.name for task in plan.tasks}) == 8
    task = plan.tasks[3]
    assert task.point == {"dataset": "a/x.h5", "method": "bold", "seed": 7}
    assert (task.name, task.directory) == ("x.h5-bold-7", "/data")
    assert task.command == (
        "jaxrl-rollouts run swept --study.seeds 1 --method bold --dataset a/x.h5 --study.seed 7"
    )


def test_what_is_not_swept_is_handed_on_and_left_as_it_is() -> None:
    given = ["--preset", "smoke", "--study.seeds", "5", "--logger", "csv", "--study.rate", "0.5"]
    (task,) = planned({"seed": [3], "method": []}, *given).tasks
    assert task.arguments == (
        "swept", "--preset", "smoke", "--study.seeds", "5", "--study.rate", "0.5",
        "--logger", "csv", "--study.seed", "3",
    )  # fmt: skip
    assert task.point == {"seed": 3} and planned({}).tasks[0].name == "run"


def test_a_settings_file_is_taken_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("study: {rate: 0.25}\ndataset: other\n")
    (task,) = planned({"seed": [1]}, "--config", str(file)).tasks
    assert "--config" not in task.arguments and "other" in task.arguments
    assert task.arguments[task.arguments.index("--study.rate") + 1] == "0.25"


@pytest.mark.parametrize(
    ("swept", "given", "says"),
    [
        ({"method": ["plain", "bald"]}, (), "--method: found 'bald'.*did you mean bold"),
        ({"seed": [0, -1]}, (), "--seeds: found -1"),
        ({"seed": [0]}, ("--study.seed", "3"), "--study.seed: found '3', expected.*--seeds"),
        ({"seed": [0]}, ("--study.rate", "0"), "--study.rate: found 0.0, expected above 0"),
        ({"seed": [0]}, ("--studdy", "0"), "option: found '--studdy'"),
        ({"dataset": ["a/x", "b/x"]}, (), "both x"),
    ],
)
def test_errors_come_before_anything_is_run(swept: Any, given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        planned(swept, *given)


def test_an_experiment_without_the_setting_cannot_be_swept_over_it() -> None:
    bare = Experiment("bare", "", "", Study, {"cpu": Study()}, lambda config, context: None)
    with pytest.raises(ConfigError, match="--datasets: found 'a b', expected an experiment with"):
        make_plan(bare, {"dataset": ["a", "b"]}, [], "", Path())


def test_code_that_settings_name_is_known_from_what_was_typed() -> None:
    swept = {"seed": [0], "dataset": ["swing", "their.data:make"]}
    given = ["--environment", "my.envs:make"]
    _, code = make_plan(EXPERIMENT, swept, given, "", Path())
    assert code == ["my.envs:make", "their.data:make"]


def test_a_plan_is_read_as_it_was_written_and_may_grow(tmp_path: Path) -> None:
    first = planned({"seed": [0, 1], "method": ["bold"]}, "--strength", "2", command="one")
    write_plan(tmp_path, first)
    assert read_plan(tmp_path) == first == joined(tmp_path, first)
    more = joined(tmp_path, planned({"seed": [1, 2], "method": ["plain"]}, command="two"))
    assert [task.name for task in more.tasks] == ["bold-0", "bold-1", "plain-1", "plain-2"]
    assert more.commands == ("one", "two")
    other = planned({"seed": [0], "method": ["bold"]}, "--strength", "3")
    assert joined(tmp_path, other).tasks == (*other.tasks, first.tasks[1])  # not begun yet
    (tmp_path / "bold-0").mkdir()
    with pytest.raises(ConfigError, match="bold-0 is: jaxrl-rollouts run swept .*--strength 2"):
        joined(tmp_path, other)


def test_a_damaged_plan_and_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found no such file"):
        read_plan(tmp_path)
    write_plan(tmp_path, planned({"seed": [0]}))
    data = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(data | {"experiment": "other"}))
    with pytest.raises(CheckpointError, match="digest"):
        read_plan(tmp_path)
    del data["digest"]
    (task,) = data["tasks"]
    elsewhere = {**task, "arguments": [*task["arguments"], "--publish=/elsewhere"]}
    for wrong in ({"tasks": 3}, {"tasks": [{**task, "name": "../up"}]}, {"tasks": [elsewhere]}):
        (tmp_path / "plan.json").write_text(json.dumps(data | wrong))
        with pytest.raises(CheckpointError, match="expected a pl|no such option"):
            read_plan(tmp_path)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (["data/hopper-mixed", "iql", 0], "hopper-mixed-iql-0"),
        (["../..", 1], "1"),
        (["/tmp/a b?.h5"], "a-b-.h5"),
        ([], "run"),
    ],
)
def test_names_of_folders_are_plain(values: list[Any], name: str) -> None:
    assert folder_name(values) == name == folder_name([name])


def test_options_of_the_sweep_are_told_from_those_of_its_runs() -> None:
    words = ["--seeds", "0", "1", "--study.rate", "0.1", "--no_progress", "--out=here", "-h"]
    ours, theirs = split(words, own_options())
    assert ours == ["--seeds", "0", "1", "--no_progress", "--out=here", "-h"]
    assert theirs == ["--study.rate", "0.1"]
    assert SweepOptions().retries == 3


def test_settings_are_varied_beside_what_is_swept() -> None:
    swept = {"method": ["plain", "bold"], "seed": [0, 1]}
    vary = varied(["study.rate=0.1,0.5", "strength=2"])
    plan, _ = make_plan(EXPERIMENT, swept, (), "sweep", Path("/data"), vary)
    assert len(plan.tasks) == 8 and len({task.name for task in plan.tasks}) == 8
    task = plan.tasks[1]
    assert task.point == {"method": "plain", "seed": 0, "study.rate": "0.5", "strength": "2"}
    assert task.name == "plain-rate-0.5-strength-2-0"
    words = task.arguments[1:]
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        **{"--study.rate": "0.5", "--strength": "2", "--method": "plain"},
        **{"--study.seeds": "1", "--study.seed": "0"},
    }


def test_a_method_without_the_setting_that_is_varied_runs_once() -> None:
    swept = {"method": ["iql", "td3_bc"]}
    vary = varied(["expectile=0.7,0.9"])
    plan, _ = make_plan(load_experiment("offline"), swept, (), "sweep", Path("/data"), vary)
    assert [dict(task.point) for task in plan.tasks] == [
        {"method": "iql", "expectile": "0.7"},
        {"method": "iql", "expectile": "0.9"},
        {"method": "td3_bc"},
    ]
    with pytest.raises(ConfigError, match="expectil'.*a setting of one of the methods"):
        make_plan(load_experiment("offline"), swept, (), "", Path("/data"), {"expectil": ["1"]})
    with pytest.raises(ConfigError, match="expectile"):
        make_plan(load_experiment("offline"), swept, (), "", Path("/data"), {"expectile": ["2"]})


@pytest.mark.parametrize("text", ["expectile", "expectile=", "=1", "expectile=,"])
def test_what_is_varied_has_a_name_and_values(text: str) -> None:
    with pytest.raises(ConfigError, match="expectile=0.7,0.9"):
        varied([text])

"""What is listed without importing is what the experiments are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.cli.options import RunOptions
from jaxrl_rollouts.cli.shown import descriptions, hides, options, shown
from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.experiments.catalogue import GYMNAX, MUJOCO, PDE
from jaxrl_rollouts.experiments.kit import needs
from jaxrl_rollouts.offline.behaviours.made import MADE
from jaxrl_rollouts.offline.data import CATALOGUE, MADE_DATASETS
from jaxrl_rollouts.offline.study import METHODS
from jaxrl_rollouts.pde.objectives import OBJECTIVES
from jaxrl_rollouts.pde.operators import NETWORKS
from jaxrl_rollouts.plugins import Experiment, listings, load_experiment

ROOT = Path(__file__).resolve().parents[3]
ENTRIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
LISTINGS = listings()
NAMES = sorted(ENTRIES["jaxrl_rollouts.experiments"])


@pytest.fixture(scope="module")
def experiments() -> dict[str, Experiment]:
    return {name: load_experiment(name) for name in NAMES}


def test_every_experiment_is_listed_with_its_presets(experiments: dict[str, Experiment]) -> None:
    assert sorted(LISTINGS) == NAMES
    for name, experiment in experiments.items():
        assert list(LISTINGS[name].minutes) == list(experiment.presets), name
        assert set(LISTINGS[name].needs) <= set(experiment.presets), name
    assert [name for name in LISTINGS if LISTINGS[name].main] == ["offline"]


def test_minutes_are_those_of_the_reports() -> None:
    reports = sorted((ROOT / "experiments" / "results").glob("*/report.json"))
    reports = [path for path in reports if path.parent.name in LISTINGS]  # not the battery's
    assert len(reports) >= 20
    for path in reports:
        report = json.loads(path.read_text())
        listed = LISTINGS[report["experiment"]].minutes[report["preset"]]
        measured = report["wall_seconds"] / 60
        assert listed == pytest.approx(measured, rel=0.1, abs=0.6), path.parent.name


def test_choices_of_the_main_job_are_its_methods() -> None:
    assert LISTINGS["offline"].choices["method"] == METHODS
    train = LISTINGS["pde_train"].choices
    assert train == {"objective": ("refiner", *OBJECTIVES), "network": tuple(NETWORKS)}


def words_of(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for item in value for word in words_of(item)]
    return [value] if isinstance(value, str) else []


def test_needs_are_those_of_the_presets(experiments: dict[str, Experiment]) -> None:
    known = {*CATALOGUE, *MADE_DATASETS}
    for name, experiment in experiments.items():
        for preset, config in experiment.presets.items():
            listed = set(LISTINGS[name].needs.get(preset, ()))
            words = {word for value in settings(config).values() for word in words_of(value)}
            datasets = words & known
            assert listed & known == datasets, (name, preset)
            if name.startswith("ks_"):
                assert PDE in listed
            if datasets and name != "compounding_error":
                assert MUJOCO in listed, "policies are played there"
            if "gymnax/Pendulum-v1" in words and name != "speed":
                assert GYMNAX in listed


def test_everybody_can_have_the_data_of_every_preset() -> None:
    """What is made on the spot needs nothing; all else is made beforehand or D4RL's."""
    extras = {MUJOCO, GYMNAX, PDE}
    for listing in LISTINGS.values():
        for preset, listed in listing.needs.items():
            assert {*listed} - extras <= {*CATALOGUE, *MADE_DATASETS}, (listing.name, preset)
            assert preset != "paper" or not {*listed} & {*MADE_DATASETS}, listing.name


def variants(experiment: Experiment) -> list[Any]:
    """All presets, with everything that can be chosen."""
    configs = list(experiment.presets.values())
    for name, choices in experiment.choices.items():
        configs = [replace(config, **{name: value}) for config in configs for value in choices]
    return configs


def undescribed(config: Any, hidden: set[str], path: str = "") -> list[str]:
    texts, missing = descriptions(type(config)), []
    for name in type(config).__dataclass_fields__:
        dotted, value = f"{path}.{name}".lstrip("."), getattr(config, name)
        if hides(hidden, dotted):
            continue
        if hasattr(value, "__dataclass_fields__"):
            missing += undescribed(value, hidden, dotted)
        elif not texts.get(name):
            missing.append(dotted)
    return missing


def test_every_option_is_described(experiments: dict[str, Experiment]) -> None:
    assert not undescribed(RunOptions(), set())
    missing = {
        f"{name} --{option}"
        for name, experiment in experiments.items()
        for config in variants(experiment)
        for option in undescribed(config, experiment.hidden(config))
    }
    assert not missing


def test_a_method_is_shown_its_own_options_only(experiments: dict[str, Experiment]) -> None:
    offline, preset = experiments["offline"], experiments["offline"].preset("cpu")

    def of(method: str) -> set[str]:
        config = replace(preset, method=method)
        hidden = offline.hidden(config)
        for name in hidden:
            attrgetter(name)(config)  # there is such a setting
        return set(options(shown(config, hidden)))

    assert not [o for o in of("td3_bc") if re.match("--(neubay|study.(ensemble|agent|epochs))", o)]
    assert {"--model-free.agents.td3-bc.alpha", "--model-free.updates"} <= of("td3_bc")
    assert "--model-free.agents.iql.expectile" not in of("td3_bc")
    assert {"--study.methods.mopo.penalty", "--study.ensemble.members"} <= of("mopo")
    assert not [option for option in of("mopo") if re.search("mobile|model-free|neubay", option)]
    assert {"--neubay.agent.tape", "--study.termination"} <= of("neubay")
    assert not [o for o in of("neubay") if re.match("--(model-free|study.(ensemble|agent))", o)]
    common = {"--dataset", "--method", "--study.seeds", "--study.evaluations", "--study.episodes"}
    assert all(common <= of(method) for method in METHODS)


@pytest.mark.parametrize(
    ("name", "preset"),
    [("pgd_agents", "gpu"), ("ravl_mujoco", "smoke"), ("compounding_error", "cpu")],
)
def test_a_missing_dataset_stops_a_run_before_it_starts(
    name: str,
    preset: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path / "none"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", name, "--preset", preset, "--out", str(tmp_path / "runs")])
    assert stop.value.code == 2
    assert re.search("file: found nothing.* data make ", capsys.readouterr().err)
    assert not (tmp_path / "runs").exists()


def test_a_missing_extra_stops_a_run_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in (name for name in NAMES if name.startswith("ks_")):
        experiment = load_experiment(name)
        with pytest.raises(MissingExtraError, match="pip install .*pde"):
            experiment.facts(experiment.preset("smoke"))


def test_made_datasets_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "load_dataset", lambda name: pytest.fail(f"{name} was read"))
    assert needs.check_datasets(MADE) == []
    offline = load_experiment("offline")
    assert offline.facts(offline.preset("cpu")) == []
    (rings,) = offline.facts(replace(offline.preset("cpu"), method="neubay"))
    assert re.search("Token rings: .* MB", rings), "memory is known before"


STARTED = """
from jax._src.xla_bridge import _backends
from jaxrl_rollouts import plugins
for name in plugins.names(plugins.EXPERIMENTS):
    plugins.load_experiment(name)
    assert not _backends, name
print("none")
"""


def test_importing_an_experiment_computes_nothing_with_jax() -> None:
    """Else `list` would take a GPU's memory, and cores could no longer be made devices."""
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True)
    assert done.stdout == "none\n", done.stderr

"""Settings on the command line: help, files, and the command that remakes a run."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.cli.files import nested, read_settings
from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.cli.shown import descriptions
from jaxrl_rollouts.config_json import from_json
from jaxrl_rollouts.configs import renamed, settings
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.plugins import load_experiment


@dataclass(frozen=True)
class Inner:
    """Of the inside.

    Attributes:
        low, high: a range
            of numbers.
        sizes: Widths of
            layers.
    """

    low: float = 0.0
    high: float = 1.0
    sizes: tuple[int, ...] = (5, 6)


@dataclass(frozen=True)
class More(Inner):
    """With more.

    Attributes:
        high: higher.
    """

    name: str = ""


@dataclass(frozen=True)
class Outer:
    inner: More = field(default_factory=More)
    other: Inner | None = None
    on: bool = False


def test_descriptions_come_from_docstrings_and_bases() -> None:
    assert descriptions(More) == {
        "low": "a range of numbers.",
        "high": "higher.",
        "sizes": "Widths of layers.",
    }


def help_of(capsys: Any, line: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "toy", *line.split(), "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_help_shows_options_and_what_lists_look_like(plugin: Path, capsys: Any) -> None:
    plain = help_of(capsys, "--kind=plain")
    assert "--fancy.bells" in plain and "--agent.rate" in plain
    assert "spaces between: 8 8" in " ".join(plain.replace("│", "").split())


def parse(line: str) -> tuple[Any, str]:
    _, config, command = parse_run(load_experiment("toy"), shlex.split(line))
    return config, command


def test_a_file_goes_over_the_preset_and_options_over_the_file(plugin: Path) -> None:
    Path("a.yaml").write_text(
        "agent:\n  rate: 1e-4  # a number, also in YAML\nagent.sizes: [4, 5]\nsteps: 9\nloud: on\n"
        "agent.num-critics: 7\n"
    )
    config, command = parse("--preset slow --config a.yaml --steps 5")
    changed = {"agent.rate": 1e-4, "agent.sizes": (4, 5), "agent.num_critics": 7}
    changed |= {"steps": 5, "loud": True}
    slow = load_experiment("toy").preset("slow")
    assert settings(config) == {**settings(slow), **changed}
    # The command needs no file.
    prefix = "jaxrl-rollouts run toy "
    assert command.startswith(prefix) and "a.yaml" not in command
    assert parse(command.removeprefix(prefix))[0] == config


def test_a_runs_own_file_remakes_it_with_changes_on_top(plugin: Path) -> None:
    cli.main(["run", "toy", "--preset", "smoke", "--agent.memory", "gru", "--kind", "fancy"])
    (folder,) = Path("runs").iterdir()
    for source in (folder, folder / "run.json"):
        config, command = parse(f"--config {source} --fancy.bells 5")
        assert (config.steps, config.agent.memory) == (1, "gru")
        assert (config.kind, config.fancy.bells) == ("fancy", 5)
        assert "--preset smoke" in command
    # What the other kind would read is in the file, and no obstacle.
    assert parse(f"--config {folder} --kind plain")[0].kind == "plain"


BAD = {
    "sibling": ("agent: {rat: 1}", "a.yaml: agent.rat: .*did you mean agent.rate?"),
    "dotted": ("agent.rat: 1", "a.yaml: agent.rat: .*did you mean agent.rate?"),
    "without its group": ("num_critics: 3", "a.yaml: num_critics: .*mean agent.num_critics?"),
    "type": ("agent: {rate: fast}", "a.yaml: agent.rate: found 'fast', expected float"),
    "literal": ("agent.memory: gur", "a.yaml: agent.memory: found 'gur'.*did you mean gru?"),
    "twice": ("agent: {rate: 1}\nagent.rate: 2", "a.yaml: agent.rate: .*one for each setting"),
    "range": ("agent.rate: -1", "--agent.rate: found -1.0"),
    "no YAML": ("{", "a.yaml: found .*expected valid YAML"),
    "a list": ("[1]", r"a.yaml: found \[1\], expected an object with the settings of Config"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line_that_names_file_and_setting(
    plugin: Path, capsys: Any, case: str
) -> None:
    import re

    text, message = BAD[case]
    Path("a.yaml").write_text(text)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "toy", "--config", "a.yaml"])
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2 and re.search(message, line), line
    assert not Path("runs").exists()


def test_files_that_cannot_be_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config: found .*No such file.*or a run folder"):
        read_settings(tmp_path / "none.yaml", "toy")
    other = tmp_path / "run.json"
    other.write_text(json.dumps({"experiment": "other", "preset": "cpu", "config": {}}))
    with pytest.raises(ConfigError, match="run.json: experiment: found 'other', expected toy"):
        read_settings(tmp_path, "toy")
    other.write_text("{")
    with pytest.raises(ConfigError, match="expected valid JSON"):
        read_settings(other, "toy")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert read_settings(tmp_path / "empty.yaml", "toy") == (None, {})


def test_dotted_keys_join_their_group() -> None:
    data = {"a-b": 1, "c.d": 2, "c": {"e.f": 3}, "c.g": {"h": 4}}
    assert nested(data, "x") == {"a_b": 1, "c": {"d": 2, "e": {"f": 3}, "g": {"h": 4}}}
    for twice in ({"a.b": 1, "a": {"b": 1}}, {"a": {"b.c": 1}, "a.b": {"c": 2}}):
        with pytest.raises(ConfigError, match="a second value"):
            nested(twice, "x")


def test_an_empty_preset_is_none_of_them(plugin: Path) -> None:
    with pytest.raises(ConfigError, match="preset: found '', expected one of"):
        parse("--preset=")


def test_an_option_is_taken_under_the_name_it_had(capsys: pytest.CaptureFixture[str]) -> None:
    _, config, command = parse_run(load_experiment("offline"), ["--method", "bc", "--updates=30"])
    assert config.method.steps == 30 and "--steps=30" in command
    assert capsys.readouterr().err == "note: --updates is now called --steps\n"
    words = ["--method", "mopo", "--agent.hidden", "8", "8"]
    made = parse_run(load_experiment("offline"), words)[1].method
    assert made.agent.hidden_dims == (8, 8)
    assert capsys.readouterr().err == "note: --agent.hidden is now called --agent.hidden-dims\n"


def test_a_file_may_have_a_setting_under_the_name_it_had() -> None:
    settings = {"hidden": [8], "noise": 0.5, "delay": 3, "normalise": False, "alpha": 1.0}
    made = from_json(Td3BcConfig, settings)
    assert made == Td3BcConfig(
        hidden_dims=(8,), policy_noise=0.5, policy_freq=3, normalize_obs=False, alpha=1.0
    )
    with pytest.raises(ConfigError, match="hidden: .*did you mean hidden_dims"):
        from_json(Td3BcConfig, {"hidden": [8], "hidden_dims": [8]})


def test_a_keyword_is_taken_under_the_name_it_had() -> None:
    @renamed(updates="steps")
    def fit(rows: int, *, steps: int = 1) -> tuple[int, int]:
        return rows, steps

    with pytest.warns(FutureWarning, match="fit: updates is now called steps"):
        assert fit(2, updates=3) == (2, 3)
    assert fit(2, steps=3) == (2, 3)

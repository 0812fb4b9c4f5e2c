"""Settings from outside mean one thing, and take no more than their size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl_rollouts.cli.files import MOST, nested, read_settings
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.record.files import read_json
from jaxrl_rollouts.strict import DEPTH, load_json, load_toml


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[study]\nseed = 1\n[study]\nsteps = 2\n", "Cannot declare.*twice"),
        ("a = {b = 1, b = 2}", "Duplicate"),
        ("a = 1\n'a' = 2", "Cannot overwrite"),
        ("agent.rate = 1\nagent = {rate = 2}", "Cannot overwrite"),
        ("a = " + "[" * 51 + "]" * 51, "nested more than 50"),
        ("a = " + "[" * 100_000 + "]" * 100_000, "nested more than 50"),
        (".".join("a" * 60) + " = 1", "nested more than 50"),
        ("a = \x00", "Invalid value"),
        ("a = " + "9" * 5000, "digits"),
        ("a: 1", "Expected '='"),
    ],
)
def test_toml_that_is_ambiguous_or_nested_without_end_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_toml(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('[{"b": {"c": 1, "c": 1}}]', "'c' is given twice"),
        ("[" * 51 + "]" * 51, "nested more than 50"),
        ("[" * 100_000 + "]" * 100_000, "nested more than 50"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 50"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number"),
        ("9" * 5000, "digits"),
        ("{'a': 1}", "property name"),
        ("", "Expecting value"),
    ],
)
def test_json_is_held_to_the_same(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        load_json(text)
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="found no valid JSON"):
        read_json(path, "a run")
    with pytest.raises(ConfigError, match="expected valid JSON"):
        read_settings(path, "toy")


def test_what_is_plain_is_read_as_it_is() -> None:
    data = {"a": [1, 2.5, True, {"b": []}], "c": {"a": "x"}}
    assert (
        load_json(json.dumps(data)) == data == load_toml('a = [1, 2.5, true, {b = []}]\nc.a = "x"')
    )
    deep = json.loads("[" * DEPTH + "]" * DEPTH)
    assert load_json(json.dumps(deep)) == deep


def test_a_file_of_settings_is_small_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"# " + b"x" * MOST)
    with pytest.raises(ConfigError, match=r"--config: .*more than 4,000,000 bytes"):
        read_settings(path, "toy")
    path.write_bytes(b"a = \xff")
    with pytest.raises(ConfigError, match="no text"):
        read_settings(path, "toy")
    with pytest.raises(ConfigError, match="5000 dots"):
        nested({"a" + ".a" * 5000: 1}, "a.toml")
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"experiment": "toy", "preset": ["x"], "config": {}}))
    assert read_settings(path, "toy") == (None, {})

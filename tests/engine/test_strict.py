"""Settings from outside mean one thing, and take no more than their size."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli.files import MOST, nested, read_settings
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError
from jaxrl_rollouts.record.files import read_json
from jaxrl_rollouts.strict import DEPTH, load_json, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("-07", -7),
        ("0o17", 15),
        ("0xff", 255),
        ("1e-4", 1e-4),
        ("1.5E3", 1500.0),
        (".5", 0.5),
        ("+3.", 3.0),
        ("-.inf", -math.inf),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("yes", True),
        ("off", False),
        ("'on'", "on"),
        ("2026-11-29", "2026-11-29"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'010'", "010"),
        ("1e", "1e"),
        ("0o9", "0o9"),
        ("=", "="),
    ],
)
def test_scalars_of_yaml_are_those_of_version_1_2(text: str, value: Any) -> None:
    found = load_yaml(f"a: {text}\n")["a"]
    assert found == value and type(found) is type(value)
    assert math.isnan(load_yaml(".nan"))


@pytest.mark.parametrize("text", ["1: a\n0x1: b", "~: 1\nnull: 2", "{yes: 1, on: 2}"])
def test_a_key_may_not_be_given_twice_in_two_ways(text: str) -> None:
    with pytest.raises(ValueError, match="twice, written in two ways"):
        load_yaml(text)


def bomb() -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("study: {seed: 1}\nstudy: {steps: 2}\n", "'study' is given twice.*line 2"),
        ("a: {b: 1, b: 2}", "'b' is given twice"),
        ("a: 1\n'a': 2", "'a' is given twice"),
        (bomb(), r"the alias \*a0"),
        ("a: &a [*a]", r"the alias \*a"),
        ("a: {<<: &x {b: 1}, c: *x}", "the alias"),
        ("[" * 51 + "]" * 51, "nested more than 50"),
        ("[" * 100_000, "nested more than 50"),
        ("\n".join(" " * i + "a:" for i in range(60)), "nested more than 50"),
        ("a: !!python/object/apply:os.system [x]", "the tag .*python"),
        ("a: !!bool x", "the tag"),
        ("a: !!timestamp x", "the tag"),
        ("{[1]: 2}", "unhashable"),
        ("a: b: c", "mapping values"),
        ("a: \x00", "special characters"),
        ("9" * 5000, "digits"),
    ],
)
def test_what_yaml_says_ambiguously_or_without_end_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


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
    data = {"a": [1, 2.5, None, True, {"b": []}], "c": {"a": "x"}}
    assert load_json(json.dumps(data)) == data == load_yaml(json.dumps(data))
    deep = json.loads("[" * DEPTH + "]" * DEPTH)
    assert load_json(json.dumps(deep)) == deep == load_yaml(json.dumps(deep))


def test_a_file_of_settings_is_small_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"# " + b"x" * MOST["YAML"])
    with pytest.raises(ConfigError, match=r"--config: .*more than 100,000 bytes"):
        read_settings(path, "toy")
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="no text"):
        read_settings(path, "toy")
    with pytest.raises(ConfigError, match="5000 dots"):
        nested({"a" + ".a" * 5000: 1}, "a.yaml")
    path = tmp_path / "run.json"
    os.mkfifo(path)
    with pytest.raises(DataError, match="run.json: file: found a pipe"):
        read_settings(tmp_path, "toy")
    path.unlink()
    path.write_text(json.dumps({"experiment": "toy", "preset": ["x"], "config": {}}))
    assert read_settings(path, "toy") == (None, {})

"""Text files and JSON of a run, and digests by which damage is known."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.record.files import (
    drop_torn_line,
    file_digests,
    file_sha256,
    is_sealed,
    json_text,
    plain,
    read_json,
    seal_file,
    sealed,
    unsealed,
    write_json_atomically,
)


def test_plain_keeps_infinities_and_drops_nan() -> None:
    data = {"a": np.array([1.0, np.nan, np.inf]), 2: (np.float32(0.5), -math.inf), "p": Path("x")}
    assert plain(data) == {"a": [1.0, None, "Infinity"], "2": [0.5, "-Infinity"], "p": "x"}


def test_json_has_its_leaves_on_one_line() -> None:
    numbers, texts = list(np.linspace(0, 1, 40)), ["x" * 30] * 4
    data = {"values": plain(numbers), "rows": [{"a": 1, "b": [2.5, None]}, []], "notes": texts}
    text = json_text(data | {"long": {"numbers": numbers, "name": "y"}})
    assert json.loads(text) == data | {"long": {"numbers": numbers, "name": "y"}}
    assert text.splitlines() == [
        "{",
        f' "values": {json.dumps(numbers)},',
        ' "rows": [{"a": 1, "b": [2.5, null]}, []],',
        ' "notes": [',
        *[f'  "{"x" * 30}",'] * 3,
        f'  "{"x" * 30}"',
        " ],",
        ' "long": {',
        f'  "numbers": {json.dumps(numbers)},',
        '  "name": "y"',
        " }",
        "}",
    ]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_text_is_read_as_what_was_written(data: Any) -> None:
    assert json.loads(json_text(data)) == data


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "a.json"
    write_json_atomically(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json_atomically(path, {"new": object()})

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_json_atomically(path, {"new": 1})
    assert json.loads(path.read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_an_append_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for written, kept in ((b"{}\n{}\n", b"{}\n{}\n"), (b'{}\n{"a', b"{}\n"), (b'{"a', b"")):
        path.write_bytes(written)
        drop_torn_line(path)
        assert path.read_bytes() == kept
    drop_torn_line(tmp_path / "none")  # there is nothing to cut


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(
        CheckpointError, match=r"a\.json: found no such file, expected one in a run"
    ):
        read_json(path, "a run")
    path.write_text("{'single': 1}")
    with pytest.raises(CheckpointError, match=r"a\.json: found no valid JSON"):
        read_json(path, "a run")
    write_json_atomically(path, {"a": 1.5}, seal=True)
    assert read_json(path, "a run") == {"a": 1.5}


FACTS = {"seeds": 3, "rate": 1e-3, "low": [-1.0, 0.1, np.nan], "of": {"b": None, "a": "ü"}}


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    write_json_atomically(path, FACTS, seal=True)
    assert read_json(path, "a test") == FACTS | {"low": [-1.0, 0.1, None]}
    stored = json.loads(path.read_text())
    assert list(stored) == [*FACTS, "digest"] and len(stored["digest"]) == 64
    # Written by an earlier version, or by hand.
    path.write_text(json.dumps({"seeds": 4}))
    assert read_json(path, "a test") == {"seeds": 4}
    path.write_text("[1]")
    assert read_json(path, "a test") == [1]


@given(st.data())
def test_a_flipped_bit_changes_nothing_unnoticed(data: st.DataObject) -> None:
    text = bytearray(json.dumps(sealed({"seeds": 3, "rate": 0.001, "low": [-1.0]})).encode())
    text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = unsealed(Path("facts.json"), json.loads(text))
    except (ValueError, CheckpointError) as error:
        assert isinstance(error, ValueError) or "facts.json: digest: found" in str(error)
    else:  # the name of the digest was hit, and what counts was not
        assert {k: v for k, v in found.items() if k in ("seeds", "rate", "low")} == {
            "seeds": 3,
            "rate": 0.001,
            "low": [-1.0],
        }


def test_files_with_their_digest_beside(tmp_path: Path) -> None:
    path = tmp_path / "data.h5"
    assert not is_sealed(path)
    path.write_bytes(b"fields")
    assert not is_sealed(path)
    seal_file(path)
    assert is_sealed(path)
    checked = subprocess.run(["sha256sum", "-c", "data.h5.sha256"], cwd=tmp_path, check=False)
    assert checked.returncode == 0
    path.write_bytes(b"fieldz")
    assert not is_sealed(path)


def test_digests_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("1")
    assert file_digests(tmp_path) == {"a/b": file_sha256(tmp_path / "a" / "b")}

"""A file that is not the one that was written is known by its digest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.record.files import read_json, write_json_atomically
from jaxrl_rollouts.record.sealed import (
    file_digests,
    file_sha256,
    is_sealed,
    seal_file,
    sealed,
    unsealed,
)

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

"""The public face has types: pyright sees every mistake of a program, and none in right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyright")
HERE = Path(__file__).parent / "typing"


@pytest.fixture(scope="module")
def found() -> dict[str, set[int]]:
    """Lines with an error, counted from 1, by file."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    files = [str(HERE / name) for name in ("mistakes.py", "right.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    report = json.loads(done.stdout)
    lines: dict[str, set[int]] = {"mistakes.py": set(), "right.py": set()}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            lines[Path(one["file"]).name].add(one["range"]["start"]["line"] + 1)
    assert report["summary"]["filesAnalyzed"] == 2
    return lines


def test_every_mistake_is_seen(found: dict[str, set[int]]) -> None:
    lines = (HERE / "mistakes.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "  # " in line}
    assert len(wrong) == 13
    assert found["mistakes.py"] == wrong


def test_right_programs_have_none(found: dict[str, set[int]]) -> None:
    assert found["right.py"] == set()

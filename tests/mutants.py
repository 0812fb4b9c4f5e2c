"""Seeded faults in core functions, and whether the tests notice: `python -m tests.mutants`.

    python -m tests.mutants                  # every fault of faults.toml, one after the other
    python -m tests.mutants etdrk replay     # faults whose name has one of these words
    python -m tests.mutants --clean          # the named test files on the code as it is

A fault is applied in a temporary copy of the working tree, where only the test files named beside
it run. It is caught where a test fails. Exit code 1: a fault was not caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PARTS = ("jaxrl_rollouts", "offline", "pde", "experiments", "tests", "pyproject.toml")


class Fault(NamedTuple):
    """`file` with `text`, which it has once, replaced by `other`; `tests` have to fail."""

    name: str
    file: str
    text: str
    other: str
    tests: str


FAULTS = tuple(
    Fault(**fault)
    for fault in tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]
)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of what the tests need."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for part in PARTS:
            source, target = ROOT / part, Path(folder) / part
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, target)
        yield Path(folder)


def run(folder: Path, tests: str) -> tuple[int, str]:
    """pytest's exit code, and the first failure or the line that counts."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HYPOTHESIS_PROFILE"] = "first"
    # No tracebacks: pytest parses sources for them, which garbage of a failed read can break.
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    words = [sys.executable, "-m", "pytest", *options, *tests.split()]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    lines = re.findall(r"^(?:FAILED|ERROR) .*|^.*\d+ passed.*$", done.stdout, re.M)
    return done.returncode, (lines or done.stdout.splitlines()[-1:] or [done.stderr[-200:]])[0]


def main(words: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    missed = 0
    with copied() as folder:
        if "--clean" in words:
            code, line = run(folder, " ".join(sorted({t for f in FAULTS for t in f.tests.split()})))
            print(line, flush=True)
            return code
        for fault in chosen:
            path, begin = folder / fault.file, time.monotonic()
            before = path.read_text()
            assert before.count(fault.text) == 1, f"{fault.name}: {before.count(fault.text)} places"
            path.write_text(before.replace(fault.text, fault.other))
            code, line = run(folder, fault.tests)
            path.write_text(before)
            missed += code != 1
            verdict = {0: "MISSED", 1: "caught"}.get(code, f"CODE {code}")
            print(f"{verdict:8} {fault.name} ({time.monotonic() - begin:.0f} s) {line[:150]}")
            sys.stdout.flush()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

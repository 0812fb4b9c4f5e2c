"""One process at a time writes into a run's folder; one that died holds nothing."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.record import lock
from jaxrl_rollouts.record.lock import NAME, FolderLock

HOLD = """
import sys, time
from pathlib import Path
from jaxrl_rollouts.record.lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with (
            pytest.raises(CheckpointError, match=f"in use by process {process.pid} on "),
            FolderLock(tmp_path),
        ):
            pass
        process.kill()
        process.wait()
        with FolderLock(tmp_path):  # what died holds nothing
            assert (tmp_path / NAME).read_text().startswith(f"process {os.getpid()} on ")
    with FolderLock(tmp_path):
        pass


@pytest.mark.parametrize("system", ["none", "refuses"])
def test_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    class Refusing:
        LOCK_EX = LOCK_NB = 0

        def flock(self, *_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "fcntl", None if system == "none" else Refusing())
    file, here = tmp_path / NAME, platform.node()
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for who in (f"process {running.pid} on {here}", f"process {running.pid} on elsewhere"):
        file.write_text(f"{who}\n")
        with pytest.raises(CheckpointError, match=f"{who}.*remove {file}"), FolderLock(tmp_path):
            pass
    running.communicate()
    for gone in (f"process {running.pid} on {here}", "", "nonsense"):
        file.write_text(gone)
        with FolderLock(tmp_path):
            assert file.read_text() == f"process {os.getpid()} on {here}\n"
        assert file.read_text() == ""

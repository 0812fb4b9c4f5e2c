"""Signals that ask to stop, and one process at a time in a folder."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental import io_callback

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.record import lock
from jaxrl_rollouts.record.interrupts import StopFlag, is_interrupt
from jaxrl_rollouts.record.lock import NAME, FolderLock


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_second_insists(number: signal.Signals, capsys: Any) -> None:
    before = signal.getsignal(number)
    with StopFlag() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert "stopping after this chunk" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            signal.pause()
    assert signal.getsignal(number) is before


def test_an_interrupt_in_a_destructor_is_raised_outside_of_it(capsys: Any) -> None:
    """Python prints what is raised there, and goes on."""

    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    hook, begin = sys.unraisablehook, time.monotonic()
    with StopFlag() as stop:
        stop.request()
        made = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            del made
            time.sleep(20)
        assert time.monotonic() - begin < 10
    assert sys.unraisablehook is hook and "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("hangup_is_heard")
def test_a_closed_terminal_asks_and_never_insists() -> None:
    with StopFlag() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGHUP)  # a shell and the kernel each send one
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # under nohup
    with StopFlag() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.requested


def test_stop_flag_outside_the_main_thread() -> None:
    seen = []

    def work() -> None:
        with StopFlag() as stop:
            stop.request()
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_an_interrupt_inside_a_simulator_is_one() -> None:
    """jax makes another exception of it; the second Ctrl-C promised to end at once."""
    flag = StopFlag()

    def step(x: Any) -> Any:
        for _ in range(2):
            flag._handle(signal.SIGINT, None)
        return x

    def simulate() -> None:
        out = jax.ShapeDtypeStruct((), "float32")
        jax.block_until_ready(jax.jit(lambda x: io_callback(step, out, x))(1.0))

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        simulate()
    assert is_interrupt(caught.value) and not is_interrupt(RuntimeError("KeyboardInterrupt"))
    flag = StopFlag()
    with pytest.raises(KeyboardInterrupt), flag:
        simulate()
    with pytest.raises(RuntimeError, match="of its own"), StopFlag():
        raise RuntimeError("of its own")


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


def test_an_interrupt_in_an_import_ends_in_one_line(tmp_path: Path) -> None:
    """Also where a native module would make another error of it; outside of imports it is one."""
    (tmp_path / "slow.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    raise ImportError('of a native module')\n"
    )
    # Where tests run in the background, Ctrl-C is ignored from the start, and stays so.
    begin = "import signal; signal.signal(2, signal.default_int_handler)\n"
    begin += "from jaxrl_rollouts.record.interrupts import end_in_imports; end_in_imports()\n"
    known = "try:\n    signal.raise_signal(2)\nexcept KeyboardInterrupt:\n"
    program = begin + known + "    print('seen', flush=True)\nimport slow"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (130, "stopped: interrupted\n")
    assert done.stdout == "seen\n"

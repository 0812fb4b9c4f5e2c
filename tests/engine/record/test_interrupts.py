from __future__ import annotations

import os
import signal
import threading
from typing import Any

import jax
import pytest
from jax.experimental import io_callback

from jaxrl_rollouts.record.interrupts import StopFlag, is_interrupt


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

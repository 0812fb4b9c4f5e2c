"""Other people's programs, timed in interpreters of their own: their dependencies pin old ones.

A peer is a script in `speed/peers/` that imports nothing of ours. It reads one JSON object per line
from its standard input and answers each with one line `RESULT {...}`; anything else it prints is
passed over. It stays alive between questions, so that what it compiled stays compiled while ours
and theirs take turns. Networks that are compared get our weights first (`write_weights`), shaken so
that zeros and ones hide no difference, and must answer as ours do (`check_outputs`).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.trees import PyTree

PEERS = Path(__file__).parents[1] / "speed" / "peers"
ANSWER = "RESULT "
SAME = 1e-3  # largest difference of two float32 implementations of a network, relative
Timers = dict[tuple[str, Any], Callable[[], float]]  # (what is done, by whom) -> work per second


class Peer:
    """A running peer: an interpreter on a script in `speed/peers/`; use as a context manager.

    `option` is the setting that named the interpreter and `needs` what it must have, for the error.

    Raises:
        ConfigError: from `ask`, when the peer ends without an answer; with its last line.
    """

    def __init__(self, python: str, script: str | Path, *, option: str, needs: str) -> None:
        self._python, self._option, self._needs = python, option, needs
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (a pipe could fill)
        command = [python, str(PEERS / script)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        # Killed, not asked: a peer in the middle of something would not listen.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask and wait for the answer."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None and pipe_out is not None
        try:
            pipe_in.write(json.dumps(question) + "\n")
            pipe_in.flush()
        except BrokenPipeError:
            raise self._gone() from None
        for line in pipe_out:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise self._gone()

    def start(
        self,
        settings: Mapping[str, Any],
        *,
        parameters: int | None = None,
        what: str = "parameters",
    ) -> dict[str, str]:
        """Have it build what is timed, and check that this is as large as ours.

        `what` is counted, for the error; no number of `parameters` of ours checks nothing. Returns
        the versions of its libraries.

        Raises:
            DataError: it has another number of parameters.
        """
        answer = self.ask({"kind": "start", "threads": os.cpu_count(), **settings})
        count = answer.pop("parameters")
        if parameters not in (None, count):
            raise DataError(self._needs, what, count, f"{parameters}, as ours")
        return answer

    def _gone(self) -> ConfigError:
        self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["no output"])[-1]
        return ConfigError(self._option, self._python, f"{self._needs} to run there ({last})")


def peer_or_none(
    python: str, script: str, *, option: str, needs: str
) -> AbstractContextManager[Peer | None]:
    """The peer, or None where no interpreter is given; use as a context manager."""
    return Peer(python, script, option=option, needs=needs) if python else nullcontext()


def check_interpreter(setting: str, python: str, needs: str) -> None:
    """`ConfigError` where an interpreter is given that does not exist."""
    if python and not Path(python).exists():
        raise ConfigError(setting, python, f"an interpreter that has {needs}")


def check_outputs(who: str, theirs: np.ndarray, ours: np.ndarray) -> float:
    """Largest difference between a peer's network and ours on our weights, relative to ours.

    Raises:
        DataError: they are not the same network.
    """
    apart = float(np.abs(theirs - ours).max() / np.abs(ours).max())
    if not apart < SAME:
        raise DataError(who, "network on our weights", apart, f"below {SAME} from ours")
    return apart


def shake(params: PyTree, key: jax.Array) -> PyTree:
    """Parameters with noise on all of them, so that zeros and ones hide no difference."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noised = [x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noised)


def shaken(net: Any, key: jax.Array) -> PyTree:
    """Fresh parameters of a network with an `init(key)`, shaken."""
    init_key, noise_key = jax.random.split(key)
    return shake(net.init(init_key), noise_key)


def write_weights(path: Path, params: PyTree) -> None:
    """All parameters as one `.npz`, named `layer/name`."""
    named: dict[str, Any] = {k: np.asarray(v) for k, v in flatten_dict(params, sep="/").items()}
    np.savez(path, **named)


def torch_ways(
    peer: Peer, compiling: str | None, name: str = "torch"
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The ways a started torch peer may be asked: eager, on one thread, and compiled.

    `compiling` says what is compiled, for the note; None leaves that out. Returns who (`name` in
    the report) -> what is asked besides the rest, and a note about `torch.compile`.
    """
    cores = os.cpu_count() or 1
    ways: dict[str, Mapping[str, Any]] = {name: {"compiled": False, "threads": cores}}
    if cores > 1:  # where somebody else works too, threads that wait for each other lose
        ways[f"{name}, 1 thread"] = {"compiled": False, "threads": 1}
    if compiling is None:
        return ways, []
    answer = peer.ask({"kind": "compile"})
    if not answer["works"]:
        return ways, [f"torch.compile does not work here: {answer['why']}"]
    ways[f"{name} compiled"] = {"compiled": True, "threads": cores}
    return ways, [f"torch.compile {compiling} took {answer['seconds']:.0f} s."]


def peer_timers(
    peer: Peer,
    question: Mapping[str, Any],
    work: Mapping[str, int],
    ways: Mapping[str, Mapping[str, Any]],
) -> Timers:
    """A timer for each way to ask a started peer to do each kind of work; asked once to warm up.

    Args:
        peer: has been started.
        question: what is asked, besides `kind` and what the way adds.
        work: kind of what is done ("train", say) -> how much of it a question asks for.
        ways: who, in the report -> what is added to the question.
    """
    asked = {(kind, who): {"kind": kind, **question, **ways[who]} for who in ways for kind in work}
    for each in asked.values():
        peer.ask(each)
    return {
        (kind, who): lambda each=each, done=work[kind]: done / peer.ask(each)["seconds"]
        for (kind, who), each in asked.items()
    }

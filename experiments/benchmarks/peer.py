"""Other libraries' programs, timed in separate interpreters: their dependencies pin old ones.

A peer is a script that imports nothing of ours but what lies in `peers/`: `serving`, which it ends
with, and `torch_operators`, layers made of our weights. It reads one JSON object per line from its
standard input and answers each with one line `RESULT {...}`; anything else it prints is passed
over. It stays alive between questions, so that what it compiled stays compiled while ours and
theirs take turns. Networks that are compared get our weights first, shaken so that zeros and ones
hide no difference, and must answer as ours do.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from jaxrl_rollouts.cores import cores
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .timing import Timing, Turn, in_turns

PEERS = Path(__file__).parent / "peers"  # on the path of every peer
ANSWER = "RESULT "
SAME = 1e-3  # largest difference of two float32 implementations of a network, relative
# (what is done, by whom) -> work per second
Timers = dict[tuple[str, Any], Callable[[], float | Turn]]
Ways = Mapping[str, Mapping[str, Any]]  # who, in the report -> what is asked besides the kind
Outputs = Sequence[tuple[Mapping[str, Any], Any]]  # inputs by name, and what ours makes of them


@dataclass(frozen=True)
class Theirs:
    """What is timed beside ours.

    Attributes:
        python: its interpreter; empty leaves it out.
        script: the file that is run there.
        needs: packages that the interpreter must have.
        settings: the program's settings, and the amounts of work per question.
        work: kind of what is timed ("train", say) -> how much of it that is.
        option: the setting that named the interpreter, for errors.
        ways: the ways it is asked; None for torch's: eager, on one thread, and compiled.
        called: torch, in the report, where it takes its ways.
        compiling: torch's compiled parts, for the note; empty leaves that out.
        weights: ours, which it gets; None for none.
        parameters: number of parameters it must have; None: not checked.
        outputs: must be the same there.
    """

    python: str
    script: Path
    needs: str
    settings: Mapping[str, Any]
    work: Mapping[str, int]
    option: str = "torch_python"
    ways: Ways | None = None
    called: str = "torch"
    compiling: str = ""
    weights: PyTree = None
    parameters: int | None = None
    outputs: Outputs = ()


class Peer:
    """A running peer; use as a context manager.

    Raises:
        ConfigError: from `ask`, when the peer ends without an answer; with its last line.
    """

    def __init__(self, theirs: Theirs) -> None:
        self.theirs, pipe = theirs, subprocess.PIPE
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (a pipe could fill)
        paths = [str(PEERS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [theirs.python, str(theirs.script)],
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
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

    def start(self, folder: Path) -> dict[str, str]:
        """Have it build what is timed; the versions of its libraries."""
        theirs, weights = self.theirs, folder / f"weights_{self.theirs.script.stem}.npz"
        if theirs.weights is not None:
            write_weights(weights, theirs.weights)
        settings = {"threads": cores(), "weights": str(weights), **theirs.settings}
        answer = self.ask({"kind": "start", **settings})
        count = answer.pop("parameters")
        if theirs.parameters not in (None, count):
            raise DataError(theirs.needs, "parameters", count, f"{theirs.parameters}, as ours")
        return answer

    def check_same(self) -> float:
        """Largest difference between its network and ours on our weights, relative to ours."""
        differences = []
        for inputs, ours in self.theirs.outputs:
            lists = {name: np.asarray(values).tolist() for name, values in inputs.items()}
            said = np.array(self.ask({"kind": "apply", **lists})["said"])
            apart = float(np.abs(said - ours).max() / np.abs(ours).max())
            if not apart < SAME:
                expected = f"below {SAME} from ours"
                raise DataError(self.theirs.needs, "network on our weights", apart, expected)
            differences.append(apart)
        return max(differences)

    def timers(self, ways: Ways) -> Timers:
        """A timer for each way to do each kind of work; all are asked once to warm up."""
        work = self.theirs.work
        asked = {(kind, who): {"kind": kind, **ways[who]} for who in ways for kind in work}
        for each in asked.values():
            self.ask(each)
        return {
            (kind, who): lambda each=each, done=work[kind]: _turn(done, self.ask(each))
            for (kind, who), each in asked.items()
        }

    def torch_ways(self) -> tuple[Ways, list[str]]:
        """The ways a torch peer is asked, and a note about `torch.compile`."""
        threads, name = cores(), self.theirs.called
        ways = {name: {"compiled": False, "threads": threads}}
        if threads > 1:  # on a shared machine threads that wait for each other lose
            ways[f"{name}, 1 thread"] = {"compiled": False, "threads": 1}
        if not self.theirs.compiling:
            return ways, []
        answer = self.ask({"kind": "compile"})
        if not answer["works"]:
            return ways, [f"torch.compile does not work here: {answer['why']}"]
        ways[f"{name} compiled"] = {"compiled": True, "threads": threads}
        if threads > 1:  # what was compiled for more threads is compiled again
            ways[f"{name} compiled, 1 thread"] = {"compiled": True, "threads": 1}
        return ways, [f"torch.compile {self.theirs.compiling} took {answer['seconds']:.0f} s."]

    def _gone(self) -> ConfigError:
        self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["no output"])[-1]
        expected = f"{self.theirs.needs} to run there ({last})"
        return ConfigError(self.theirs.option, self.theirs.python, expected)


def _turn(done: int, answer: Mapping[str, float]) -> Turn:
    return Turn(done / answer["seconds"], 1e3 * answer["cpu"] / done)


def time_beside(
    context: RunContext, label: str, repeats: int, ours: Timers, theirs: Theirs
) -> Timing:
    """Ours and theirs, work per second in turns, once their networks are known to be the same.

    Its columns are `networks differ by`, where that was asked.
    """
    timers, columns, notes, versions = dict(ours), {}, [], {}
    with Peer(theirs) if theirs.python else nullcontext() as peer:
        if peer is not None:
            versions = peer.start(context.folder.path)
            if theirs.outputs:
                columns["networks differ by"] = peer.check_same()
            ways, notes = (theirs.ways, []) if theirs.ways else peer.torch_ways()
            timers |= peer.timers(ways)
        rates = in_turns(context, label, repeats, timers)
    return Timing(rates, columns, notes, versions)


def check_interpreter(setting: str, python: str, needs: str) -> None:
    """The interpreter exists, where one is given."""
    if python and not Path(python).exists():
        raise ConfigError(setting, python, f"an interpreter that has {needs}")


def shaken(net: Any, key: jax.Array) -> PyTree:
    """Fresh parameters of a network with an `init(key)`, with noise on all of them: zeros and ones
    would hide differences."""
    init_key, noise_key = jax.random.split(key)
    leaves, structure = jax.tree.flatten(net.init(init_key))
    keys = jax.random.split(noise_key, len(leaves))
    noised = [x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noised)


def write_weights(path: Path, params: PyTree) -> None:
    """All parameters as one `.npz`, named `layer/name`."""
    named: dict[str, Any] = {k: np.asarray(v) for k, v in flatten_dict(params, sep="/").items()}
    np.savez(path, **named)

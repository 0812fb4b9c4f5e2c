"""What a training says it will take of the memory, and what it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import memory
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

KEYS = jax.random.split(jax.random.key(0), 2)
MEASURED = """
import sys, jax, jax.numpy as jnp
from pathlib import Path
from jaxrl_rollouts import memory
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.run import Run

size = int(sys.argv[2])
update = lambda state, data: (state @ state.T / size + data[:size, :size], {"m": state.mean()})
keys = jax.random.split(jax.random.key(0), 4)
with Run.open(Path(sys.argv[1]), progress=False) as run:
    train_loop(update, lambda key, data: jax.random.normal(key, (size, size)), keys,
          jnp.ones((4 * size, size)), iterations=3, stage="a", context=run)
    print(run.needs["a"].total / memory.measured_peak())
"""


class State(NamedTuple):
    w: jax.Array


def update(state: State, data: Any) -> tuple[State, dict]:
    return State(state.w + data.mean()), {"w": state.w.mean()}


def trained(folder: Path, *, progress: bool) -> memory.Need:
    context = RunContext(RunFolder.at(folder, "toy"), progress=progress)
    start = lambda key, data: State(jnp.zeros(1000))  # noqa: E731
    train_loop(update, start, KEYS, jnp.ones((50, 10)), iterations=2, stage="a", context=context)
    return context.needs["a"]


def test_a_training_says_what_it_needs_before_it_begins(tmp_path: Path, capsys: Any) -> None:
    need = trained(tmp_path, progress=True)
    said = capsys.readouterr().err
    assert "a: needs about " in said and said.index("a: needs about ") < said.index("2/2")
    assert (need.data, need.state) == (4 * 50 * 10, 4 * 1000 * len(KEYS))
    assert need.total >= need.before >= need.data + need.state


def test_what_does_not_fit_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000_000)  # below `memory.AROUND`
    with pytest.warns(UserWarning, match=r"a: needs about .* MB of .* MB .*More than available"):
        trained(tmp_path, progress=False)


@pytest.mark.parametrize("part", ["state", "work", "copies"])
def test_a_need_counts_the_largest_of_what_comes_and_goes(part: str) -> None:
    small = {"before": 5e9, "data": 1e9, "state": 1e9, "work": 0.0, "copies": 0.0, "seen": 0.0}
    base = memory.Need(**small).total
    grown = memory.Need(**small | {part: 2e9}).total
    assert grown - base == (0 if part == "state" else 2e9)  # the state is in `before`
    assert memory.Need(**small | {"work": 2e9, "copies": 1e9}).total == base + 2e9
    assert memory.Need(**small | {"seen": 9e9}).total == 9e9


def test_copies_on_several_devices_count_as_often() -> None:
    assert memory.bytes_of({"a": np.zeros(3, np.float32), "b": jnp.zeros((2, 5))}) == 12 + 40


@pytest.mark.slow
def test_a_prediction_is_within_a_fifth_of_what_the_system_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "run"), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert abs(float(done.stdout.split()[-1]) - 1) < 0.2


def test_memory_is_not_measured_where_the_system_has_no_such_module() -> None:
    """Windows has no `resource` and no `fcntl`."""
    code = """
import sys
sys.modules["resource"] = sys.modules["fcntl"] = None
from pathlib import Path
from unittest import mock
from jaxrl_rollouts import memory
import jaxrl_rollouts.loop, jaxrl_rollouts.record.lock
assert memory.resident() > 0 == memory.measured_peak()
with mock.patch.object(Path, "read_text", side_effect=FileNotFoundError):
    assert memory.resident() == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

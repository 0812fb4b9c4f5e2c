"""A run that was stopped, killed or both ends with the bits of the run that was not."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag

ITERATIONS, CHUNK = 36, 2
SCRIPT = f"""
import sys
from dataclasses import dataclass
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np, optax
from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.plugins import RunContext
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.record.interrupts import StopFlag
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.loggers import JsonlLogger
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.record.folder import RunFolder

network = from_linen(MLP((16,), (1,)), jax.ShapeDtypeStruct((1, 2), jnp.float32))
adam = optax.adam(1e-2)

def init(key, data):
    params = network.init(key)
    return params, adam.init(params), key

def update(state, data):
    params, moments, key = state
    pick, key = jax.random.split(key)
    x, y = jax.tree.map(lambda c: c[jax.random.randint(pick, (32,), 0, 256)], data)
    loss = lambda p: jnp.square(network.apply(p, x)[:, 0] - y).mean()
    value, gradient = jax.value_and_grad(loss)(params)
    step, moments = adam.update(gradient, moments, params)
    return (optax.apply_updates(params, step), moments, key), {{"loss": value}}

def evaluate(state, iteration):
    return {{"weight": state[0]["Dense_0"]["kernel"].sum((1, 2))}}

def fit(context=None):
    x = jax.random.normal(jax.random.key(1), (256, 2))
    data = (x, jnp.sin(x[:, 0]) * x[:, 1])
    keys = jax.random.split(jax.random.key(0), 2)
    return train_loop(update, init, keys, data,
                 iterations={ITERATIONS}, chunk={CHUNK}, stage="fit", evaluate=evaluate,
                 evaluate_every=6, context=context, save_every_seconds=0.0)

def save(trained, path):
    leaves = jax.tree.leaves((trained.state[:2], jax.random.key_data(trained.state[2])))
    curves = [x for name in ("loss", "weight") for x in trained.history.curve(name)]
    np.savez(path, *map(np.asarray, leaves + curves))

if __name__ == "__main__":
    folder = RunFolder.open(sys.argv[1])
    logger = JsonlLogger(folder.path / "metrics.jsonl")
    with StopFlag() as stop:
        context = RunContext(folder, progress=False, loggers=(logger,), stop=stop)
        try:
            save(fit(context), folder.path / "result.npz")
        except Interrupted as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: Any) -> tuple[Path, dict[str, Any]]:
    """The script's path and, as a module, its functions."""
    path = tmp_path_factory.mktemp("script") / "fit.py"
    path.write_text(SCRIPT)
    return path, runpy.run_path(str(path))


@pytest.fixture(scope="module")
def uninterrupted(script: tuple, tmp_path_factory: Any) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("whole") / "result.npz"
    script[1]["save"](script[1]["fit"](), path)
    return dict(np.load(path))


@pytest.fixture(scope="module")
def trained(script: tuple, tmp_path_factory: Any) -> Path:
    """A finished run's folder, with a checkpoint after every chunk; to be copied."""
    made = RunFolder.create(tmp_path_factory.mktemp("runs"), "fit", "test", EnsembleConfig(), "")
    script[1]["fit"](RunContext(made, progress=False))
    return made.path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    # Any configuration will do.
    return RunFolder.create(tmp_path, "fit", "test", EnsembleConfig(), "nothing")


def assert_bitwise(path: Path, want: dict[str, np.ndarray]) -> None:
    got = dict(np.load(path))
    assert got.keys() == want.keys() and len(want) > 12
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def newest(folder: RunFolder) -> int:
    """Iteration of the newest checkpoint; looked up while another process is writing."""
    names = os.listdir(folder.stage("fit"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def logged_steps(folder: RunFolder) -> list[int]:
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


class StopAt:
    """A logger that asks to stop once a step is reached."""

    def __init__(self, step: int, flag: StopFlag) -> None:
        self.step, self.flag = step, flag

    def log(self, stage: str, step: int, metrics: Any) -> None:
        if step == self.step:
            self.flag.request()

    def restore(self, stage: str, records: Any) -> None: ...

    def close(self) -> None: ...


def test_stopping_and_going_on_changes_no_bit(
    script: tuple, folder: RunFolder, uninterrupted: dict, tmp_path: Path
) -> None:
    for step in (4, 6, 20):  # 6: also evaluated
        flag = StopFlag()
        context = RunContext(folder, progress=False, loggers=(StopAt(step, flag),), stop=flag)
        with pytest.raises(
            Interrupted, match=f"after {step} of {ITERATIONS} iterations.*resume"
        ) as caught:
            script[1]["fit"](context)
        assert str(folder.path) in str(caught.value) and newest(folder) == step
    trained = script[1]["fit"](RunContext(folder, progress=False))
    script[1]["save"](trained, tmp_path / "result.npz")
    assert_bitwise(tmp_path / "result.npz", uninterrupted)


@pytest.mark.parametrize("damage", ["history", "newest", "all"])
def test_damage_on_disk_changes_no_bit(
    script: tuple, trained: Path, uninterrupted: dict, tmp_path: Path, damage: str
) -> None:
    """The history is the checkpoint's, a damaged checkpoint is passed over, and without any the
    stage begins again."""
    folder = RunFolder.open(shutil.copytree(trained, tmp_path / "copy"))
    stage = folder.stage("fit")
    damaged = checkpoint.steps(stage)[-1:] if damage == "newest" else checkpoint.steps(stage)
    if damage == "history":
        lines = (stage / "history.jsonl").read_text().splitlines(keepends=True)
        (stage / "history.jsonl").write_text("".join(lines[:3]))
    for step in damaged if damage != "history" else ():
        file = max((stage / str(step)).rglob("d/*"), key=lambda path: path.stat().st_size)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        again = script[1]["fit"](RunContext(folder, progress=False))
    script[1]["save"](again, tmp_path / "result.npz")
    assert_bitwise(tmp_path / "result.npz", uninterrupted)


def test_asked_to_stop_before_anything_ran(script: tuple, folder: RunFolder) -> None:
    flag = StopFlag()
    flag.request()
    with pytest.raises(Interrupted, match=f"after 0 of {ITERATIONS}"):
        script[1]["fit"](RunContext(folder, progress=False, stop=flag))
    assert newest(folder) == 0


def start(script: tuple, folder: RunFolder) -> subprocess.Popen:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        [sys.executable, str(script[0]), str(folder.path)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no progress within two minutes"
        time.sleep(0.002)


def test_sigterm_leaves_a_checkpoint(script: tuple, folder: RunFolder) -> None:
    with start(script, folder) as process:
        wait_until(lambda: newest(folder) > 0, process)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == Interrupted.exit_code, errors
    assert "SIGTERM: stopping after this chunk" in errors
    assert f"stopped in stage fit after {newest(folder)} of {ITERATIONS}" in errors
    assert logged_steps(folder)[-1] == newest(folder) < ITERATIONS
    assert checkpoint.steps(folder.stage("fit"))[-1] == newest(folder)

"""Training that becomes non-finite: what is said of it, and what is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_loop import given, run_context

from jaxrl_rollouts.errors import DivergenceError, Interrupted
from jaxrl_rollouts.finite import DIVERGED
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.interrupts import StopFlag


def explode(state: jax.Array, data: Any) -> tuple:
    """Seed s goes bad at its own time: `state` counts down to zero."""
    return state - 1, {"good": state, "bad": 1.0 / (state - 1), "worse": jnp.log(state - 2)}


def test_divergence_names_everything_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    options = dict(iterations=20, chunk=2, stage="fit", context=context, save_every_seconds=0.0)
    with pytest.raises(DivergenceError) as caught:
        train_loop(explode, given, jnp.array([90.0, 7.0, 8.0]), **options)
    # log(state - 2) is first infinite in the 6th iteration, where seed 1 reads 2.
    folder = context.folder.stage("fit")
    assert str(caught.value) == (
        "stage fit, iteration 6, seed 1: metric worse is -inf, expected a finite number; "
        f"the last good checkpoint is {folder / '4'}"
    )
    step, bundle = checkpoint.load_newest(folder, {"state": jnp.zeros(3), **REST})
    assert step == 4 and bundle["state"].tolist() == [86.0, 3.0, 4.0]


REST = {"finished": 0, "spent": {"compile": 0.0, "run": 0.0, "wall": 0.0}}


def test_divergence_without_a_checkpoint() -> None:
    with pytest.raises(DivergenceError, match="seed 0: metric worse is nan.*none was saved"):
        train_loop(explode, given, jnp.array([1.5, 90.0]), iterations=2, chunk=2, stage="fit")


def test_metrics_must_be_scalars() -> None:
    with pytest.raises(ValueError, match=r"metric w: found shape \(2,\), expected a scalar"):
        train_loop(lambda s, d: (s, {"w": s}), given, jnp.ones((3, 2)), iterations=1, stage="a")


def walk(state: dict, data: Any) -> tuple:
    """A random walk whose seed `at` becomes infinite after so many steps."""
    key, own = jax.random.split(state["key"])
    value = jnp.sin(state["value"]) + jax.random.normal(own)
    time = state["time"] + 1
    value = jnp.where(time == state["at"], jnp.inf, value)
    after = {"key": key, "value": value, "time": time, "at": state["at"]}
    return after, {"value": value, "square": value**2}


def begin(at: list[int]) -> dict:
    keys = jax.random.split(jax.random.key(7), len(at))
    times = jnp.zeros(len(at), int)
    return {"key": keys, "value": jnp.zeros(len(at)), "time": times, "at": jnp.array(at)}


def look(state: dict, iteration: int) -> dict:
    """An evaluation that is never shown a number which is not finite."""
    value = np.asarray(state["value"])
    assert np.isfinite(value).all()
    return {"seen": value * iteration}


OPTIONS: dict[str, Any] = dict(chunk=4, stage="walk", evaluate=look, evaluate_every=8)
NEVER = 10**6


def bits(trained: Any, seeds: list[int]) -> list:
    rows = [np.asarray(trained.state[name])[seeds] for name in ("value", "time")]
    rows.append(np.asarray(jax.random.key_data(trained.state["key"]))[seeds])
    return rows + [v[seeds] for r in trained.history.records for v in r.metrics.values()]


def same(one: list, other: list) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore:stage walk")
def test_a_seed_that_diverges_is_dropped_and_the_others_keep_their_bits(tmp_path: Path) -> None:
    at = [NEVER] * 64
    at[1], at[3], at[63] = 10, 3, 3
    kept = [seed for seed in range(64) if at[seed] == NEVER]
    whole = train_loop(walk, given, begin([NEVER] * 64), iterations=24, **OPTIONS)
    context = run_context(tmp_path)
    with pytest.warns(UserWarning, match=r"iteration 10, seed 1: .*other 61 of 64 seeds continue"):
        trained = train_loop(
            walk, given, begin(at), iterations=24, context=context, on_divergence="drop", **OPTIONS
        )
    assert trained.diverged == {3: 3, 63: 3, 1: 10} and not whole.diverged
    same(bits(trained, kept), bits(whole, kept))
    assert np.isnan(np.asarray(trained.state["value"])[[1, 3, 63]]).all()
    steps, values = trained.history.curve("value")
    assert np.isnan(values[steps >= 4][:, [3, 63]]).all() and np.isnan(values[steps >= 12, 1]).all()
    assert np.isfinite(values[steps < 12, 1]).all() and np.isfinite(values[:, kept]).all()
    again = train_loop(
        walk, given, begin(at), iterations=24, context=context, on_divergence="drop", **OPTIONS
    )
    assert again.diverged == trained.diverged
    same(bits(again, list(range(64))), bits(trained, list(range(64))))


@pytest.mark.filterwarnings("ignore:stage walk")
def test_a_training_cut_after_a_divergence_goes_on_bitwise(tmp_path: Path) -> None:
    at, drop = [5, NEVER, NEVER, 14], dict(on_divergence="drop", **OPTIONS)
    whole = train_loop(walk, given, begin(at), iterations=24, **drop)
    context = run_context(tmp_path)
    stop = StopFlag()

    def stopping(state: dict, iteration: int) -> dict:
        if iteration == 8:
            stop.request()
        return look(state, iteration)

    cut = {**drop, "evaluate": stopping}
    with pytest.raises(Interrupted):
        train_loop(
            walk, given, begin(at), iterations=24, context=replace(context, stop=stop), **cut
        )
    stages = context.folder.stage("walk")
    assert json.loads(checkpoint.text(stages, 8, DIVERGED) or "") == {"0": 5}
    resumed = train_loop(walk, given, begin(at), iterations=24, context=context, **drop)
    assert resumed.diverged == {0: 5, 3: 14}
    same(bits(resumed, [0, 1, 2, 3]), bits(whole, [0, 1, 2, 3]))


def test_what_is_dropped_is_on_disk_at_once(tmp_path: Path) -> None:
    """A kill right after a divergence does not repeat it."""
    context = run_context(tmp_path)

    class Killed(Exception):
        pass

    def killing(state: dict, iteration: int) -> dict:
        if iteration == 16:
            raise Killed
        return {}

    options = {**OPTIONS, "evaluate": killing, "on_divergence": "drop"}
    with pytest.raises(Killed), pytest.warns(UserWarning, match="seed 1"):
        train_loop(walk, given, begin([NEVER, 9]), iterations=24, context=context, **options)
    assert checkpoint.steps(context.folder.stage("walk")) == [12]


@pytest.mark.filterwarnings("ignore:stage walk")
def test_the_last_seed_that_diverges_ends_the_training(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    with pytest.raises(
        DivergenceError, match=r"iteration 11, seed 0: .* is inf.*checkpoint is .*8"
    ):
        train_loop(
            walk, given, begin([11, 6]), iterations=24, context=context, on_divergence="drop",
            **OPTIONS,
        )  # fmt: skip
    assert DivergenceError.exit_code == 3


def test_an_early_end_does_not_wait_for_a_seed_that_diverged() -> None:
    options = {**OPTIONS, "finished": lambda means: bool((means["square"] >= 0).all())}
    with pytest.warns(UserWarning, match="seed 1"):
        trained = train_loop(
            walk, given, begin([NEVER, 2]), iterations=24, on_divergence="drop", **options
        )
    assert len(trained.history.records) == 1


SPREAD = """
import jax, numpy as np, warnings
jax.config.update("jax_num_cpu_devices", 2)
warnings.simplefilter("ignore")
import sys; sys.path.insert(0, "TESTS")
from test_finite import *
at = [NEVER, 5, NEVER, NEVER, 9]
whole = train_loop(walk, given, begin([NEVER] * 5), iterations=16, **OPTIONS)
found = train_loop(walk, given, begin(at), iterations=16, on_divergence="drop", **OPTIONS)
assert len(jax.devices()) == 2 and found.diverged == {1: 5, 4: 9}
same(bits(found, [0, 2, 3]), bits(whole, [0, 2, 3]))
"""


def test_seeds_on_several_devices_are_dropped_likewise(tmp_path: Path) -> None:
    """Three rows on each of two devices, of which the sixth is a copy of a seed that diverges."""
    script = SPREAD.replace("TESTS", str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]

"""Slopes, where curves are linear and why not, and bytes that are those of what is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.compare import costs
from jaxrl_rollouts.compare.costs import (
    Cost,
    Curve,
    linear_range,
    measure,
    of_host,
    of_program,
    resident_rise,
    seconds_per_call,
    slopes,
    tell,
)
from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag

SIZES = np.array([1, 10, 100, 1000, 2000])


@dataclass(frozen=True)
class Config:
    pass


def curve_of(seconds: list[float]) -> Curve:
    taken = np.array(seconds)[:, None] * np.array([0.9, 1.0, 5.0])  # the median is the second
    return Curve(SIZES, taken, 100.0 * SIZES, SIZES, 0 * SIZES, 0 * SIZES)


def context_in(folder: Path, stop: StopFlag | None = None) -> RunContext:
    made = RunFolder.create(folder, "costs", "smoke", Config(), "")
    return RunContext(made, progress=False, stop=stop)


def test_a_fixed_cost_hides_the_linear_one_at_first() -> None:
    times = 1.0 + 0.1 * SIZES  # the slope from 10 to 100 is 0.74
    assert slopes(SIZES, times)[0] == pytest.approx(np.log10(2.0 / 1.1))
    assert linear_range(SIZES, times) == (100, 2000)
    told = tell(curve_of(list(times)), "rows", flatter="it starts", steeper="no cache")
    assert told.startswith(
        "linear from 100 to 2,000 rows; flatter from 1 to 10 (slope 0.26), 10 to"
    )
    assert told.endswith(": it starts")


def test_what_no_cache_holds_is_steeper() -> None:
    curve = curve_of([1.0, 10.0, 100.0, 1000.0, 8000.0])
    told = tell(curve, "rows", flatter="it starts", steeper="no cache holds it")
    assert told == (
        "linear from 1 to 1,000 rows; steeper from 1,000 to 2,000 (slope 3.00): no cache holds it"
    )


def test_the_widest_span_counts_not_the_one_with_most_sizes() -> None:
    sizes = np.array([1, 2, 4, 8, 80, 800])
    values = np.array([1.0, 2.0, 4.0, 4.1, 41.0, 410.0])
    assert linear_range(sizes, values) == (8, 800)
    assert linear_range(sizes, np.ones(6)) is None
    flat = curve_of([1.0] * 5)
    assert tell(flat, "rows", flatter="a batch", steeper="").startswith("nowhere linear; flatter")


def test_a_slope_between_two_sizes_is_that_of_every_round() -> None:
    curve = curve_of([1.0, 10.0, 100.0, 1000.0, 8000.0])
    np.testing.assert_allclose(curve.between(1, 1000), [1.0, 1.0, 1.0])
    np.testing.assert_allclose(curve.between(10, 2000, curve.bytes), [1.0])


def test_bytes_are_arguments_results_and_buffers_and_a_donated_state_counts_once() -> None:
    state, data = jnp.zeros(1000), jnp.ones((1000, 50))

    def step(state, data):  # noqa: ANN001, ANN202
        return state + data.sum(1), jnp.sort(data, 0)

    cost = of_program(step, state, data)
    assert cost.kept == 4000
    at_least = 4000 + 2 * 200_000  # the state once, data and what is returned
    assert at_least <= cost.bytes <= at_least + 300_000
    np.testing.assert_allclose(cost.call()[0], 50.0)
    np.testing.assert_allclose(cost.call()[0], 100.0)  # goes on with its state
    assert of_program(step, jnp.zeros(1000), data, devices=2).bytes == 2 * cost.bytes


def test_bytes_on_the_host_are_the_most_that_were_held() -> None:
    cost = of_host(lambda: np.tile(np.ones(500_000), 2).sum(), kept=7)
    assert 12e6 <= cost.bytes <= 12.2e6  # doubles, and twice as many
    assert cost.kept == 7


def test_a_call_that_takes_memory_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux tells")
    data = jnp.ones(20_000_000)
    cost = of_program(lambda state, data: (state, data + 1.0), (), data)
    cost.call()
    rises = [resident_rise(cost.call) for _ in range(3)]  # in one of them nobody else does anything
    assert any(0.8 < rise / (cost.bytes - data.nbytes) < 1.1 for rise in rises), rises
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert np.isnan(resident_rise(cost.call))


def test_short_work_is_repeated_until_it_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock of its own: on a busy machine the last call may take any time.
    calls: list[int] = []
    clock = SimpleNamespace(perf_counter=lambda: 5.0 + 0.003 * len(calls))
    monkeypatch.setattr(costs, "time", clock)
    taken = seconds_per_call(lambda: calls.append(1), least=0.01)
    assert len(calls) == 4 and taken == pytest.approx(0.003)


def test_all_sizes_are_built_then_timed_in_turns(tmp_path: Path) -> None:
    order: list[int] = []

    def build(size: int) -> Cost:
        return Cost(lambda: order.append(size), 10.0 * size, size, 0.5)

    curve = measure(context_in(tmp_path), "work", build, (1, 3), repeats=2, least=0.0)
    assert order == [1, 1, 3, 3, 1, 3, 1, 3]  # the first two of each warm up
    assert curve.seconds.shape == (2, 2) and list(curve.bytes) == [10.0, 30.0]
    assert list(curve.kept) == [1, 3] and list(curve.compile_seconds) == [0.5, 0.5]


def test_who_asks_to_stop_is_heard_between_sizes(tmp_path: Path) -> None:
    flag = StopFlag()
    flag.request()
    with pytest.raises(Interrupted, match="before work at 1"):
        measure(context_in(tmp_path, flag), "work", pytest.fail, (1,), repeats=1)

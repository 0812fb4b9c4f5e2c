"""Memory: a tape is its steps one after the other, and nothing leaks from episode to episode."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts import rollouts
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.recurrent.linear_recurrence import Form, linear_scan, use_associative
from jaxrl_rollouts.offline.recurrent.memory import (
    Memory,
    MemoryConfig,
    gru_tape,
    make_memory,
)

D, L = 3, 24
FORMS: tuple[Form, ...] = ("associative", "sequential")
RECURRENT = ("lru", "gru", "lstm")
KINDS = (*RECURRENT, "none")


@pytest.mark.parametrize("kind", KINDS)
def test_initial_weights_are_made_without_lapack(kind: Any) -> None:
    """Its kernels may wait for each other for ever on one or two cores."""
    memory = make_memory(MemoryConfig(kind=kind, width=4, state=4, layers=2), D)
    assert "lapack" not in jax.jit(memory.init).lower(jax.random.key(0)).as_text()


class Made(NamedTuple):
    """A memory with parameters, and its two ways through a tape, compiled once."""

    memory: Memory
    params: Any
    scan: Callable[..., tuple[jax.Array, Any]]
    steps: Callable[..., tuple[jax.Array, Any]]


@functools.cache
def made(kind: str) -> Made:
    memory = make_memory(MemoryConfig(kind, width=8, state=5, layers=2), D)  # type: ignore[arg-type]
    params = jax.jit(memory.init)(jax.random.key(3))

    def steps(timesteps: jax.Array, starts: jax.Array, carry: Any) -> tuple[jax.Array, Any]:
        def one(carry: Any, row: tuple) -> tuple:
            timestep, start = row
            carry = rollouts.where_rows(start[None], memory.start(1), carry)
            out, carry = memory.step(params, carry, timestep[None])
            return carry, (out[0], jax.tree.map(lambda c: c[0], carry))

        begin = jax.tree.map(lambda c: c[None], carry)
        return jax.lax.scan(one, begin, (timesteps, starts))[1]

    def scan(timesteps: jax.Array, starts: jax.Array, carry: Any = None) -> tuple[jax.Array, Any]:
        return memory.scan(params, timesteps, starts, carry)

    return Made(memory, params, jax.jit(scan), jax.jit(steps))


def tape(seed: int, starts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(L, D)).astype(np.float32)
    return x, np.isin(np.arange(L), starts)


places = st.lists(st.integers(0, L - 1), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), starts=places)
def test_a_tape_is_its_steps(kind: str, seed: int, starts: list[int]) -> None:
    _, _, scan, steps = made(kind)
    timesteps, flags = tape(seed, starts)
    # Something was before the tape: another tape's last carry.
    before = jax.tree.map(lambda c: np.asarray(c)[-1], scan(*tape(seed + 1, [0]))[1])
    found, want = scan(timesteps, flags, before), steps(timesteps, flags, before)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, want)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), start=st.integers(1, L - 1), poison=st.sampled_from((0, 1, 2)))
def test_nothing_leaks_across_a_start(kind: str, seed: int, start: int, poison: int) -> None:
    """The second episode is what it would be alone, whatever came before, even NaN."""
    scan = made(kind).scan
    timesteps, flags = tape(seed, [start])
    other = np.array(timesteps)
    other[:start] = (7.0, np.inf, np.nan)[poison]
    features, _ = scan(timesteps, flags)
    features, disturbed = np.asarray(features), np.asarray(scan(other, flags)[0])
    np.testing.assert_array_equal(features[start:], disturbed[start:])
    alone = np.asarray(scan(np.roll(timesteps, -start, 0), np.arange(L) == 0)[0])
    np.testing.assert_allclose(features[start:], alone[: L - start], atol=2e-5)


@pytest.mark.parametrize(("kind", "start"), [*((kind, 10) for kind in KINDS), ("lru", 1)])
def test_no_gradient_leaks_across_a_start(kind: str, start: int) -> None:
    scan = made(kind).scan
    timesteps, flags = tape(0, [start])

    def late(timesteps: jax.Array) -> jax.Array:
        return jnp.square(scan(timesteps, flags)[0][start:]).sum()

    slope = np.abs(jax.jit(jax.grad(late))(timesteps)).max(1)
    np.testing.assert_array_equal(slope[:start], 0.0)
    assert (slope[start:] > 0).all()


@pytest.mark.parametrize("kind", RECURRENT)
def test_the_past_of_an_episode_matters_the_future_does_not(kind: str) -> None:
    scan = made(kind).scan
    timesteps, flags = tape(0, [0])
    slope = jax.jit(jax.grad(lambda x: scan(x, flags)[0][12].sum()))(timesteps)
    assert (np.abs(slope[8:13]).max(1) > 0).all()
    np.testing.assert_array_equal(slope[13:], 0.0)


def test_without_memory_each_timestep_stands_alone() -> None:
    scan = made("none").scan
    timesteps, flags = tape(0, [0])
    features, carries = scan(timesteps, flags)
    backwards, _ = scan(timesteps[::-1], flags)
    np.testing.assert_allclose(features, backwards[::-1], atol=1e-6)
    assert carries == ()


def test_the_lru_layer_is_the_paper_s() -> None:
    memory = make_memory(MemoryConfig("lru", width=6, state=4, layers=1), D)
    params = memory.init(jax.random.key(1))
    timesteps, flags = tape(2, [0, 9])
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def dense(w: Any, x: np.ndarray) -> np.ndarray:
        return x @ w["kernel"] + w["bias"]

    def norm(w: Any, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
        return w["scale"] * centred / spread + w["bias"]

    layer = p["layers_0"]
    decay = np.exp(-np.exp(layer["nu"]) + 1j * np.exp(layer["theta"]))
    b = (layer["inward"][0] + 1j * layer["inward"][1]) * np.exp(layer["log_gain"])
    c = layer["outward"][0] + 1j * layer["outward"][1]
    h, want = np.zeros(4, complex), []
    for timestep, start in zip(np.asarray(timesteps), np.asarray(flags), strict=True):
        x = norm(p["norm"], dense(p["before"], timestep))
        x = np.where(x > 0, x, 0.01 * x)
        y = norm(layer["norm"], x)
        h = (0 if start else decay * h) + y @ b
        z = (h @ c).real + layer["skip"] * y
        z = np.asarray(jax.nn.gelu(z, approximate=False))
        want.append(x + dense(layer["value"], z) / (1 + np.exp(-dense(layer["gate"], z))))
    np.testing.assert_allclose(memory.scan(params, timesteps, flags)[0], want, atol=2e-5)


def test_initial_decays_fill_the_ring_and_the_gain_keeps_the_variance() -> None:
    config = MemoryConfig("lru", width=16, state=4000, layers=1, radius=(0.4, 0.9))
    layer = make_memory(config, D).init(jax.random.key(0))["layers_0"]
    radius = np.exp(-np.exp(np.asarray(layer["nu"], np.float64)))
    assert 0.4 <= radius.min() < 0.41 and 0.89 < radius.max() <= 0.9
    np.testing.assert_allclose((radius**2).mean(), (0.4**2 + 0.9**2) / 2, atol=0.01)
    np.testing.assert_allclose(np.exp(2 * layer["log_gain"]), 1 - radius**2, rtol=1e-3)
    for name, std in (("inward", 32**-0.5), ("outward", 4000**-0.5), ("skip", 1.0)):
        np.testing.assert_allclose(np.std(layer[name]), std, rtol=0.03 if name != "skip" else 0.6)


@pytest.mark.parametrize("form", FORMS)
def test_linear_scan_carries_what_was_before_until_the_first_start(form: Form) -> None:
    decay, drive, starts = jnp.array([0.5, 2.0]), jnp.ones((4, 2)), jnp.arange(4) == 2
    found = linear_scan(decay, drive, starts, jnp.array([8.0, 1.0]), form)
    np.testing.assert_allclose(found, [[5, 3], [3.5, 7], [1, 1], [1.5, 3]])


@pytest.mark.parametrize("form", FORMS)
def test_nothing_gets_through_a_start_even_if_it_is_not_finite(form: Form) -> None:
    decay, starts = jnp.array([0.5]), jnp.arange(4) == 2
    drive = jnp.array([[1.0], [jnp.inf], [1.0], [1.0]])
    np.testing.assert_allclose(
        linear_scan(decay, drive, starts, jnp.array([jnp.nan]), form)[2:], [[1.0], [1.5]]
    )


def test_the_associative_form_is_for_devices_with_many_lanes() -> None:
    assert use_associative("associative") and not use_associative("sequential")
    assert use_associative("auto") == (jax.default_backend() != "cpu")


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 10**6), starts=places)
def test_gradients_of_the_linear_scan_are_those_of_the_loop(
    form: Form, seed: int, starts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    decay, before, drive, weight = (
        (rng.normal(size=s) + 1j * rng.normal(size=s)).astype(np.complex64)
        for s in ((3,), (3,), (L, 3), (L, 3))
    )
    decay *= 0.9 / np.abs(decay)
    found = scan_slopes[form](decay, drive, before, tape(0, starts)[1], weight)
    want = loop_slopes(decay, drive, before, tape(0, starts)[1], weight)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def loop(decay: jax.Array, drive: jax.Array, starts: jax.Array, before: jax.Array) -> jax.Array:
    """The recurrence in plain sight."""

    def one(h: jax.Array, row: tuple) -> tuple:
        h = jnp.where(row[1], 0.0, decay) * h + row[0]
        return h, h

    return jax.lax.scan(one, before, (drive, starts))[1]


def slopes(scan: Callable[..., jax.Array]) -> Callable[..., tuple]:
    def loss(decay, drive, before, starts, weight) -> jax.Array:
        h = scan(decay, drive, starts, before)
        return (h * weight).real.sum() + jnp.square(jnp.abs(h)).sum()

    return jax.jit(jax.grad(loss, (0, 1, 2)))


scan_slopes = {form: slopes(functools.partial(linear_scan, form=form)) for form in FORMS}
loop_slopes = slopes(loop)


def test_settings_of_memory_are_checked() -> None:
    for change in ({"width": 0}, {"layers": 0}, {"radius": (0.5, 0.2)}, {"radius": (0.0, 1.0)}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            make_memory(MemoryConfig(**change), D)  # type: ignore[arg-type]
    assert make_memory(MemoryConfig(), D) is make_memory(MemoryConfig(), D)


def test_a_gru_tape_is_linens_cell() -> None:
    """Values and gradients of `nn.GRUCell`, called once per timestep."""
    (x, flags), cell = tape(3, [0, 5, 6, 20]), nn.GRUCell(8)
    begin = jax.random.normal(jax.random.key(1), (8,))
    params = cell.init(jax.random.key(0), begin, jnp.zeros(D))["params"]
    params = jax.tree.map(lambda p: p + 0.1, params)  # Linen's biases start at zero

    def cells(params: Any, x: jax.Array) -> jax.Array:
        carry, out = begin, []
        for t in range(L):
            carry = jnp.zeros(8) if flags[t] else carry
            carry, y = cell.apply({"params": params}, carry, x[t])
            out.append(y)
        return jnp.stack(out)

    def whole(params: Any, x: jax.Array) -> jax.Array:
        return gru_tape(params, x, jnp.asarray(flags), begin)[0]

    np.testing.assert_allclose(whole(params, x), cells(params, x), atol=1e-6)
    found, want = (
        jax.grad(lambda p, x, f=f: jnp.square(f(p, x)).sum(), (0, 1))(params, jnp.asarray(x))
        for f in (whole, cells)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, want)


def test_a_gru_tape_takes_less_than_half_of_the_cells_time(as_users_compile: None) -> None:
    """In CPU seconds, gradient included: 3 to 4 times less, unless XLA fuses the gates badly."""
    cell, width, length = nn.GRUCell(128), 128, 512
    x, begin = jax.random.normal(jax.random.key(1), (length, D)), jnp.zeros(width)
    params, starts = cell.init(jax.random.key(0), begin, x[0])["params"], jnp.zeros(length, bool)

    def called(params: Any, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, row: cell.apply({"params": params}, h, row), begin, x)[1]

    def seconds(run: Any) -> float:
        compiled = jax.jit(jax.grad(lambda p, x: jnp.square(run(p, x)).sum(), (0, 1)))
        jax.block_until_ready(compiled(params, x))
        taken = []
        for _ in range(5):
            start = time.process_time()
            jax.block_until_ready(compiled(params, x))
            taken.append(time.process_time() - start)
        return min(taken)

    assert 2.0 * seconds(lambda p, x: gru_tape(p, x, starts, begin)[0]) < seconds(called)

"""The ring buffer against a deque."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts import replay

BLOCK, CAPACITY = 4, 7
ROW = {"tag": jax.ShapeDtypeStruct((), jnp.int32), "x": jax.ShapeDtypeStruct((2,), jnp.float32)}
add = jax.jit(replay.add)
sample = jax.jit(replay.sample, static_argnames="count")


def rows(tags: Any) -> dict:
    """Rows whose number is never zero, so that a row nobody wrote stands out."""
    tags = jnp.asarray(tags, jnp.int32)
    return {"tag": tags, "x": jnp.stack([tags, -tags], -1).astype(jnp.float32)}


def held(buffer: replay.Replay) -> list[int]:
    """Tags from the oldest to the newest."""
    size, tags = int(buffer.size), np.asarray(buffer.rows["tag"])
    return [int(tags[(int(buffer.next) - size + i) % buffer.capacity]) for i in range(size)]


@given(
    masks=st.lists(st.lists(st.booleans(), min_size=BLOCK, max_size=BLOCK), max_size=12),
    seed=st.integers(0, 2**31 - 1),
)
def test_the_buffer_is_a_deque(masks: list[list[bool]], seed: int) -> None:
    buffer, model = replay.create(ROW, CAPACITY), deque(maxlen=CAPACITY)
    for n, mask in enumerate(masks):
        tags = [BLOCK * n + i + 1 for i in range(BLOCK)]
        buffer = add(buffer, rows(tags), jnp.array(mask))
        model.extend(tag for tag, valid in zip(tags, mask, strict=True) if valid)
        assert held(buffer) == list(model)
    drawn = sample(buffer, jax.random.key(seed), count=64)
    if model:
        assert set(drawn["tag"].tolist()) <= set(model)
        np.testing.assert_array_equal(drawn["x"][:, 0], drawn["tag"])  # leaves stay aligned
        np.testing.assert_array_equal(drawn["x"][:, 1], -drawn["tag"])
    else:
        assert np.isnan(drawn["x"]).all() and not drawn["tag"].any()


@pytest.mark.parametrize("retained", [1, 3, 5])
def test_the_newest_rollouts_are_retained(retained: int) -> None:
    buffer = replay.create(ROW, retained * BLOCK)
    for n in range(1, 9):
        buffer = add(buffer, rows([n] * BLOCK))
        newest = range(max(1, n - retained + 1), n + 1)
        assert held(buffer) == [k for k in newest for _ in range(BLOCK)]


def test_draws_are_uniform_over_what_is_held() -> None:
    buffer = add(replay.create(ROW, CAPACITY), rows([1, 2, 3, 4]))
    counts = np.bincount(sample(buffer, jax.random.key(0), count=8000)["tag"], minlength=5)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], 2000, rtol=0.1)


def test_vmap_keeps_buffers_apart() -> None:
    empty = jax.vmap(lambda _: replay.create(ROW, CAPACITY))(jnp.arange(2))
    masks = jnp.array([[True] * BLOCK, [False, True, False, False]])
    both = jax.vmap(replay.add, (0, None, 0))(empty, rows([1, 2, 3, 4]), masks)
    assert both.size.tolist() == [4, 1] and both.rows["tag"][1, 0] == 2


def test_too_many_rows_and_too_small_a_buffer() -> None:
    with pytest.raises(ValueError, match="found 8, expected at most the capacity 7"):
        replay.add(replay.create(ROW, CAPACITY), rows(range(1, 9)))
    with pytest.raises(ValueError, match="capacity: found 0"):
        replay.create(ROW, 0)

"""The forms are one convolution, the table says what it should; how fast they are, no test asks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.speed.conv_forms import (
    FORMS,
    RATE,
    FormSizes,
    chosen,
    cpu_seconds,
    gradient_step,
    gradient_steps,
    make_layers,
    patches,
    time_forms,
)
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

TINY = FormSizes(points=(4, 6), channels=3, layers=2, batch=2, steps=2, repeats=2)


@dataclass(frozen=True)
class Config:
    """Of a run without settings."""


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.create(tmp_path, "forms", "smoke", Config(), ""), progress=False)


def fields() -> jax.Array:
    return jax.random.normal(jax.random.key(2), (2, 6, 6, 3))


@pytest.mark.parametrize("width", [1, 3, 5])
def test_patches_against_the_definition(width: int) -> None:
    rng = np.random.default_rng(0)
    x, kernel, bias = rng.normal(size=(6, 7, 2)), rng.normal(size=(width, width, 2, 4)), np.ones(4)
    expected = np.zeros((6, 7, 4)) + bias
    for r, c, i, j in np.ndindex(6, 7, width, width):
        at = (r + i - width // 2) % 6, (c + j - width // 2) % 7
        expected[r, c] += x[at] @ kernel[i, j]
    said = patches(jnp.asarray(x), {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)})
    np.testing.assert_allclose(said, expected, rtol=1e-4, atol=1e-4)


def test_every_form_takes_the_same_step() -> None:
    """Down the gradient, by itself and in a scan; `auto` is one of the forms."""
    params, x = make_layers(jax.random.key(0), TINY), fields()
    assert chosen() in FORMS

    def descended(after: list) -> np.ndarray:
        pairs = zip(*map(jax.tree.leaves, (params, after)), strict=True)
        return np.concatenate([np.ravel(a - b) / RATE for a, b in pairs])

    moved = params
    for by in range(3):
        moved = gradient_step("conv", moved, jnp.roll(x, by, 1))
    one, three = descended(gradient_step("conv", params, x)), descended(moved)
    assert min(np.abs(one).max(), np.abs(three - 3 * one).max()) > 0.01
    for form in FORMS:
        for said, expected in (
            (gradient_step(form, params, x), one),
            (gradient_steps(form, params, x, 3), three),
        ):
            np.testing.assert_allclose(descended(said), expected, atol=1e-5)


def test_a_row_for_every_grid_and_form(context: RunContext) -> None:
    rows = time_forms(context, TINY)
    at = [(row["grid"], row["form"]) for row in rows]
    assert at == [(grid, form) for grid in ("4 x 4", "6 x 6") for form in FORMS]
    for row in rows:
        assert row["in a scan, ms"] > 0 and row["alone, ms"] > 0 and row["compile s"] > 0
        assert row["scan / alone"] == pytest.approx(row["in a scan, ms"] / row["alone, ms"])
        assert (row["auto"] == "yes") == (row["form"] == chosen())
        points = int(row["grid"].split()[0])
        # Three passes of two layers; two operations for each of 9 x 3 x 3 weights at a point.
        work = 3 * 2 * 2 * 2 * points**2 * 81
        assert row["GFLOP/s"] == pytest.approx(work / row["in a scan, ms"] / 1e6)
    for grid in ("4 x 4", "6 x 6"):
        assert min(row["x fastest"] for row in rows if row["grid"] == grid) == 1.0


def test_cpu_seconds_do_not_count_waiting() -> None:
    assert cpu_seconds(lambda: time.sleep(0.2)) < 0.15


@pytest.mark.parametrize(("setting", "value"), [("layers", 0), ("width", 2)])
def test_sizes_are_checked(setting: str, value: int, context: RunContext) -> None:
    with pytest.raises(ConfigError, match=setting):
        time_forms(context, FormSizes(**{setting: value}))

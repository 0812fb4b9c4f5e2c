"""Training that becomes non-finite: what is said of it, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers_loop import given, run_context

from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.record import checkpoint


def explode(state: jax.Array, data: Any) -> tuple:
    """Seed s goes bad at its own time: `state` counts down to zero."""
    return state - 1, {"good": state, "bad": 1.0 / (state - 1), "worse": jnp.log(state - 2)}


def test_divergence_names_everything_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    options = dict(iterations=20, chunk=2, stage="fit", context=context, save_every_seconds=0.0)
    with pytest.raises(DivergenceError) as caught:
        train(explode, given, jnp.array([90.0, 7.0, 8.0]), **options)
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
        train(explode, given, jnp.array([1.5, 90.0]), iterations=2, chunk=2, stage="fit")


def test_metrics_must_be_scalars() -> None:
    with pytest.raises(ValueError, match=r"metric w: found shape \(2,\), expected a scalar"):
        train(lambda s, d: (s, {"w": s}), given, jnp.ones((3, 2)), iterations=1, stage="a")

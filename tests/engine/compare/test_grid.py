"""Arms side by side: numbers, divergence, and what a resumed run does not do again."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, run_grid, stage_name
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.statistics import Summary

SEEDS = 2
AXES = {"method": ("base", "ravl"), "penalty": (0.5, 2.0)}


def cell(method: str, penalty: float, stage: str) -> Cell:
    if (method, penalty) == ("base", 2.0):
        raise DivergenceError("loss is nan")
    return Cell(extra={"score": np.array([penalty, len(method)]), "what": np.ones((SEEDS, 3))})


def test_cells_come_in_the_order_of_the_product_and_know_where_they_are() -> None:
    grid = run_grid(AXES, cell, None, seeds=SEEDS)
    assert list(grid) == [("base", 0.5), ("base", 2.0), ("ravl", 0.5), ("ravl", 2.0)]
    np.testing.assert_array_equal(grid["ravl", 0.5]["score"], [0.5, 4.0])
    assert grid["ravl", 0.5].point == {"method": "ravl", "penalty": 0.5}
    np.testing.assert_array_equal(grid["ravl", 0.5]["what", :, 1:].mean(1), [1.0, 1.0])
    assert list(grid.at(penalty=0.5)) == ["base", "ravl"]  # one axis is left: no tuples
    np.testing.assert_array_equal(grid.at(method="ravl")[2.0]["score"], [2.0, 4.0])


def test_an_arm_that_diverges_is_nan_and_the_others_go_on() -> None:
    grid = run_grid(AXES, cell, None, seeds=SEEDS)
    lost = grid["base", 2.0]
    assert lost.diverged and lost["anything"].shape == (SEEDS,) and np.isnan(lost["score"]).all()
    assert lost["what", :, 1:].mean(1).shape == lost["what", :, 0].shape == (SEEDS,)
    steps, values = lost.curve("return")
    assert steps.shape == (0,) and values.shape == (SEEDS, 0)
    assert len(grid) == 4 and len(grid.trained) == 3


def test_rows_have_the_axes_and_the_columns() -> None:
    columns = {
        "score": "score",
        "doubled": lambda c: 2 * c["score"],
        "seconds": lambda c: 1.5,
        "of": lambda c: c.point["method"].upper(),
    }
    rows = run_grid(AXES, cell, None, seeds=SEEDS).rows(columns)
    assert [row["method"] for row in rows] == ["base", "base", "ravl", "ravl"]
    first = rows[0]
    assert list(first) == ["method", "penalty", "score", "doubled", "seconds", "of"]
    assert isinstance(first["score"], Summary) and first["score"].values == (0.5, 4.0)
    assert first["doubled"].values == (1.0, 8.0)
    assert (first["seconds"], first["of"]) == (1.5, "BASE")
    assert np.isnan(rows[1]["score"].values).all()


def test_some_points_of_the_product() -> None:
    points = [("ravl", 2.0), ("base", 0.5)]
    grid = run_grid(AXES, cell, None, seeds=SEEDS, points=points)
    assert list(grid) == points
    assert len(grid.at(penalty=2.0)) == 1


def test_what_is_not_there_is_named() -> None:
    one = Cell(extra={"score": np.ones(2)}, seeds=2)
    with pytest.raises(KeyError, match="score"):
        one["return"]


def test_what_is_measured_need_be_no_array_of_seeds() -> None:
    cell = Cell(extra={"seconds": 1.5, "error": np.arange(4.0)}, seeds=4)
    assert float(cell["seconds"]) == 1.5


def test_stages_are_plain_folder_names() -> None:
    assert (
        stage_name("oracle patch", "gymnax/Pendulum", 0.5, 3)
        == "oracle-patch-gymnax-Pendulum-0.5-3"
    )


def test_a_resumed_grid_trains_and_measures_nothing_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "e", "smoke", EnsembleConfig(), "command")
    context, measured = RunContext(folder, progress=False), []

    def init(start: jax.Array, data: tuple) -> jax.Array:
        return start

    def update(state: jax.Array, data: tuple) -> tuple[jax.Array, dict]:
        return state + 1.0, {"loss": state}

    def arm(start: float, stage: str) -> Cell:
        starts = start + jnp.arange(2.0)
        trained = train_loop(update, init, starts, iterations=3, stage=stage, context=context)

        def measure() -> dict:
            measured.append(stage)
            return {"at": trained.state, "shape": np.ones((2, 3))}

        return Cell.of(trained, {"name": stage}, measure=measure, per_iteration=5)

    def run() -> Cell:
        return run_grid({"start": (1.0, 4.0)}, arm, context, seeds=2, stage="arm")[4.0]

    first = run()
    np.testing.assert_array_equal(first["at"], [7.0, 8.0])
    np.testing.assert_array_equal(first["loss"], [6.0, 7.0])
    steps, values = first.curve("loss")
    np.testing.assert_array_equal(steps, [5, 10, 15])
    np.testing.assert_array_equal(values, [[4.0, 5.0, 6.0], [5.0, 6.0, 7.0]])
    again = run()
    np.testing.assert_array_equal(again["at"], first["at"])
    assert again["shape"].shape == (2, 3)
    assert again.extra["name"] == "arm-4"
    assert measured == ["arm-1", "arm-4"]
    assert (folder.path / "arm-1" / "measured.npz").exists()

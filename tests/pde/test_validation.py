"""The error while training and its best weights; fields left on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde import streaming
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.fieldset import take_trajectories
from jaxrl_rollouts.pde.files import read, write_well
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.generate import Solved
from jaxrl_rollouts.pde.streaming import deviation
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

N = 8


def doubling(count: int, factor: float) -> np.ndarray:
    """`[count, 5, N]`, every frame `factor` times the one before."""
    first = np.random.default_rng(count).normal(size=(count, 1, N))
    return first * factor ** np.arange(5.0)[:, None]


def gain() -> FieldNetwork:
    """One number times the field."""
    return FieldNetwork(lambda key: jnp.zeros(()), lambda p, u, noised, t, c: p * u)


# The weight goes from zero past 0.05 to that of the training set, 0.2, in units of the scale.
TRAINING = pde.Training(
    steps=60, batch=8, lr=0.05, final_lr=0.05, warmup=0, average=0.0, per_iteration=3
)


def test_the_best_weights_are_kept_and_the_curve_is_in_the_history() -> None:
    fields = pde.from_arrays(doubling(6, 1.2))
    other = pde.from_arrays(doubling(4, 1.05))
    fitted = pde.fit(
        "mse", fields, network=gain(), training=TRAINING, validation=other, evaluations=20, seeds=2
    )
    at, errors = fitted.history.curve("validation_error")
    assert errors.shape == (20, 2) and list(at)[-1] == 20
    best = int(errors[:, 0].argmin())
    assert 0 < best < 19  # it falls, and rises again
    scale: Any = fitted.emulator.scale
    assert float(fitted.params[0]) * scale == pytest.approx(0.05, abs=0.03)
    assert float(fitted.trained.state.average[0]) * scale > 0.12
    # What is in the history is the error of steps on those trajectories, in training units.
    factor = fitted.emulator.units[0].factor
    wrong = fitted.roll(doubling(4, 1.05)[:, :4].reshape(-1, N), 1)[0, :, 0]
    exact = np.sqrt(np.square(wrong - doubling(4, 1.05)[:, 1:].reshape(-1, N)).mean()) * factor
    assert float(errors[best, 0]) == pytest.approx(exact, rel=1e-3)
    plain = pde.fit("mse", fields, network=gain(), training=TRAINING, seeds=2)
    jax.tree.map(
        np.testing.assert_array_equal, plain.trained.state.average, fitted.trained.state.average
    )


def test_a_resumed_training_keeps_its_best_weights(tmp_path: Path) -> None:
    fields, other = pde.from_arrays(doubling(6, 1.2)), pde.from_arrays(doubling(4, 1.05))

    def fitted() -> Any:
        context = RunContext(RunFolder.at(tmp_path / "run", "gain"), progress=False)
        return pde.fit(
            "mse", fields, network=gain(), training=TRAINING, validation=other, context=context
        ).params

    np.testing.assert_array_equal(fitted(), fitted())


def test_other_fields_are_refused() -> None:
    fields = pde.from_arrays(doubling(6, 1.2))
    for other, words in (
        (pde.from_arrays(np.ones((2, 5, 4)).cumsum(1)), "channels, points: found"),
        (pde.from_arrays(doubling(6, 1.2)[:, :1]), "frames: found 1, expected more than 1"),
    ):
        with pytest.raises(DataError, match=words):
            pde.fit("mse", fields, network=gain(), training=TRAINING, validation=other)
    assert take_trajectories(fields, slice(0, 2)).shape[0] == 2


def test_arrays_and_files_are_taken_as_fields_are(tmp_path: Path) -> None:
    u = doubling(6, 1.2)
    other = doubling(4, 1.05)
    np.save(tmp_path / "other.npy", other)
    curves = [
        pde.fit("mse", u, network=gain(), training=TRAINING, validation=given).history
        for given in (pde.from_arrays(other), other, tmp_path / "other.npy")
    ]
    found = [np.asarray(curve.curve("validation_error")[1]) for curve in curves]
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


NET = tiny()


@pytest.mark.slow
def test_an_emulator_learns_the_same_from_a_file_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_ROWS", str(tmp_path / "rows"))
    monkeypatch.setattr(streaming, "_AT_ONCE", 4 * 10 * 2 * 8 * 2)  # two trajectories
    rng = np.random.default_rng(0)
    values = rng.normal((100, -1), (30, 0.1), (7, 10, 8, 2)).swapaxes(2, 3)
    path = tmp_path / "well.hdf5"
    write_well(path, [Solved(values, *np.full((2, 7), 8.0), np.arange(7.0))], channels=("u", "v"))
    found = read(path)
    assert found.layout == "The Well"
    config = Training(batch=3, warmup=2)
    options = {"network": NET, "history": 2, "stride": 2, "steps": 6, "seeds": 3}
    memory, disk = (
        fit("mse", found, training=config, stream=stream, **options)
        for stream in ("never", "always")
    )
    assert memory.emulator.units == disk.emulator.units
    assert memory.emulator.objective == disk.emulator.objective
    for one, other in zip(*(jax.tree.leaves(f.params) for f in (memory, disk)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(list((tmp_path / "rows").glob("*.npy"))) == 1


def test_deviation_is_that_of_all_parts_together() -> None:
    values = np.random.default_rng(1).normal(50, 3, (9, 4, 2, 5)).astype(np.float32)
    parts = (values[part] for part in (slice(0, 2), slice(2, 3), slice(3, 9)))
    mean, std = deviation(parts, (0, 1, 3))
    np.testing.assert_allclose(mean, values.mean((0, 1, 3), np.float64), rtol=1e-12)
    np.testing.assert_allclose(std, values.std((0, 1, 3), dtype=np.float64), rtol=1e-10)

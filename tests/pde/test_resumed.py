"""Trainings go on from their checkpoints as long as they are asked for what those were of."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.pde.fieldset import FieldSet, Scaling
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.objectives import Refiner
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.pde.units import rounded
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.trees import PyTree

N = 8
NET = tiny()
QUICK = Training(steps=2, batch=2, warmup=0, per_iteration=1)
U = np.random.default_rng(0).normal(size=(4, 6, 1, N)).cumsum(1).astype(np.float32)


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.at(tmp_path / "run", "waves"), progress=False)


def fitted(context: RunContext | None, objective: Any = "refiner", **changes: Any) -> PyTree:
    """Weights on waves between walls that see a parameter from 1 to 2."""
    given: Any = {"dt": 0.5, "boundaries": "wall", "conditions": {"nu": np.linspace(1, 2, 4)}}
    options: Any = {"network": NET, "training": QUICK}
    for name, value in changes.items():
        (given if name in given else options)[name] = value
    return fit(objective, from_arrays(U, **given), context=context, **options).params


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training's run, which is refused before anything is written to it."""
    folder = RunFolder.at(tmp_path_factory.mktemp("begun") / "run", "waves")
    fitted(RunContext(folder, progress=False))
    return folder.path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"boundaries": "open"}, r"boundaries: found a training with \['wall'\]"),
        ({"conditions": {"nu": np.linspace(9, 3, 4)}}, r"conditions: .*\[1.0, 10.0\].*\[3.0, 1.6"),
        ({"stride": 2}, r"training.stride: found a training with 1, expected 2"),
        ({"objective": Refiner(min_noise_variance=1e-3)}, r"objective.min_noise_variance"),
        ({"objective": "mse"}, r"kind of objective: .*'Refiner', expected 'Mse'"),
        ({"network": replace(NET, dilations=(2,))}, r"network.dilations: .*\[1\], expected \[2\]"),
        ({"objective": Refiner(sampler="renoise")}, "objective.sampler"),
        ({"training": replace(QUICK, lr=1e-4)}, "training.lr"),
    ],
)
def test_a_fit_with_another_setting_is_refused_by_name(
    begun: Path, changes: dict, named: str
) -> None:
    context = RunContext(RunFolder.open(begun), progress=False)
    with pytest.raises(CheckpointError, match=named):
        fitted(context, **changes)


def of_file(name: str, u: np.ndarray) -> FieldSet:
    """Fields of a file of their own: they are held against no other's."""
    return from_arrays(u, source=name)._replace(constant=tuple(range(1, u.shape[2])))


def test_units_and_constant_channels_are_asked_too(context: RunContext) -> None:
    still = np.concatenate([U, np.broadcast_to(U[:, :1], U.shape)], 2)
    more = np.concatenate([U, np.broadcast_to(3 * U[:, :1], U.shape)], 2)
    for stage, one, other, named in (("a", U, 2 * U, "units"), ("b", still, more, "constant")):
        learn = functools.partial(
            fit, "mse", network=NET, training=QUICK, stage=stage, context=context
        )
        learn(of_file("one", one))
        with pytest.raises(CheckpointError, match=f"{named}: found a training with"):
            learn(of_file("other", other))


def test_measured_numbers_may_differ_in_their_last_bits() -> None:
    one, other = Scaling(300.0, 1 / 35), Scaling(300.0 * (1 + 1e-13), (1 + 1e-13) / 35)
    assert rounded(one) == rounded(other) != rounded(Scaling(300.001, 1 / 35))
    # A mean that is zero but for rounding.
    assert rounded(Scaling(3e-17, 1.0)) == rounded(Scaling(-2e-17, 1.0)) == [0.0, 1.0]


def test_other_conditions_are_refused(context: RunContext) -> None:
    more = {"conditions": {"nu": np.linspace(1, 2, 4), "mu": np.linspace(1, 2, 4)}}
    fitted(context, **more)
    with pytest.raises(CheckpointError, match="conditions"):
        fitted(context, conditions={"mu": np.linspace(1, 3, 4), "nu": np.linspace(1, 2, 4)})


def test_a_network_of_ones_own_is_named_by_its_settings(context: RunContext) -> None:
    fit("mse", U, network=Pointwise(1.0), training=QUICK, context=context, stage="own")
    again = fit("mse", U, network=Pointwise(1.0), training=QUICK, context=context, stage="own")
    assert len(again.history.curve("loss")[0]) == 2
    with pytest.raises(CheckpointError, match=r"kind of network: .*slope = 1.0.*slope = 2.0"):
        fit("mse", U, network=Pointwise(2.0), training=QUICK, context=context, stage="own")


class Pointwise(nn.Module):
    """Dense layers at every point."""

    slope: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(1)(nn.tanh(self.slope * nn.Dense(3)(x)))

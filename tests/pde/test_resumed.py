"""Trainings go on from their checkpoints as long as they are asked for what those were of."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.pde.fieldset import Fields, FieldSet, Scaling
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fit import fit
from jaxrl_rollouts.pde.objectives import OneStepConfig
from jaxrl_rollouts.pde.objectives.refiner import Refiner, make_refiner
from jaxrl_rollouts.pde.operators import Resnet
from jaxrl_rollouts.pde.study import fit as fitting
from jaxrl_rollouts.pde.study import train as studying
from jaxrl_rollouts.pde.train import StudyConfig, make_emulator, make_network, train_emulator
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.pde.units import _rounded
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.about import ABOUT
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.trees import PyTree

N = 8
NET = Resnet(width=4, blocks=1, dilations=(1,), embedding=4)
QUICK = Training(steps=2, batch=2, warmup=0, per_iteration=1)
STUDY = StudyConfig(seeds=1, points=N, stride=1, resnet=NET, training=QUICK)
U = np.random.default_rng(0).normal(size=(4, 6, 1, N)).cumsum(1).astype(np.float32)


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(RunFolder.at(tmp_path / "run", "waves"), progress=False)


def told_less(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
    """Trainings of a module say of themselves what earlier versions did: `names`."""
    train = module.train

    def earlier(*args: Any, about: Any, **options: Any) -> Any:
        return train(*args, about={name: about[name] for name in names}, **options)

    monkeypatch.setattr(module, "train", earlier)


def fitted(context: RunContext | None, objective: Any = "refiner", **changes: Any) -> PyTree:
    """Weights on waves between walls that are told a parameter from 1 to 2."""
    given: Any = {"dt": 0.5, "boundaries": "wall", "conditions": {"nu": np.linspace(1, 2, 4)}}
    options: Any = {"network": NET, "training": QUICK}
    for name, value in changes.items():
        (given if name in given else options)[name] = value
    return fit(objective, from_arrays(U, **given), context=context, **options).params


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"boundaries": "open"}, r"boundaries: found a training with \['wall'\]"),
        ({"conditions": {"nu": np.linspace(9, 3, 4)}}, r"conditions: .*\[1.0, 10.0\].*\[3.0, 1.6"),
        ({"every": 2}, r"training.every: found a training with 1, expected 2"),
        ({"objective": Refiner(min_noise_variance=1e-3)}, r"objective.min_noise_variance"),
        ({"objective": "mse"}, r"kind of objective: .*'Refiner', expected 'OneStepConfig'"),
        ({"network": replace(NET, dilations=(2,))}, r"network.dilations: .*\[1\], expected \[2\]"),
    ],
)
def test_a_fit_with_another_setting_is_refused_by_name(
    context: RunContext, changes: dict, named: str
) -> None:
    fitted(context)
    with pytest.raises(CheckpointError, match=named):
        fitted(context, **changes)


def of_file(name: str, u: np.ndarray) -> FieldSet:
    """Fields of a file of their own: nobody holds them against another's."""
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
    assert _rounded(one) == _rounded(other) != _rounded(Scaling(300.001, 1 / 35))
    # A mean that is zero but for rounding.
    assert _rounded(Scaling(3e-17, 1.0)) == _rounded(Scaling(-2e-17, 1.0)) == [0.0, 1.0]


def test_a_fit_goes_on_from_a_record_of_before(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That said the objective, the network, the training and the history, and nothing else."""
    with monkeypatch.context() as earlier:
        told_less(earlier, fitting, "objective", "network", "training", "history")
        first = fitted(context)
    assert written(context, "emulator").keys() >= {"objective.residual_scale", "network.width"}
    assert not written(context, "emulator").keys() & {"boundaries", "units", "kind of network"}
    jax.tree.map(np.testing.assert_array_equal, first, fitted(context))
    with pytest.raises(CheckpointError, match="objective.steps: found a training with 3"):
        fitted(context, Refiner(steps=2))


def written(context: RunContext, stage: str) -> dict[str, Any]:
    """What the checkpoint of a stage says it is of."""
    return json.loads(checkpoint.text(context.folder.stage(stage), QUICK.updates, ABOUT) or "")


def studied(context: RunContext, refiner: Refiner | None = None, **changes: Any) -> PyTree:
    """Weights of a study of refiners, some of whose settings are `changes`."""
    study = replace(STUDY, **changes)
    emulator = make_emulator("refiner", study, refiner)
    data = Fields(jnp.asarray(U), jnp.zeros((len(U), len(study.conditions))))
    return train_emulator("refiner", emulator, study, data, context).state.average


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"refiner": Refiner(min_noise_variance=1e-3)}, "objective.min_noise_variance"),
        ({"refiner": Refiner(sampler="renoise")}, "objective.sampler"),
        ({"every": 2}, "every: found a training with 1, expected 2"),
        ({"resnet": replace(NET, dilations=(2,))}, "network.dilations"),
    ],
)
def test_a_study_with_another_setting_is_refused_by_name(
    context: RunContext, changes: dict, named: str
) -> None:
    studied(context)
    with pytest.raises(CheckpointError, match=named):
        studied(context, **changes)


def test_other_conditions_of_a_study_are_refused(context: RunContext) -> None:
    studied(context, conditions=("dt",))
    with pytest.raises(CheckpointError, match=r"conditions: .*\['dt'\], expected \['dx'\]"):
        studied(context, conditions=("dx",))


def test_a_study_goes_on_from_a_record_of_before(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That said the training alone, whose own `every` was not the study's."""
    with monkeypatch.context() as earlier:
        told_less(earlier, studying, "training")
        first = studied(context, stride=2)
    said = written(context, "refiner")
    assert said["training.every"] == 1 and "every" not in said
    jax.tree.map(np.testing.assert_array_equal, first, studied(context, stride=2))


def test_what_another_emulator_was_made_with_is_said() -> None:
    study = replace(STUDY, residual_scale=0.5)
    first = make_emulator("mse", study)
    net = make_network(study)
    about = dict(make_refiner(net, Refiner(), after=first).about)
    assert about["after.objective"] == OneStepConfig(residual_scale=0.5)
    assert about["after.network"] == about["network"] == NET
    assert about["kind of objective"] == "Refiner"

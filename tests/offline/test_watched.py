"""A training that is watched: progress, evaluations as they come, and what results print as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import CheckpointError, DivergenceError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents.td3_bc import Td3Bc
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.job import train
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics
from jaxrl_rollouts.offline.worlds.exact import true_dynamics

LOOKS: dict[str, Any] = {"seeds": 2, "evaluations": 1, "episodes": 2}
SMALL = Td3Bc(hidden_dims=(8,), batch_size=16, steps=8, per_iteration=2)


def dataset() -> Dataset:
    made = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", made, "pendulum", Path("(made)"), "")


def test_evaluations_are_seen_as_they_come() -> None:
    seen: list[tuple[int, np.ndarray]] = []
    rows = dataset()
    options = LOOKS | {"evaluations": 2}
    result = train(
        rows,
        SMALL,
        **options,
        on_evaluation=lambda step, found: seen.append((step, found["return"])),
    )
    assert [step for step, _ in seen] == [4, 8]
    assert (seen[-1][1] == result.returns).all()
    policy = "Policy(td3_bc trained on pendulum-mixed, seed 1 of 2: 3 observation entries, 1 action"
    assert repr(result.policy(1)).startswith(policy)
    earned = rows.transitions.rewards.astype(float).reshape(3, 200).sum(1)
    shown = f"return {earned.mean():,.4g} ({earned.min():,.4g} to {earned.max():,.4g})"
    assert f"600 rows, 3 episodes, {shown}" in repr(rows)


def test_progress_leaves_nothing_behind_and_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    silent = train(dataset(), SMALL, **LOOKS)
    assert not capsys.readouterr().err
    shown = train(dataset(), SMALL, **LOOKS, progress=True)
    assert "pendulum-mixed-td3-bc: 100% 8/8" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert (shown.returns == silent.returns).all()


def shifted() -> Dynamics:
    """The simulator with `params` added to its rewards: NaN spoils one seed alone."""
    truth = true_dynamics(make("pendulum"))

    def step(params: Any, key: Any, state: Any, action: Any, members: Any) -> Any:
        following, out = truth.model.step((), key, state, action, members)
        return following, out._replace(reward=out.reward + params)

    return truth._replace(model=truth.model._replace(step=step))


@pytest.mark.filterwarnings("ignore:stage pendulum")
def test_a_seed_that_diverges_costs_itself_alone() -> None:
    method = recipe("base", "smoke", dataset(), steps=40)
    given: dict[str, Any] = dict(LOOKS, dynamics=shifted())
    whole = train(dataset(), method, **given, world_models=np.zeros(2, np.float32))
    spoiled = np.array([0.0, np.nan], np.float32)
    result = train(dataset(), method, **given, world_models=spoiled)
    assert list(result.trained.diverged) == [1]
    assert result.returns[0] == whole.returns[0] and np.isnan(result.returns[1])
    for a, b in zip(*(jax.tree.leaves(r.actor(0)) for r in (result, whole)), strict=True):
        np.testing.assert_array_equal(a, b)
    # Nor is what stands in for it in an evaluation taken for its best policy.
    assert result.best is not None and np.isnan(result.best.returns[1])
    assert result.best.returns[0] == whole.returns[0]
    with pytest.raises(CheckpointError, match="diverged; take another seed"):
        result.policy(1, best=True)
    assert np.isfinite(result.policy(0, best=True)(np.zeros(3))).all()
    with pytest.raises(CheckpointError, match="diverged; take another seed"):
        result.policy(1)
    with pytest.raises(DivergenceError, match="seed 1"):
        train(dataset(), method, **given, world_models=spoiled, on_divergence="raise")
    with pytest.raises(DivergenceError):
        train(dataset(), method, **given, world_models=np.full(2, np.nan, np.float32))


@pytest.mark.parametrize(
    ("name", "part"), [("mopo", "fit"), ("mopo", "endings"), ("neubay", "fit")]
)
@pytest.mark.filterwarnings("ignore:stage pendulum")
def test_a_world_that_diverges_costs_its_own_seed_alone(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its learned termination."""
    data, more = dataset(), {}
    if name == "neubay":
        more = {"world": {"ensembles": 2}}
    if part == "endings":
        rows = data.transitions
        ending = rows._replace(terminations=np.arange(600) % 200 == 199)
        data = replace(data, transitions=ending)
        more = {"world": {"termination": "learned", "ending": {"steps": 4, "per_iteration": 2}}}
    method = recipe(name, "smoke", data, steps=40, **more)

    def begun_at(value: float) -> Any:
        """The loop, with all parameters of the second world at this value."""

        def loop(update: Any, init: Any, keys: Any, data: Any, **more: Any) -> Any:
            second = jax.random.key_data(keys[1])

            def begin(key: Any, data: Any) -> Any:
                spoiled, state = (jax.random.key_data(key) == second).all(), init(key, data)
                own = jax.tree.map(lambda x: jnp.where(spoiled, value, x), state.params)
                return state._replace(params=own)

            return train_loop(update, begin, keys, data, **more)

        return loop

    results = []
    for value in (0.01, float("nan")):  # of one program but for this constant
        monkeypatch.setattr(f"jaxrl_rollouts.offline.worlds.{part}.train_loop", begun_at(value))
        results.append(train(data, method, **LOOKS))
    whole, result = results
    assert not whole.trained.diverged and list(result.trained.diverged) == [1]
    assert result.returns[0] == whole.returns[0] and np.isnan(result.returns[1])
    for a, b in zip(*(jax.tree.leaves(r.actor(0)) for r in (result, whole)), strict=True):
        np.testing.assert_array_equal(a, b)

"""The top floor: a dataset and a method in, a trained policy out; methods of other packages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import StopAt
from helpers_train import FITTED_FIRST, LOOKS, WORLD, changes, dataset, train

from jaxrl_rollouts.errors import CheckpointError, ConfigError, Interrupted
from jaxrl_rollouts.offline.agents.bc import Bc
from jaxrl_rollouts.offline.agents.td3_bc import Td3Bc
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.loaded_run import load_run
from jaxrl_rollouts.offline.method import Job, Method
from jaxrl_rollouts.offline.methods import METHODS
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.recipes import PRESETS, recipe
from jaxrl_rollouts.offline.result import TrainResult
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.offline.task import Task
from jaxrl_rollouts.offline.worlds.dynamics import predict
from jaxrl_rollouts.offline.worlds.endings import TerminationConfig
from jaxrl_rollouts.offline.worlds.exact import true_dynamics
from jaxrl_rollouts.offline.worlds.fit import WorldModelConfig
from jaxrl_rollouts.offline.worlds.saved import load_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

SMALL = Td3Bc(
    hidden_dims=(8,), batch_size=16, steps=8, per_iteration=2, actor_lr=1e-3, critic_lr=1e-3
)


def run_of(folder: RunFolder, stop: Any = None) -> RunContext:
    return RunContext(folder, False, stop=stop) if stop else RunContext(folder, progress=False)


# Each stands for a kind; `test_learners` asks every learner whether it resumes to the bit.
KINDS = ("mopo", "admpo", "iql", "neubay", "synther", "pgd", "planner")
CASES = [(name, "smoke") for name in METHODS]
CASES += [(name, preset) for name in ("ravl", "iql") for preset in PRESETS if preset != "smoke"]


def marks(name: str, preset: str) -> Any:
    return () if name in KINDS and preset == "smoke" else pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "preset"), [pytest.param(*case, marks=marks(*case)) for case in CASES]
)
def test_every_method_trains_saves_loads_and_resumes(
    name: str, preset: str, tmp_path: Path
) -> None:
    """A few gradient steps; what is loaded acts to the bit, and a second call trains nothing."""
    folder = RunFolder.create(tmp_path, "toy", "test", SMALL, "nothing")
    options = {"preset": preset, "context": run_of(folder), **LOOKS, **changes(name)}
    result = train(dataset(), name, **options)
    steps = recipe(name, "smoke").steps if name in FITTED_FIRST else 2
    assert (result.method.name, result.preset, result.steps) == (name, preset, steps)
    assert result.returns.shape == (2,) and np.isfinite(result.returns).all()
    env = make("pendulum")  # what acts is given raw observations, also with a memory
    seen = np.asarray(env.observe(env.reset(jax.random.key(1), 3)))
    loaded = load_policy(folder.path, 1)
    np.testing.assert_array_equal(loaded(seen), result.policy(1)(seen))
    again = train(dataset(), name, **options)
    for a, b in zip(jax.tree.leaves(again.actors), jax.tree.leaves(result.actors), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_comes_out_acts_and_is_saved(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "toy", "test", SMALL, "nothing")
    result = train(dataset(), SMALL, evaluations=2, episodes=2, context=run_of(folder))
    shapes = {result.returns.shape, result.true_value.shape, result.estimated_value.shape}
    assert shapes == {(2,)}
    assert result.history.curve("return")[0].tolist() == [2, 4]
    seen = np.asarray(result.env.observe(result.env.reset(jax.random.key(1), 3)))
    actor = jax.tree.map(lambda x: x[1], result.actors)
    unit, _ = result.agent.greedy(actor, jax.random.key(0), seen, result.agent.memory(3))
    action = load_policy(folder.path, 1)(seen)
    np.testing.assert_allclose(action, 2.0 * np.asarray(unit), rtol=1e-6)  # torque of up to 2
    # In memory, without a run, it is the same to the bit, and so is what it saves elsewhere.
    alone = train(dataset(), SMALL, evaluations=2, episodes=2)
    np.testing.assert_array_equal(alone.returns, result.returns)
    for best in (False, True):
        again = load_policy(alone.save(tmp_path / "elsewhere"), 1, best=best)(seen)
        np.testing.assert_array_equal(alone.policy(1, best=best)(seen), again)
        np.testing.assert_array_equal(load_policy(folder.path, 1, best=best)(seen), again)
    run = load_run(folder.path)
    assert run.history.text == result.history.text and run.report is None
    np.testing.assert_array_equal(run.returns, result.returns)
    for best in (False, True):
        acted = run.policy(1, best=best)(seen)
        np.testing.assert_array_equal(acted, result.policy(1, best=best)(seen))
    with pytest.raises(CheckpointError, match="found no trained policy"):
        load_run(RunFolder.create(tmp_path / "not", "toy", "test", SMALL, "nothing").path)


def test_the_best_policies_are_kept_also_by_a_run_that_was_cut(tmp_path: Path) -> None:
    """Every seed's own; the run stops after iterations 1 and 3 of 4, evaluating after each."""
    looks = {"evaluations": 4, "episodes": 2}
    whole = train(dataset(), SMALL, **looks)
    returns = whole.history.curve("return")[1]
    best = whole.best
    np.testing.assert_array_equal(best.returns, returns.max(0))
    np.testing.assert_array_equal(best.iterations, 1 + returns.argmax(0))
    folder = RunFolder.create(tmp_path, "toy", "test", SMALL, "nothing")
    for count in (1, 2):
        with pytest.raises(Interrupted):
            train(dataset(), SMALL, **looks, context=run_of(folder, StopAt(count)))
    for _ in range(2):  # what goes on, and what finds everything done
        resumed = train(dataset(), SMALL, **looks, context=run_of(folder))
        jax.tree.map(np.testing.assert_array_equal, resumed.best, best)
    facts = read_policy(folder.path, best=True).facts
    assert facts["iterations"] == best.iterations.tolist() and "optimistic" in facts["selection"]
    kept = read_policy(folder.path, best=True).actors
    jax.tree.map(np.testing.assert_array_equal, kept, best.actors)


def test_a_result_says_what_it_is(tmp_path: Path) -> None:
    result = train(dataset(), "td3_bc", preset="small", **LOOKS, **changes("td3_bc"))
    text = repr(result)
    assert text.startswith("TrainResult(td3_bc on pendulum-mixed, preset small, 2 gradient steps")
    assert "steps 2 (paper 1,000,000)" in text and "hidden_dims (8,) (paper (256, 256))" in text
    assert result.score is None and "score" not in text, "Pendulum has no reference returns"
    assert len(text) < 600 and "nan" not in text
    hopper = result.source.dataset
    named = result._replace(
        source=Task(replace(hopper, name="hopper-medium-v2"), result.source.env),
        returns=np.array([-20.272305, 3234.3]),
    )
    assert named.score is None, "played in a pendulum, whatever the data are called"
    played = named._replace(env=result.env._replace(name="mujoco/Hopper-v4"))
    np.testing.assert_allclose(played.score, [0.0, 100.0], atol=1e-4)


def test_world_models_are_saved_with_the_result(tmp_path: Path) -> None:
    ending = TerminationConfig(hidden_dims=(4,), steps=2, per_iteration=2)
    config = WorldModelConfig(**WORLD, shared=True, termination="learned", ending=ending)
    world = config.fit(Task(dataset(), make("pendulum")), 2, 0, None)
    world.save_worlds(tmp_path / "worlds")
    loaded = load_worlds(tmp_path, dataset())
    assert loaded.stats is None and loaded.config == config.ensemble
    jax.tree.map(np.testing.assert_array_equal, loaded.worlds, world.fitted.worlds)


def test_steps_are_rounded_to_whole_iterations() -> None:
    """Evaluations do not divide, and are rounded as well."""
    result = train(dataset(), SMALL, steps=9, evaluations=3, episodes=2)
    assert (result.steps, result.per_iteration) == (8, 2)
    assert result.history.curve("return")[0].tolist() == [1, 3, 4]
    other = train(dataset(), replace(SMALL, alpha=0.0), steps=9, evaluations=3, episodes=2)
    assert (other.returns != result.returns).any()


class Limited(NamedTuple):
    """Parameters of dynamics whose rollouts stop at an uncertainty."""

    uncertainty_threshold: jax.Array


@pytest.mark.parametrize("name", [n for n in METHODS if n not in (*FITTED_FIRST, "admpo")])
@pytest.mark.parametrize("steps", [1, 130, 1240])
def test_steps_are_gradient_steps_of_every_method(name: str, steps: int) -> None:
    method = recipe(name, "small", steps=steps)
    truth = true_dynamics(make("pendulum"))._replace(measured=True)
    given = Job(dynamics=truth, world_models=Limited(jnp.ones(2)))
    job = given if method.imagines else Job()
    made = method.prepare(Task(dataset(), make("pendulum")), job)
    per = made.learner.per_iteration
    assert made.iterations >= 1 and abs(made.iterations * per - steps) <= max(per / 2, 1)


def test_cloning_has_no_estimated_value() -> None:
    result = train(
        dataset(), Bc(hidden_dims=(8,), steps=4, per_iteration=2), evaluations=1, episodes=2
    )
    assert result.estimated_value is None and result.returns.shape == (2,)
    assert all("estimated_value" not in record.metrics for record in result.history.records)


def test_dynamics_are_for_methods_that_roll_them() -> None:
    with pytest.raises(ConfigError, match="dynamics: found 'given', expected none for td3_bc"):
        train(dataset(), SMALL, dynamics=true_dynamics(make("pendulum")))


def test_a_method_is_trained_in_given_dynamics() -> None:
    truth = true_dynamics(make("pendulum"))
    result = train(dataset(), "base", preset="smoke", dynamics=truth, **LOOKS, **changes("base"))
    assert isinstance(result.source, Task) and result.returns.shape == (2,)


def test_a_penalty_in_units_of_the_mean_uncertainty_of_the_data() -> None:
    method = recipe("mopo", "smoke", penalty_scale="mean", world=WORLD)
    task = Task(dataset(), make("pendulum"))
    _, _, found, fitted = method.rolled_models(task, Job())
    rows = task.dataset.transitions
    for seed in range(2):
        one, fitter = fitted.fitted.world(seed), fitted.fitted.model.fitter
        std = predict(fitter, one, rows.observations, rows.actions, "members").std
        want = np.linalg.norm(np.asarray(std), axis=-1).max(0).mean()
        np.testing.assert_allclose(found[seed], want, rtol=1e-3)


def test_a_reward_view_is_that_of_the_world_model_too() -> None:
    """Scaled by ten, the models predict ten times the rewards."""
    task, world = Task(dataset(), make("pendulum")), recipe("base", "smoke").world
    method = recipe("base", "smoke", world=WORLD, reward=(10.0, 0.0))
    made = method.prepare(task, Job())
    rows = task.dataset.transitions
    np.testing.assert_allclose(made.data.real.rewards, 10 * rows.rewards, rtol=1e-6)
    np.testing.assert_allclose(
        made.source.fitted.model.targets.std[-1], 10 * rows.rewards.std(), rtol=1e-4
    )
    assert made.source.dataset is task.dataset and made.reward.scale == 10.0
    with pytest.raises(ConfigError, match="reward: .*raw: dynamics of your own"):
        method.prepare(task, Job(dynamics=true_dynamics(make("pendulum"))))
    assert world.targets == "change"


def test_another_setting_is_another_training(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "toy", "test", SMALL, "nothing")
    looks: dict[str, Any] = {"evaluations": 2, "episodes": 2, "context": run_of(folder)}
    first = train(dataset(), SMALL, **looks)
    with pytest.raises(CheckpointError, match=r"td3_bc\.alpha: .* with 2.5, expected 7"):
        train(dataset(), replace(SMALL, alpha=7.0), **looks)
    with pytest.raises(CheckpointError, match=r"td3_bc\.per_iteration: .* with 2, expected 1"):
        train(dataset(), replace(SMALL, per_iteration=1, policy_freq=1), **looks)
    np.testing.assert_array_equal(train(dataset(), SMALL, **looks).returns, first.returns)
    longer = train(dataset(), SMALL, steps=16, **looks | {"evaluations": 4})
    alone = train(dataset(), SMALL, steps=16, evaluations=4, episodes=2)
    assert longer.steps == 16
    np.testing.assert_array_equal(longer.returns, alone.returns)


@dataclass(frozen=True, kw_only=True)
class Pessimist(Mopo):
    """MOPO with the square of its uncertainty: a method of a notebook."""

    name: ClassVar[str] = "pessimist"

    def rows(self, trajectory: Any, world: Any) -> Any:
        steps = trajectory.steps
        squared = steps._replace(uncertainties=steps.uncertainties**2)
        return super().rows(trajectory._replace(steps=squared), world)


def test_a_method_of_ones_own_trains() -> None:
    method = Pessimist(**recipe_of("mopo"), penalty=2.0)
    result = train(dataset(), method, **LOOKS)
    assert isinstance(result, TrainResult) and result.method.name == "pessimist"
    mopo = train(dataset(), Mopo(**recipe_of("mopo"), penalty=2.0), **LOOKS)
    ours, theirs = (np.asarray(r.trained.state.imagined.rows.rewards) for r in (result, mopo))
    assert (ours != theirs).any()


def recipe_of(name: str) -> dict[str, Any]:
    made = recipe(name, "smoke", **changes(name))
    return {f: getattr(made, f) for f in ("agent", "world", "rollouts", "steps", "batch_size")}


def test_a_method_is_a_subclass_that_prepares() -> None:
    with pytest.raises(NotImplementedError):
        Method.prepare(SMALL, Task(dataset(), make("pendulum")), Job())

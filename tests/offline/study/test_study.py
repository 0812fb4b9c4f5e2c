"""The top floor: a dataset and a name of a method in, a trained policy out; methods of others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError, Interrupted
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.methods.mopo import mopo
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.offline.study import (
    METHODS,
    Budget,
    Td3Bc,
    small_budget,
    train,
)
from jaxrl_rollouts.offline.study.model_based import (
    fit_dataset,
    on_data,
    train_model_based,
)
from jaxrl_rollouts.offline.study.model_free import ModelFreeStudyConfig, cadence
from jaxrl_rollouts.offline.synthetic.synthesis import small_synthetic
from jaxrl_rollouts.offline.worlds.blend import true_dynamics
from jaxrl_rollouts.offline.worlds.dynamics import predict
from jaxrl_rollouts.offline.worlds.endings import TerminationConfig
from jaxrl_rollouts.offline.worlds.saved import load_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

AGENTS = quick_agents((8,))
BUDGET = replace(
    small_budget(),
    study=replace(small_budget().study, epochs=2, evaluations=2, episodes=2),
    model_free=ModelFreeStudyConfig(AGENTS, batch_size=16, updates=8, per_iteration=2),
    synthetic=small_synthetic(
        width=8, features=8, blocks=1, updates=8, steps=2, rows=60, windows=4, refresh=4, length=4
    ),
)


def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


def test_what_comes_out_acts_and_is_saved(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "toy", "test", BUDGET, "nothing")
    context = RunContext(folder, progress=False)
    outcome = train(dataset(), "td3_bc", BUDGET, seeds=2, context=context)
    assert (
        outcome.returns.shape == outcome.true_value.shape == outcome.estimated_value.shape == (2,)
    )
    assert (outcome.returns <= 0).all() and (outcome.true_value <= 0).all()
    assert outcome.history.curve("return")[0].tolist() == [2, 4]
    seen = np.asarray(outcome.env.observe(outcome.env.reset(jax.random.key(1), 3)))
    actor = jax.tree.map(lambda x: x[1], outcome.actors)
    unit, _ = outcome.agent.greedy(actor, jax.random.key(0), seen, outcome.agent.memory(3))
    action = load_policy(folder.path, 1)(seen)
    np.testing.assert_allclose(action, 2.0 * np.asarray(unit), rtol=1e-6)  # torque of up to 2
    # In memory, without a run, it is the same to the bit, and so is what it saves elsewhere.
    alone = train(dataset(), "td3_bc", BUDGET, seeds=2)
    np.testing.assert_array_equal(alone.returns, outcome.returns)
    for best in (False, True):
        again = load_policy(alone.save(tmp_path / "elsewhere"), 1, best=best)(seen)
        np.testing.assert_array_equal(alone.policy(1, best=best)(seen), again)
        np.testing.assert_array_equal(load_policy(folder.path, 1, best=best)(seen), again)


class StopAt:
    """A stop flag that is raised when it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_the_best_policies_are_kept_also_by_a_run_that_was_cut(tmp_path: Path) -> None:
    """Every seed's own; the run stops after iterations 1 and 3 of 4, evaluating after each."""
    budget = replace(BUDGET, study=replace(BUDGET.study, evaluations=4))
    whole = train(dataset(), "td3_bc", budget, seeds=2)
    returns = whole.history.curve("return")[1]
    best = whole.best
    np.testing.assert_array_equal(best.returns, returns.max(0))
    np.testing.assert_array_equal(best.iterations, 1 + returns.argmax(0))
    folder = RunFolder.create(tmp_path, "toy", "test", budget, "nothing")
    for looks in (1, 2):
        flag: Any = StopAt(looks)
        with pytest.raises(Interrupted):
            train(
                dataset(), "td3_bc", budget, seeds=2, context=RunContext(folder, False, stop=flag)
            )
    context = RunContext(folder, progress=False)
    for _ in range(2):  # what goes on, and what finds everything done
        resumed = train(dataset(), "td3_bc", budget, seeds=2, context=context)
        jax.tree.map(np.testing.assert_array_equal, resumed.best, best)
    facts = read_policy(folder.path, best=True).facts
    assert facts["iterations"] == best.iterations.tolist() and "optimistic" in facts["selection"]
    kept = read_policy(folder.path, best=True).actors
    jax.tree.map(np.testing.assert_array_equal, kept, best.actors)


def test_world_models_are_saved_with_the_outcome(tmp_path: Path) -> None:
    sizes = {"members": 3, "elites": 2, "hidden": (4,), "weight_decay": (2.5e-5,)}
    config = EnsembleConfig(**sizes, batch_size=64, max_epochs=1)
    study = replace(BUDGET.study, ensemble=config, termination="learned", shared_world=True)
    ending = TerminationConfig(hidden=(4,), updates=2, updates_per_iteration=2)
    world = fit_dataset(dataset(), replace(study, ending=ending, error_horizon=5), None)
    world.save_worlds(tmp_path / "worlds")
    loaded = load_worlds(tmp_path, dataset())
    assert loaded.stats is None and loaded.config == config
    jax.tree.map(np.testing.assert_array_equal, loaded.worlds, world.fitted.worlds)


def test_settings_are_the_name_and_what_they_say() -> None:
    """Evaluations do not divide, and are rounded; what is not said is the budget's."""
    budget = replace(BUDGET, study=replace(BUDGET.study, evaluations=3))
    named = train(dataset(), "td3_bc", budget, steps=9)
    assert (named.steps, named.updates) == (8, 2)
    assert named.history.curve("return")[0].tolist() == [1, 3, 4]
    for settings in (Td3Bc, Td3Bc(), Td3Bc(hidden=(8,), alpha=2.5)):
        outcome = train(dataset(), settings, budget, steps=9)
        np.testing.assert_array_equal(outcome.returns, named.returns)
    assert (train(dataset(), Td3Bc(alpha=0.0), budget, steps=9).returns != named.returns).any()


@pytest.mark.parametrize("method", METHODS)
def test_steps_are_gradient_steps_of_every_method(method: str) -> None:
    for steps in (1, 130, 1240):
        spent = replace(small_budget(), steps=steps).spent(method)
        check(spent)
        if hasattr(spent.model_free.agents, method):
            iterations, per = cadence(spent.model_free.updates, 500, period=2)
        elif "neubay" in method:
            agent = spent.neubay.agent
            iterations, per = agent.iterations, agent.updates_per_iteration
            assert agent.agent.steps == iterations * per
        else:
            iterations, per = spent.study.epochs, spent.study.rollouts.updates_per_epoch
        assert iterations >= 1 and abs(iterations * per - steps) <= max(per / 2, 1)


def test_cloning_promises_nothing() -> None:
    outcome = train(dataset(), "bc", BUDGET)
    assert outcome.estimated_value is None and outcome.returns.shape == (2,)
    assert all("estimated_value" not in record.metrics for record in outcome.history.records)


@pytest.mark.parametrize(
    ("data", "method"),
    [pytest.param("synther", "rebrac", marks=pytest.mark.slow), ("pgd", "bc")],
)
def test_agents_learn_from_rows_that_were_made(data: Any, method: str, tmp_path: Path) -> None:
    """Its stages are kept, and a second look changes nothing."""
    folder = RunFolder.create(tmp_path, "toy", "test", BUDGET, "nothing")
    context = RunContext(folder, progress=False)
    outcome = train(dataset(), method, BUDGET, data=data, context=context)
    said = {"synther": "60 rows that SynthER", "pgd": "up to 24 rows per seed that guided"}[data]
    assert f"Data: {said}" in outcome.source.synthetic
    assert ("critic_bc_coef" in outcome.source.synthetic) == (method == "rebrac")
    assert outcome.steps == 8
    if data == "synther":
        kept = np.load(folder.stage("pendulum-mixed-synther") / "rows.npz")
        assert kept["rewards"].shape == (60,) and kept["truncations"].all()
    else:
        assert outcome.trained.state.synthetic.rows.rewards.shape == (2, 12)
    again = train(dataset(), method, BUDGET, data=data, context=context)
    np.testing.assert_array_equal(again.returns, outcome.returns)


@pytest.mark.parametrize(
    ("data", "by"),
    [pytest.param("synther", "ensemble", marks=pytest.mark.slow), ("pgd", "model")],
)
def test_made_rows_are_relabelled_where_asked(data: Any, by: Any) -> None:
    relabel = replace(BUDGET.synthetic.relabel, by=by)
    relabel = replace(relabel, networks=replace(relabel.networks, hidden=(8,), max_epochs=1))
    budget = replace(BUDGET, synthetic=replace(BUDGET.synthetic, relabel=relabel))
    outcome = train(dataset(), "bc", budget, data=data)
    assert "What follows a state and an action is told by" in outcome.source.synthetic
    assert np.isfinite(outcome.returns).all()


@pytest.mark.parametrize(
    ("method", "data", "says"),
    [
        ("ravl", "synther", "data: found 'synther', expected real for ravl"),
        ("iql", "Synther", "did you mean synther"),
        ("cql", "pgd", "expected synther or real for an agent whose policy is not normal"),
    ],
)
def test_rows_that_a_method_cannot_learn_from_are_named(method: str, data: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        train(dataset(), method, BUDGET, data=data)


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("ravel", "did you mean ravl"),
        ("RAVL", "did you mean ravl"),
        ("mopoo", "did you mean mopo"),
        ("dreamer", "one of base, mopo"),
    ],
)
def test_an_unknown_method_is_named_before_anything_is_read(method: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        train("no such dataset", method)


def test_dynamics_are_for_methods_that_roll_them() -> None:
    with pytest.raises(ConfigError, match="'td3_bc', expected one of base.* with dynamics of your"):
        train(dataset(), "td3_bc", BUDGET, dynamics=true_dynamics(make("pendulum")))


def test_every_kind_of_method_is_known() -> None:
    assert {"base", "mopo", "mobile", "ravl", "neubay", "neubay_markov", "td3_bc", "iql"} <= set(
        METHODS
    )
    for method in METHODS:
        Budget().check_method(method)


PLUGIN = """
from dataclasses import dataclass
from jaxrl_rollouts.offline.agents.agent import AgentSpec
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig, make_td3_bc
from jaxrl_rollouts.offline.methods.base import base

@dataclass(frozen=True)
class Mine(Td3BcConfig):
    alpha: float = 7.0

AGENT = AgentSpec(Mine, make_td3_bc)

@dataclass(frozen=True)
class Bold:
    bonus: float = 0.5

    def method(self, agent):
        return base(agent)._replace(name="bold", coefficient=-self.bonus)
"""
ENTRIES = """
[jaxrl_rollouts.agents]
mine = guest:AGENT

[jaxrl_rollouts.methods]
bold = guest:Bold
"""
QUESTION = """
from jaxrl_rollouts.offline.agents.registry import AGENTS, AgentConfigs, agent_name
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.methods.registry import MethodConfig, make_method
from jaxrl_rollouts.offline.study import METHODS
import guest
assert {"mine", "bold"} <= set(METHODS), METHODS
assert AgentConfigs().mine.alpha == 7.0 and agent_name(guest.Mine()) == "mine"
method = make_method("bold", SacConfig(), MethodConfig(bold=guest.Bold(2.0)))
assert (method.name, method.coefficient) == ("bold", -2.0)
"""


def announce(folder: Path, entries: str) -> dict[str, str]:
    """The environment of an interpreter that has another package installed."""
    info = folder / "guest-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "guest.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    return os.environ | {"PYTHONPATH": str(folder)}


def ask(code: str, environment: dict[str, str], folder: Path) -> Any:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_another_package_brings_an_agent_and_a_method(tmp_path: Path) -> None:
    done = ask(QUESTION, announce(tmp_path / "site", ENTRIES), tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    environment = announce(tmp_path / "site", ENTRIES.replace("guest:Bold", "guest:Nothing"))
    done = ask("import jaxrl_rollouts.offline.methods.registry", environment, tmp_path)
    assert "method bold: found 'guest:Nothing'" in done.stderr


@pytest.mark.slow  # the learners' tests ask the same of one program
def test_a_sweep_of_penalties_is_its_runs_side_by_side() -> None:
    """The first arm of a sweep is the run of its penalty alone; MOPO's at 0 is base."""
    study = replace(BUDGET.study, seeds=2, epochs=1, evaluations=1, episodes=1)
    world = fit_dataset(dataset(), study, None)

    def rewards(name: str, *penalties: float) -> np.ndarray:
        outcome = train_model_based(name, world, study, None, penalties)
        return np.asarray(outcome.trained.state.imagined.rows.rewards)

    both, alone = rewards("mopo", 0.0, 3.0), rewards("mopo", 0.0)
    assert len(both) == 4
    np.testing.assert_allclose(both[:2], alone, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(alone, rewards("base"), rtol=1e-4, atol=1e-4)
    assert (both[2:].mean(1) < both[:2].mean(1)).all()


def test_a_penalty_in_units_of_the_mean_uncertainty_of_the_data() -> None:
    study = replace(BUDGET.study, seeds=2)
    data = dataset()
    world = fit_dataset(data, study, None)
    found = on_data(jnp.mean, mopo(study.agent), world)
    rows = data.transitions
    for seed in range(2):
        one = world.fitted.world(seed)
        std = predict(
            world.fitted.model.fitter, one, rows.observations, rows.actions, "members"
        ).std
        want = np.linalg.norm(np.asarray(std), axis=-1).max(0).mean()
        np.testing.assert_allclose(found[seed], want, rtol=1e-3)

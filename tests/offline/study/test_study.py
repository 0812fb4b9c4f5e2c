"""The top floor: a dataset and a name of a method in, a trained policy out; methods of others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, Interrupted
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.registry import quick_agents
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.offline.study import METHODS, Budget, small_budget, train
from jaxrl_rollouts.offline.study.model_based import fit_dataset
from jaxrl_rollouts.offline.study.model_free import ModelFreeStudyConfig
from jaxrl_rollouts.offline.worlds.endings import TerminationConfig
from jaxrl_rollouts.offline.worlds.saved import load_worlds
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

AGENTS = quick_agents((8,))
BUDGET = replace(
    small_budget(),
    study=replace(small_budget().study, epochs=2, evaluations=2, episodes=2),
    model_free=ModelFreeStudyConfig(AGENTS, batch_size=16, updates=8, per_iteration=2),
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
    config = EnsembleConfig(members=3, elites=2, hidden=(4,), batch_size=64, max_epochs=1)
    study = replace(BUDGET.study, ensemble=config, termination="learned", shared_world=True)
    ending = TerminationConfig(hidden=(4,), updates=2, updates_per_iteration=2)
    world = fit_dataset(dataset(), replace(study, ending=ending, error_horizon=5), None)
    world.save_worlds(tmp_path / "worlds")
    loaded = load_worlds(tmp_path, dataset())
    assert loaded.trust is None and loaded.config == config
    jax.tree.map(np.testing.assert_array_equal, loaded.worlds, world.fitted.worlds)


@pytest.mark.parametrize(
    ("method", "hint"), [("ravel", "did you mean ravl"), ("cql", "one of base, mopo")]
)
def test_an_unknown_method_is_named_before_anything_is_read(method: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        train("no such dataset", method)


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

"""Budgets: what settings change of one, what a method refuses of one, and the long one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.study import (
    METHODS,
    Base,
    Bc,
    Cql,
    Edac,
    Iql,
    Mobile,
    Mopo,
    Neubay,
    Ravl,
    Rebrac,
    Sac,
    long_budget,
    small_budget,
    train,
)
from jaxrl_rollouts.offline.study.method_settings import check_settings, tuned

BUDGET = small_budget()
AGENTS = BUDGET.model_free.agents


def test_what_settings_say_comes_on_top_of_a_budget() -> None:
    method, budget = BUDGET.of(Cql(weight=10.0))
    assert method == "cql" and budget.model_free.agents.cql == replace(AGENTS.cql, weight=10.0)
    method, budget = BUDGET.of(Ravl(critics=5))
    assert method == "ravl" and budget.study.methods.ravl == Ravl(5, 1.0)
    method, budget = BUDGET.of(Neubay(level=0.9, agent=RecurrentSacConfig(critics=7)))
    small = BUDGET.neubay.agent
    assert method == "neubay"
    assert budget.neubay.agent == replace(small, level=0.9, agent=replace(small.agent, critics=7))
    kinds = (Base, Mopo, Mobile, Edac, Sac, Iql, Rebrac, Bc)
    names = [BUDGET.of(kind)[0] for kind in kinds]
    assert names == ["base", "mopo", "mobile", "edac", "sac", "iql", "rebrac", "bc"]
    for wrong, setting in ((Ravl(critics=0), "critics"), (Cql(actions=0), "actions")):
        with pytest.raises(ConfigError, match=f"{setting}: found 0"):
            train("no such dataset", wrong)
    with pytest.raises(ConfigError, match="method: found 'int'"):
        train("no such dataset", 3)


def test_a_penalty_on_deviations_needs_them_for_every_row() -> None:
    ensemble = replace(BUDGET.study.ensemble, variance="output")
    budget = replace(BUDGET, study=replace(BUDGET.study, ensemble=ensemble))
    with pytest.raises(ConfigError, match="variance: found 'output', expected row: mopo"):
        train("no such dataset", "mopo", budget)
    for method in ("base", "mobile", "ravl", "iql"):
        budget.check_method(method)


def test_critics_that_a_method_sets_itself_are_not_asked_for_in_vain() -> None:
    """They would be overruled, and nobody would know."""
    budget = replace(BUDGET, study=replace(BUDGET.study, agent=SacConfig(critics=5)))
    with pytest.raises(ConfigError, match=r"agent.critics: found 5, expected .* base has 2"):
        budget.check_method("base")
    with pytest.raises(ConfigError, match=r"ravl has 10.*; it is study.methods.ravl.critics"):
        train("no such dataset", "ravl", budget)
    budget.check_method("iql")


def test_published_settings_are_those_of_the_dataset() -> None:
    study = replace(BUDGET.study, tuning="published")
    chosen = tuned("mobile", "walker2d-mixed", study)
    assert (chosen.rollouts.horizon, chosen.methods.mobile.penalty) == (1, 0.5)
    assert tuned("mobile", "walker2d-mixed", BUDGET.study) == BUDGET.study


def test_nothing_is_trained_towards_a_floor_above_all_that_can_be_earned() -> None:
    """MOBILE's published floor of 0 is for rewards that are positive; pendulum's are costs."""
    rows = pendulum_mixed(jax.random.key(0), 600)
    costs = Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")
    paid = replace(costs, transitions=rows._replace(rewards=rows.rewards + 20))
    floor = replace(BUDGET.study.methods.mobile, least_target=0.0)
    study = replace(BUDGET.study, methods=replace(BUDGET.study.methods, mobile=floor))
    says = r"study.methods.mobile.least_target: found 0.0, expected less than -.*pendulum-mixed"
    with pytest.raises(ConfigError, match=says):
        train(costs, "mobile", replace(BUDGET, study=study))
    check_settings("mobile", long_budget().study, costs)
    check_settings("mobile", study, paid)
    check_settings("ravl", study, costs)
    check_settings("mobile", BUDGET.study, costs)
    agent = replace(BUDGET.study.agent, least_target=0.0)
    with pytest.raises(ConfigError, match="study.agent.least_target: found 0.0"):
        check_settings("base", replace(BUDGET.study, agent=agent), costs)


def test_the_long_budget_serves_every_method() -> None:
    budget = long_budget(seeds=3)
    assert budget.study.seeds == 3
    for method in METHODS:
        budget.check_method(method)
    bound = budget.study.agent
    steps = budget.study.epochs * budget.study.rollouts.updates_per_epoch
    assert steps * bound.polyak * (1 - bound.discount) == pytest.approx(40)

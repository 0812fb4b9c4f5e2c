"""Memory at smoke size: arms, tasks, claims, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.neubay.neubay_memory import EXPERIMENT, make_task, train_all
from jaxrl_rollouts.offline.environments.runner import WIRED_RUNNER
from jaxrl_rollouts.reports.report import load_report

SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


@pytest.mark.slow
def test_every_arm_on_both_runners(tmp_path: Path) -> None:
    cli.dispatch(
        ["run", "neubay_memory", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    )
    report = load_report(next(tmp_path.iterdir()))
    found = [(row["task"], row["arm"]) for row in report.tables["results"]]
    arms = ["neubay", "markov", "penalty 1"]
    assert found == [(task, arm) for task in ("hidden", "plain") for arm in arms]
    assert set(report.pictures) == {"hidden", "plain"}
    score = {row["arm"]: row["return, mean of the last looks"].values
             for row in report.tables["results"][:3]}  # fmt: skip
    claims = {claim.name: claim for claim in report.claims}
    pays = claims["hidden: a memory pays"]
    np.testing.assert_allclose(
        pays.values, np.subtract(score["neubay"], score["markov"]), rtol=1e-4, atol=1e-4
    )
    assert len(claims) == 3 and not any(claim.holds for claim in report.claims), "too short"


def test_fleet_and_pool_are_the_same_data() -> None:
    """Members of the fleet are of one machine each, at as many gradient steps."""
    config = EXPERIMENT.preset("fleet")
    tasks = {name: make_task(SMOKE, name, jax.random.key(0)) for name in config.tasks}
    fleet, pooled = tasks["fleet"], tasks["pooled"]
    jax.tree.map(np.testing.assert_array_equal, fleet.data, pooled.data)
    assert fleet.env is pooled.env is WIRED_RUNNER and pooled.groups is None
    assert fleet.groups is not None and set(fleet.groups) == set(range(SMOKE.machines))
    ours, theirs = config.ensemble_of(fleet), config.ensemble_of(pooled)
    assert theirs == config.ensemble and ours.elites == ours.members
    assert ours.max_epochs == config.machines * theirs.max_epochs
    assert config.ensemble.members % config.machines == 0


@pytest.mark.slow
def test_agents_of_fleet_and_pool_differ() -> None:
    small = replace(SMOKE, tasks=("fleet", "pooled"), seeds=1)
    grid, _ = train_all(small, None)
    assert grid.at(task="fleet")["neubay"]["score"].shape == (1,)
    first, other = (grid.at(task=task)["neubay"]["estimated_value"] for task in small.tasks)
    assert first != other, "other members, other rollouts"


def test_arms_differ_in_one_thing_each() -> None:
    arms = CPU.arms
    ours, markov, penalised = arms.values()
    assert list(arms) == ["neubay", "markov", "penalty 1"]
    assert penalised == replace(ours, penalty=1.0)
    assert markov.markov and not ours.markov
    memory = {"memory": ours.agent.memory, "memory_rate": ours.agent.memory_rate}
    assert replace(markov, agent=replace(markov.agent, **memory)) == ours
    clock = ours.agent.steps * ours.agent.polyak * (1 - ours.agent.discount)
    assert clock >= 3 and CPU.seeds >= 3


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"tasks": ()}, "tasks"),
        ({"tasks": ("plain", "plain")}, "tasks"),
        ({"tasks": ("fleet",), "machines": 2}, "members"),
        ({"looks": 7}, "looks"),
        ({"last": 3}, "looks"),
        ({"penalty": 0.0}, "penalty"),
        ({"agent": SMOKE.arms["markov"]}, "memory.kind"),
    ],
)
def test_settings_that_mean_nothing_are_named(changes: dict, what: str) -> None:
    check(SMOKE)
    with pytest.raises(ConfigError, match=what):
        check(replace(SMOKE, **changes))

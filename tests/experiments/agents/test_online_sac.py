"""Online SAC beside published curves, at smoke size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.agents import online_sac
from jaxrl_rollouts.experiments.agents.online_sac import EXPERIMENT, PUBLISHED
from jaxrl_rollouts.offline.online.sets import RECIPES
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import load_report

SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


def cell(returns: list[list[float]], iterations: list[int]) -> Cell:
    """A training with these returns `[looks][seeds]`, 200 gradient steps an iteration."""
    history = History()
    for at, now in zip(iterations, returns, strict=True):
        history.append(at, {"return": np.array(now)})
    return Cell(history=history, updates=200, seeds=2)


@pytest.mark.slow
def test_it_trains_and_compares_at_the_published_steps(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    cli.dispatch(
        ["run", "online_sac", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    )
    report = load_report(next(tmp_path.iterdir()))
    (row,) = report.tables["learning curves"]
    assert row["environment"] == "inverted-double-pendulum" and row["steps"] == 20_000
    assert row["published"] == 7728.7
    (claim,) = report.claims
    assert not claim.holds and claim.time_constants is None
    assert set(report.pictures) == {"curves"}


def test_returns_are_read_between_the_looks_around_a_step() -> None:
    learning = cell([[100.0, 200.0], [300.0, 0.0]], [50, 100])  # after 15,000 and 25,000 steps
    np.testing.assert_allclose(online_sac.earned(CPU, learning, 20_000), [200.0, 100.0])
    assert online_sac.common(CPU, learning, "hopper") == [20_000]
    way = online_sac.share(np.array([47.5, 282.1]), PUBLISHED["hopper"], 20_000)
    np.testing.assert_allclose(way, [0.0, 1.0])


def test_an_environment_that_diverged_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = cell([[100.0, 200.0], [300.0, 0.0]], [50, 100])
    grid = Grid(("environment",), {("hopper",): good, ("reacher",): replace(good, diverged=True)})
    monkeypatch.setattr(online_sac, "train_all", lambda config, context: grid)
    config = replace(CPU, environments=("hopper", "reacher"), seeds=2)
    context = RunContext(RunFolder.at(tmp_path / "run", "run"), progress=False)
    report = online_sac.run(config, context)
    assert [row["environment"] for row in report.tables["learning curves"]] == ["hopper"]
    assert [claim.name for claim in report.claims] == [
        "hopper: as far as published after 20,000 steps"
    ]


def test_settings_are_those_of_the_datasets_and_of_the_published_runs() -> None:
    recipes = {RECIPES[name] for name in CPU.environments}
    assert {(recipe.agent, recipe.online) for recipe in recipes} == {(CPU.agent, CPU.online)}
    assert [CPU.steps_in(name) for name in ("hopper", "reacher")] == [200_000, 40_000]
    published = EXPERIMENT.preset("published")
    assert published.agent.hidden == (256, 256) and published.agent.critic_rate == 1e-3
    for name, curve in PUBLISHED.items():
        steps = list(curve.points)
        assert steps == sorted(steps) and steps[-1] <= RECIPES[name].steps, name
        assert all(deviation > 0 for _, deviation in curve.points.values()), name


@pytest.mark.parametrize("names", [(), ("pendulum",)])
def test_environments_without_a_published_curve_are_named(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="environments"):
        check(replace(SMOKE, environments=names))

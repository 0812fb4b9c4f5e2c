"""Flow policies beside a normal one: the bandit, what is read off a training, the smoke report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.agents import flow_policies as page
from jaxrl_rollouts.experiments.agents import flow_policies_cells as cells
from jaxrl_rollouts.experiments.agents.flow_policies import EXPERIMENT
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import load_report

SMOKE, CPU = EXPERIMENT.preset("smoke"), EXPERIMENT.preset("cpu")


def cell(name: str, values: np.ndarray) -> Cell:
    """A training that recorded `[points, seeds]`."""
    history = History()
    for at, now in enumerate(values):
        history.append(at + 1, {name: now})
    return Cell(history=history, updates=10, seeds=values.shape[1])


@pytest.mark.slow
def test_it_trains_and_reports(tmp_path: Path) -> None:
    cli.dispatch(
        ["run", "flow_policies", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    )
    report = load_report(next(tmp_path.iterdir()))
    assert [(row["policy"], row["rate"]) for row in report.tables["bandit"]] == [
        (kind, 1e-3) for kind in cells.KINDS
    ]
    assert [row["policy"] for row in report.tables["returns"]] == [*cells.KINDS]
    assert [row["policy"] for row in report.tables["offline"]] == [*cells.KINDS]
    assert len(report.claims) == 3 + 1 + 2 * 2
    assert set(report.pictures) == {"bandit", "gradients", "returns"}


def test_the_bandit_has_two_equal_peaks_and_one_step() -> None:
    env = cells.two_peaks(0.15)
    actions = jnp.array([[-0.7], [0.7], [0.0], [0.85]])
    state, out = env.step(jax.random.key(0), env.reset(jax.random.key(1), 4), actions)
    want = [1.0, 1.0, 2 * np.exp(-0.5 * (0.7 / 0.15) ** 2), np.exp(-0.5)]
    np.testing.assert_allclose(out.reward, want, rtol=1e-3)
    assert out.terminated.all() and not out.truncated.any()
    np.testing.assert_array_equal(env.observe(state), np.ones((4, 1)))


def test_masses_are_shares_near_each_peak() -> None:
    actions = np.array([[-0.7, -0.85, 0.6, 0.0], [0.7, 0.7, 0.95, 0.45]])
    np.testing.assert_allclose(cells.masses(actions), [[0.5, 0.25], [0.0, 0.5]])
    uniform = np.random.default_rng(0).uniform(-1, 1, 100_000)
    np.testing.assert_allclose(cells.masses(uniform), 0.2, atol=0.01)
    kept = Cell(extra={"mass": np.array([[[0.5, 0.5], [0.9, 0.05]]])}, seeds=1)
    np.testing.assert_allclose(page.least(kept), [0.05])


def test_gradients_are_read_over_the_last_fifth() -> None:
    norms = np.ones((100, 2))
    norms[80:, 1] = 5.0
    norms[80, 1] = 1000.0  # one of twenty is no quantile of 95 %
    learning = cell("actor_gradient", norms)
    steps, found = page.quantiles(learning)
    assert steps[-1] == 1000 and found.shape == (2, 20)
    np.testing.assert_allclose(page.steepness(learning)[0], 1.0)
    want = np.quantile(norms[80:, 1], 0.95)
    np.testing.assert_allclose(page.steepness(learning)[1], want)


def test_returns_are_of_the_last_looks() -> None:
    learning = cell("return", np.arange(10.0)[:, None] + np.array([0.0, 100.0]))
    np.testing.assert_allclose(page.late(learning), [8.0, 108.0])
    assert np.isnan(page.late(replace(learning, diverged=True))).all()


def test_policies_differ_in_nothing_else() -> None:
    agents = [CPU.with_actor(CPU.agent, kind) for kind in CPU.kinds]
    assert [agent.actor.kind for agent in agents] == [*cells.KINDS]
    assert {replace(agent, actor=CPU.agent.actor) for agent in agents} == {CPU.agent}


def test_seeds_are_those_of_the_parts_that_are_run() -> None:
    seeds = {part: replace(CPU, parts=(part,)).most_seeds for part in cells.PARTS}
    assert seeds == {"bandit": 10, "online": 4, "offline": 4} and CPU.most_seeds == 10


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"parts": ()}, "parts"),
        ({"parts": ("walk",)}, "parts"),
        ({"kinds": ("plain",)}, "kinds"),
        ({"kinds": ("gaussian", "decoded")}, "kinds"),
        ({"steps": (10,)}, "steps"),
        ({"method": "cql"}, "method"),
    ],
)
def test_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(CPU, **change))
    assert caught.value.setting == setting

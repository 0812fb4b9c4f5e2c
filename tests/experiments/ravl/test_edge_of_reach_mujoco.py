"""Rollouts of several lengths in a perfect model: how arms differ, and what is claimed."""

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
from jaxrl_rollouts.experiments.ravl import edge_of_reach_mujoco as experiment
from jaxrl_rollouts.experiments.ravl.edge_of_reach_mujoco import EXPERIMENT, Config
from jaxrl_rollouts.experiments.ravl.ravl_mujoco import in_simulator
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.environments.base import true_model
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study import page
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")


def test_arms_differ_in_how_long_rollouts_are_and_imagine_as_many_rows() -> None:
    study = EXPERIMENT.preset("cpu").study
    assert experiment.rows_of(study) == 20_000
    for horizon, count in ((5, 4000), (20, 1000), (100, 200)):
        at = experiment.in_lengths_of(study, horizon)
        assert (at.rollouts.horizon, at.rollouts.rollouts_per_epoch) == (horizon, count)
        same = {"horizon": 5, "rollouts_per_epoch": 4000}
        assert replace(at, rollouts=replace(at.rollouts, **same)) == study


@pytest.mark.parametrize(
    ("horizons", "expected"),
    [((5,), "rising"), ((20, 5), "rising"), ((5, 5), "rising"), ((5, 7), "divisors of the 120")],
)
def test_horizons_rise_and_divide_the_rows(horizons: tuple[int, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check(replace(SMOKE, horizons=horizons))


def test_a_perfect_model_is_rolled_as_far_as_is_said() -> None:
    """Rows of a training are the simulator's own steps, and follow each other up to the horizon."""
    dataset, study = load_dataset("pendulum-mixed"), experiment.in_lengths_of(SMOKE.study, 12)
    setting = Setting(dataset, environment_of(dataset))
    outcome = in_simulator("base", setting, replace(study, epochs=1), None, "anywhere")
    rows = jax.tree.map(lambda x: x[:, :120], outcome.trained.state.imagined.rows)
    set_observation = PENDULUM.set_observation
    assert set_observation is not None
    for seed in range(study.seeds):
        mine = jax.tree.map(lambda x, seed=seed: np.asarray(x[seed]), rows)
        begun = set_observation(mine.observations)
        state, out = PENDULUM.step(jax.random.key(0), begun, mine.actions)
        np.testing.assert_allclose(PENDULUM.observe(state), mine.next_observations, atol=1e-4)
        np.testing.assert_allclose(out.reward, mine.rewards, atol=1e-4)
        # Of 120 rows ten are last steps: every other state that is reached is acted from, too.
        acted = {row.tobytes() for row in mine.observations}
        assert sum(row.tobytes() not in acted for row in mine.next_observations) == 10


def test_how_far_uniform_actions_lead_is_measured_from_the_other_episodes() -> None:
    """Two parallel lines of states, three apart; a step leads one farther off, past 150 it ends."""
    count = 200
    place = np.arange(count, dtype=np.float32)
    lines = [np.stack([place, np.full(count, y, np.float32), 0 * place], 1) for y in (3.0, 0.0)]
    states = np.concatenate(lines)
    ends = np.arange(2 * count) % count == count - 1
    dataset = load_dataset("pendulum-mixed")
    rows = jax.tree.map(lambda x: x[: 2 * count], dataset.transitions)
    rows = rows._replace(observations=states, terminations=0 * ends > 0, truncations=ends)

    def away(state: jax.Array, action: jax.Array) -> tuple:
        return state + jnp.array([0.0, 1.0, 0.0]), state[:, 0], state[:, 0] > 150

    env = PENDULUM._replace(transition=away)
    setting = Setting(replace(dataset, transitions=rows), env)
    found = experiment.lead_rows(setting, (2, 7), 0, count=400)
    assert [row["steps"] for row in found] == [0, 2, 7]
    np.testing.assert_allclose([row["distance"] for row in found], [3.0, 5.0, 10.0], rtol=1e-6)
    assert found[1]["beyond"] == found[2]["beyond"] == 1.0
    assert found[1]["ended"] == found[2]["ended"] == pytest.approx(49 / 200, abs=0.06)
    along = (place - place.mean()) / place.std()
    for row, there in zip(found, (along, along[place <= 150], along[place <= 150]), strict=True):
        across = (1.5 + row["steps"]) / 1.5  # the lines' mean is halfway between them
        size = np.sqrt((there**2 + across**2) / 3).mean()  # the third coordinate does not vary
        assert row["far out"] == pytest.approx(size, rel=0.03)
    all_end = PENDULUM._replace(transition=lambda s, a: (s, s[:, 0], s[:, 0] > -1))
    last = experiment.lead_rows(setting._replace(env=all_end), (2, 7), 0, count=40)[-1]
    assert last == {"steps": 7, "ended": 1.0}
    one = replace(dataset, transitions=jax.tree.map(lambda x: x[:count], rows))
    with pytest.raises(ConfigError, match="two episodes or more"):
        experiment.lead_rows(Setting(one, env), (2, 7), 0)


@pytest.mark.parametrize("drift", [0.0, 1.0])
def test_an_edge_is_where_last_states_are_unlike_those_that_are_acted_from(drift: float) -> None:
    """A step leads to a line far from the data, wherever it began, and along it by a drift.

    So the end of the first is unlike anything acted from; that of the fifth is like the fourth's,
    but where it drifts it lies beyond all of them.
    """
    dataset = load_dataset("pendulum-mixed")
    rows = jax.tree.map(lambda x: x[:2000], dataset.transitions)
    ends = np.arange(2000) % 100 == 99
    states = np.random.default_rng(0).uniform(-1, 1, (2000, 3)).astype(np.float32)
    rows = rows._replace(observations=states, terminations=0 * ends > 0, truncations=ends)

    def away(state: jax.Array, action: jax.Array) -> tuple:
        along = drift * (state[:, 2] + 4 * (state[:, 2] > 1.5))
        place = jnp.stack([0.2 * action[:, 0], 5 + 0 * along, 2 + along], 1)
        return place, state[:, 0], state[:, 0] > 9

    env = PENDULUM._replace(transition=away)
    setting = Setting(replace(dataset, transitions=rows), env)
    start, first, fifth = experiment.lead_rows(setting, (1, 5), 0)
    assert "edge" not in start and first["edge"] > 10
    assert fifth["edge"] > 10 if drift else fifth["edge"] == pytest.approx(1.0, abs=0.15)


def test_a_policy_is_worth_in_its_model_what_its_steps_there_earn() -> None:
    """In a simulator that hides nothing that is its true value, from the same start states."""
    dataset = load_dataset("pendulum-mixed")
    setting = Setting(dataset, environment_of(dataset))
    study = replace(SMOKE.study, epochs=1, episodes=3)
    outcome = in_simulator("base", setting, study, None, "anywhere")
    found = experiment.values_in_model(outcome, study, horizon=199)
    starts = jax.random.split(jax.random.key(study.seed), 3)[0]
    for seed in range(study.seeds):
        state, total = PENDULUM.reset(starts, 3), np.zeros(3)
        for step in range(200):
            seen = PENDULUM.observe(state)
            action, _ = outcome.agent.greedy(outcome.actor(seed), starts, seen, ())
            state, out = PENDULUM.step(starts, state, action)
            total += 0.99**step * np.asarray(out.reward)
        np.testing.assert_allclose(found[seed], total.mean(), rtol=2e-3)


def test_without_endings_a_fall_is_a_row_like_others(made_data: Path) -> None:
    dataset = load_dataset("hopper-random")
    source = Setting(dataset, environment_of(dataset))
    setting = experiment.endless(source)
    rows, before = setting.dataset.transitions, dataset.transitions
    assert before.terminations.sum() > 20 and not rows.terminations.any()
    np.testing.assert_array_equal(rows.truncations, before.terminations | before.truncations)
    np.testing.assert_array_equal(rows.rewards, before.rewards)

    last = np.flatnonzero(before.terminations)[:20]
    model = true_model(setting.env, clipped=True)
    ending = true_model(source.env, clipped=True)
    state, action = (jnp.asarray(x[last]) for x in (rows.observations, rows.actions))
    following, out = model.step(None, jax.random.key(0), state, action, None)
    same, theirs = ending.step(None, jax.random.key(0), state, action, None)
    np.testing.assert_array_equal(following, same)
    assert not out.terminated.any() and theirs.terminated.mean() > 0.5
    fell = np.asarray(theirs.terminated)
    np.testing.assert_allclose(out.reward + fell, theirs.reward, atol=1e-5)  # 1 for being upright


def test_what_never_ends_cannot_be_without_endings() -> None:
    dataset = load_dataset("pendulum-mixed")
    with pytest.raises(ConfigError, match="expected no options"):
        experiment.endless(Setting(dataset, environment_of(dataset)))


def cell(returns: float, promised: float) -> Cell:
    history = History()
    for step in range(1, 6):
        measured = {"return": returns, "discounted_return": returns / 4}
        measured |= {"estimated_value": promised, "imagined_length": 3.0}
        history.append(step, {name: np.full(2, value) for name, value in measured.items()})
    return Cell(history, seeds=2)


@pytest.mark.parametrize("explodes", [True, False])
def test_claims_are_of_the_shortest_and_the_longest(explodes: bool) -> None:
    dataset = load_dataset("pendulum-mixed")
    setting = Setting(dataset, environment_of(dataset))
    report = Report("edge_of_reach_mujoco", "smoke", {}, "jaxrl-rollouts run x", 2)
    short, long = cell(-2000.0, 1e5), cell(40.0, 12.0)
    first, last = (short, long) if explodes else (long, short)
    cells = {"3 steps": first, "6 steps": cell(0.0, 0.0), "12 steps": last}
    config = Config("pendulum-mixed", horizons=(3, 6, 12), study=SMOKE.study)
    experiment.add_claims(report, setting, config, cells)
    assert [claim.holds for claim in report.claims] == [explodes] * 4
    assert {claim.name.split(" ")[2] for claim in report.claims} == {"3", "12"}
    rows = experiment.result_rows(setting, cells, 0.99)
    assert rows[1]["mean of the last looks"].tolist() == first["return"].tolist()
    assert "imagined steps" not in rows[0] and rows[3]["imagined steps"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("promised", "scale"), [(1900.0, "linear"), (1e5, "symlog")])
def test_one_seed_that_explodes_does_not_hide_the_others(promised: float, scale: str) -> None:
    dataset = load_dataset("pendulum-mixed")
    report = Report("edge_of_reach_mujoco", "smoke", {}, "jaxrl-rollouts run x", 2)
    history = History()
    for step in (1, 2):
        rows = {"return": [1.0, 2.0, 3.0], "discounted_return": [0.1, 0.2, 0.3]}
        rows["estimated_value"] = [5.0, 6.0, promised]
        history.append(step, {name: np.asarray(row) for name, row in rows.items()})
    setting = Setting(dataset, environment_of(dataset))
    page.draw_training(report, setting, {"5 steps": Cell(history, seeds=3)}, 0.99)
    figure = report.pictures["training-pendulum-mixed"].figure
    assert figure.axes[1].get_yscale() == scale


def test_a_report_from_one_command(tmp_path: Path) -> None:
    args = ["edge_of_reach_mujoco", "--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(["run", *args])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["results"]
    assert [row["method"] for row in rows] == ["behaviour", "3 steps", "12 steps"]
    assert list(rows[1]["imagined steps"].values) == [3.0] * 2
    assert list(rows[2]["imagined steps"].values) == [12.0] * 2
    assert [row["arm"] for row in report.tables["clock"]] == ["3 steps", "12 steps"]
    led = report.tables["where uniform actions lead"]
    assert [row["steps"] for row in led] == [0, 3, 12] and led[2]["distance"] > led[0]["distance"]
    assert len(report.claims) == 4 and "training-pendulum-mixed" in report.pictures
    assert any("120 rows at every horizon" in note for note in report.notes)

"""The MuJoCo comparison at smoke size, and how its arms are named, read and chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl import ravl_mujoco
from jaxrl_rollouts.experiments.ravl import ravl_mujoco_judges as judges
from jaxrl_rollouts.offline.data import Dataset, Transitions, episode_returns, load
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.online.sets import make_set
from jaxrl_rollouts.offline.study.config import SMOKE_MUJOCO
from jaxrl_rollouts.offline.study.setting import environment_of
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = ["--preset", "smoke", "--no-progress", "--methods", "base", "mopo", "ravl", "bc"]
SMOKE += ["--imagined"]


@pytest.mark.slow
def test_ravl_mujoco_compares_methods_on_data_that_anyone_can_make(
    made_data: Path, tmp_path: Path
) -> None:
    cli.dispatch(["run", "ravl_mujoco", *SMOKE, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["results"]
    arms = ["behaviour", "base", "mopo 0.5", "mopo 2", "ravl", "bc"]
    assert [row["method"] for row in rows] == arms
    played = episode_returns(load(made_data / "hopper-random.hdf5").transitions)
    assert rows[0]["return"] == pytest.approx(played[:-1].mean(), rel=1e-4)  # the last one is cut
    # D4RL's formula with D4RL's hopper references.
    expected = 100 * (rows[0]["return"] + 20.272305) / (3234.3 + 20.272305)
    assert rows[0]["score"] == pytest.approx(expected, rel=1e-4)
    assert all(len(row["return"].values) == 2 for row in rows[1:])
    # One look only, so that the last ones are that one; cloning promises nothing.
    np.testing.assert_allclose(
        rows[1]["mean of the last looks"].values, rows[1]["return"].values, rtol=1e-6
    )
    assert "estimated value" in rows[4] and "estimated value" not in rows[5]
    # The arms of a sweep are different trainings.
    assert rows[2]["estimated value"].values != rows[3]["estimated value"].values
    assert {"comparison", "world_model"} <= set(report.pictures)
    assert any("data make" in note and "hopper-random" in note for note in report.notes)
    # Every policy is judged in the models, also that of cloning, which has none of its own.
    judged = report.tables["worth of policies"]
    assert [row["arm"] for row in judged] == arms[1:]
    assert all(len(row["by models"].values) == 2 for row in judged) and "by critics" in judged[0]
    assert [row["policies"] for row in report.tables["judges"]] == [8, 8]  # without cloning
    assert "judges-hopper-random" in report.pictures
    by_name = {claim.name: claim for claim in report.claims}
    beats = by_name["RAVL beats base on hopper-random"]
    difference = np.subtract(rows[4]["return"].values, rows[1]["return"].values)
    np.testing.assert_allclose(beats.values, difference, rtol=1e-5)
    assert beats.time_constants is not None and beats.time_constants < 3  # and says so


def cell(returns: list[list[float]], **settings: object) -> Cell:
    """A cell with these returns `[looks][seeds]`."""
    history = History()
    for number, values in enumerate(returns):
        history.append(number + 1, {"return": np.array(values)})
    return Cell(history, **settings)  # type: ignore[arg-type]


def test_judges_are_held_against_the_simulator() -> None:
    """Critics are right but for a constant; the models have two policies the wrong way around."""
    true = np.array([10.0, 20.0, 30.0, 40.0])

    def of(part: slice, **more: object) -> Cell:
        history = History()
        critics = {"discounted_return": true[part], "estimated_value": true[part] - 50}
        history.append(1, critics)
        models = np.array([11.0, 19.0, 42.0, 38.0])[part]
        return Cell(history, extra={"imagined_value": models}, **more)  # type: ignore[arg-type]

    cloned = History()
    cloned.append(1, {"discounted_return": np.array([99.0, 99.0])})
    cells = {"a": of(slice(0, 2)), "b": of(slice(2, 4)), "bc": Cell(cloned)}
    critics, models = (judges.score(cells, judges.JUDGES[name]) for name in ("critics", "models"))
    assert critics["policies"] == models["policies"] == 4  # cloning has no critics to compare with
    assert critics["rank correlation"] == pytest.approx(1)
    assert models["rank correlation"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert (critics["mean absolute error"], models["mean absolute error"]) == (50, 4)
    assert (critics["its favourite is worth"], models["its favourite is worth"]) == (40, 30)
    assert critics["the best"] == 40 and critics["the mean"] == 25
    report = Report("ravl_mujoco", "smoke", {}, "jaxrl-rollouts run ravl_mujoco", 2)
    judges.add_claims(report, "a", cells, {"critics": critics, "models": models})
    assert not report.claims  # four policies have no order to speak of


def test_a_sweep_that_was_trained_side_by_side_is_cells_of_its_own() -> None:
    both = cell([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], seeds=4, extra={"x": np.arange(4)})
    first, second = both.parts(2)
    assert first.seeds == second.seeds == 2
    assert first["return"].tolist() == [5.0, 6.0] and second["return"].tolist() == [7.0, 8.0]
    assert second["x"].tolist() == [2, 3]
    assert second.curve("return")[1].tolist() == [[3.0, 7.0], [4.0, 8.0]]


def test_the_last_looks_and_the_best_arm() -> None:
    looks = [[0.0, 0.0], *[[10.0, 20.0]] * 5]
    assert ravl_mujoco.late(cell(looks)).tolist() == [10.0, 20.0]
    cells = {
        "mopo 1": cell(looks),
        "mopo 2": cell([[50.0, 50.0], *[[9.0, 19.0]] * 5]),
        "mopo 5": Cell(diverged=True, seeds=2),
        "ravl": cell([[99.0, 99.0]]),
    }
    assert ravl_mujoco.best_of(cells, "mopo") == "mopo 1"
    assert ravl_mujoco.best_of(cells, "mobile") is None
    assert ravl_mujoco.arms_of("mopo", (0.5, 2.0)) == ["mopo 0.5", "mopo 2"]
    assert ravl_mujoco.arms_of("ravl", ()) == ["ravl"]


def test_a_policy_that_earns_less_can_be_worth_more_than_the_behaviour() -> None:
    """Who stands still for 200 steps earns more than who leaps for 40, and is worth less."""
    length, leaps = 200, 40
    rows = Transitions(
        observations=np.zeros((length, 3), np.float32),
        actions=np.zeros((length, 1), np.float32),
        rewards=np.ones(length, np.float32),
        next_observations=np.zeros((length, 3), np.float32),
        terminations=np.zeros(length, bool),
        truncations=np.arange(length) == length - 1,
    )
    dataset = Dataset("my-mixed", rows, "pendulum", Path("mine.hdf5"), "0" * 64)
    setting = Setting(dataset, make("pendulum"))
    standing, leaping = (1 - 0.99**length) / 0.01, 3 * (1 - 0.99**leaps) / 0.01
    history = History()
    earned = {"return": 3.0 * leaps, "discounted_return": leaping, "estimated_value": leaping}
    history.append(1, {name: np.full(2, value) for name, value in earned.items()})
    cells = Grid(("dataset", "arm"), {("my-mixed", "ravl"): Cell(history, seeds=2)})
    of_set = cells.at(dataset="my-mixed")
    report = Report("ravl_mujoco", "smoke", {}, "jaxrl-rollouts run ravl_mujoco", 2)
    ravl_mujoco.add_claims(report, {"my-mixed": setting}, {"my-mixed": of_set}, 0.99)
    claims = {claim.name: claim for claim in report.claims}
    less = claims["RAVL beats the behaviour on my-mixed"]
    more = claims["RAVL's policies are worth more than the behaviour on my-mixed"]
    assert less.threshold == length and not less.holds
    assert more.threshold == pytest.approx(standing) and more.holds and leaping > standing
    (behaviour, _) = ravl_mujoco.result_rows(setting, of_set, 0.99)
    assert behaviour["return"] == length and behaviour["true value"] == pytest.approx(standing)


def test_a_report_says_of_how_many_rows_velocities_are_not_shown() -> None:
    shown = np.zeros((8, 3), np.float32)
    shown[1, 2], shown[5, 1:], shown[6] = 10.0, -10.0, 9.99
    rows = Transitions(shown, shown[:, :1], shown[:, 0], shown, *np.zeros((2, 8), bool))
    dataset = Dataset("mine", rows, "pendulum", Path("mine.hdf5"), "0" * 64)
    report = Report("ravl_mujoco", "smoke", {}, "jaxrl-rollouts run ravl_mujoco", 2)
    known = make("pendulum")
    ravl_mujoco.note_clipped(report, {"mine": dataset}, {"mine": Setting(dataset, known)})
    assert not report.notes
    hiding = known._replace(clipped_transition=lambda s, a: (s, s[:, 0], s[:, 0] > 0))
    ravl_mujoco.note_clipped(report, {"mine": dataset}, {"mine": Setting(dataset, hiding)})
    (note,) = report.notes
    assert "mine" in note and "10" in note and "25.0 % of the rows" in note


@pytest.mark.slow
def test_the_simulator_can_be_the_model(tmp_path: Path) -> None:
    """Seeds side by side in one simulator, from a file to returns."""
    pytest.importorskip("mujoco")
    made = make_set("halfcheetah-random", tmp_path, rows=2000)
    study = replace(SMOKE_MUJOCO, seeds=2, epochs=1)
    rollouts = replace(study.rollouts, rollouts_per_epoch=20, horizon=3)
    dataset = load(made.path)
    setting = Setting(dataset, environment_of(dataset))
    outcome = ravl_mujoco.in_simulator("mobile", setting, replace(study, rollouts=rollouts), None)
    # The ring has room for five epochs and holds one.
    rows = jax.tree.map(lambda x: x[:, : 20 * 3], outcome.trained.state.imagined.rows)
    assert outcome.returns is not None and outcome.returns.shape == (2,)
    truth = make("mujoco/HalfCheetah-v4").transition
    assert truth is not None
    following, reward, _ = jax.vmap(truth)(rows.observations, rows.actions)
    np.testing.assert_allclose(rows.next_observations, following, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rows.rewards, reward, rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="mopo"):
        check(ravl_mujoco.Config(model="simulator"))

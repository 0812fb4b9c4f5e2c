"""The main job from the command line, at smoke size: run, report, resume, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import SMOKE, smoke

from jaxrl_rollouts import offline
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline import main_job
from jaxrl_rollouts.offline.collect import collect, random_policy, write_rows
from jaxrl_rollouts.offline.data import load, load_d4rl
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.recipes import LOOKS, PRESETS, recipe
from jaxrl_rollouts.offline.saved_policies import read_policy
from jaxrl_rollouts.reports.report import load_report


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smoke("offline", tmp_path_factory.mktemp("runs"))


def test_report_says_what_was_run_and_measured(finished: Path) -> None:
    report = load_report(finished)
    assert report.seeds == 2
    assert report.config["dataset"] == "pendulum-mixed"
    assert "run offline --preset smoke" in report.command
    assert len(report.numbers["return"].values) == 2
    # Pendulum's returns lie between about -2000 (worst) and 0.
    assert -2000 < report.numbers["return"].mean < 0
    (claim,) = report.claims
    assert claim.holds == (claim.measured >= claim.threshold)
    assert report.compile_seconds > 0
    rows = report.tables["result"]
    assert [row["method"] for row in rows] == ["behaviour", "mopo"]
    assert "score" not in rows[1], "Pendulum has no reference returns"
    # What is maximised is discounted; all of Pendulum's rewards are costs.
    assert rows[0]["return"] < rows[0]["true value"] < 0


def test_a_finished_run_is_loaded_with_its_settings_and_its_report(finished: Path) -> None:
    run, report = offline.load_run(finished), load_report(finished)
    assert run.folder == finished and run.report is not None
    assert run.settings == report.config and run.last.facts["method"] == "mopo"
    np.testing.assert_allclose(run.returns, report.numbers["return"].values)
    steps, returns = run.curve("return")
    assert steps[-1] == run.settings["method"]["mopo"]["steps"] and (np.diff(steps) > 0).all()
    np.testing.assert_array_equal(returns[-1], run.returns)
    assert run.best is not None and (run.best.facts["returns"] >= returns.max(0)).all()
    assert "mopo on pendulum-mixed, 2 seeds, returns [" in repr(run)
    with pytest.raises(KeyError, match="recorded are"):
        run.curve("retrun")


def test_the_conclusion_stands_above_everything(finished: Path) -> None:
    conclusion = load_report(finished).conclusion
    assert conclusion[0].startswith("Not converged") and conclusion[-1].startswith("Try: ")
    page = (finished / "report.md").read_text("utf-8")
    assert page.index(conclusion[0]) < page.index("![training") < page.index("## numbers")


def test_a_run_goes_on_where_its_data_were_moved(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cli.dispatch(["data", "collect", "--out", "rows.hdf5", "--steps", "400", "--seed", "3"])
    given = ["--dataset", "rows.hdf5", "--method", "bc", "--steps", "20"]
    cli.dispatch(["run", "offline", *SMOKE, *given])
    (run,) = (tmp_path / "here" / "runs").iterdir()
    assert run.name.startswith("rows-bc-2")
    before = load_report(run).numbers["return"].values
    # From another directory the file is found where the run began, or beside the run.
    monkeypatch.chdir(tmp_path / "there")
    cli.dispatch(["resume", str(run), "--no-progress"])
    moved = tmp_path / "there" / "rows.hdf5"
    (tmp_path / "here" / "rows.hdf5").rename(moved)
    monkeypatch.chdir(tmp_path)
    began = (run / "run.json").read_bytes()
    for longer in ("1", "2"):  # data that are missing leave the length of the run as it was
        with pytest.raises(DataError, match=f"rows.hdf5.*resume {run} --dataset PLACE"):
            cli.dispatch(["resume", str(run), "--no-progress", "--longer", longer])
        assert (run / "run.json").read_bytes() == began
    cli.dispatch(["resume", str(run), "--no-progress", "--dataset", str(moved)])
    assert load_report(run).numbers["return"].values == before
    with pytest.raises(ConfigError, match="a file named rows.hdf5"):
        cli.dispatch(["resume", str(run), "--dataset", str(run / "run.json")])
    with h5py.File(moved, "r+") as file:
        file["rewards"][0] += 1.0
    with pytest.raises(DataError, match="sha256"):
        cli.dispatch(["resume", str(run), "--no-progress", "--dataset", str(moved)])


def test_pictures_are_there(finished: Path) -> None:
    for picture in load_report(finished).pictures.values():
        assert (finished / picture.file).read_bytes().startswith(b"\x89PNG")


def test_its_policy_acts_without_the_run(finished: Path, tmp_path: Path) -> None:
    saved = read_policy(finished)
    assert saved.facts["method"] == "mopo" and saved.environment == "pendulum"
    # The same actor as in the newest checkpoint's report: the returns it was judged by.
    returns = load_report(finished).numbers["return"].values
    np.testing.assert_allclose(saved.facts["returns"], returns)
    assert not np.array_equal(*(jax.tree.leaves(saved.actor(seed))[0] for seed in (0, 1)))
    path = tmp_path / "more.hdf5"
    cli.dispatch(
        ["data", "collect", "--out", str(path), "--policy", str(finished), "--steps", "400"]
    )
    assert len(load_d4rl(path).transitions.rewards) == 400


def test_a_second_look_at_a_finished_run_changes_no_number(finished: Path) -> None:
    before = json.loads((finished / "report.json").read_text())
    cli.dispatch(["resume", str(finished), "--no-progress"])
    after = json.loads((finished / "report.json").read_text())
    for key in ("numbers", "claims", "tables"):
        assert before[key] == after[key]


def test_a_file_takes_the_place_of_the_embedded_data_and_cloning_has_no_values(
    tmp_path: Path,
) -> None:
    env = make("pendulum")
    path = tmp_path / "mine.hdf5"
    rows = collect(env, random_policy(1), None, jax.random.key(0), steps=2000)
    write_rows(path, env, rows)
    words = ["--dataset", str(path), "--method", "bc", "--steps", "30"]
    folder = smoke("offline", tmp_path / "runs", *words)
    report = load_report(folder)
    behaviour, row = report.tables["result"]
    assert behaviour["return"] == pytest.approx(float(np.sum(rows.rewards)) / 10, rel=1e-4)
    assert "bc, preset smoke: 40 gradient steps per seed, 30 requested." in report.notes
    assert row["method"] == "bc" and "true value" in row and "estimated value" not in row
    assert set(report.numbers) == {"return", "true value"}
    assert set(report.pictures) == {"learning-mine"}
    assert read_policy(folder).facts["kind"] == "bc"


def test_a_time_limit_that_a_file_does_not_mark_can_be_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """40 rows and no flag raised: one episode, or four of ten."""
    path, rng = tmp_path / "mine.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        states = rng.uniform(-1, 1, (41, 3)).astype(np.float32)
        file["observations"], file["next_observations"] = states[:-1], states[1:]
        for name, shape in {"actions": (40, 1), "rewards": (40,)}.items():
            file[name] = rng.uniform(-1, 1, shape).astype(np.float32)
        file["terminals"] = np.zeros(40, bool)
    config = main_job.Config(dataset=str(path), max_episode_steps=10)
    assert main_job.opened(config).transitions.truncations.sum() == 4
    cli.dispatch(["data", "inspect", str(path), "--max-episode-steps", "10"])
    assert "4" in capsys.readouterr().out.split("episodes", 1)[1].splitlines()[0]
    with pytest.raises(ConfigError, match="max_episode_steps"):
        check(replace(config, max_episode_steps=0))
    with pytest.raises(ConfigError, match="none: its rows are made by a program"):
        main_job.prepare(main_job.Config(max_episode_steps=10))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_methods_recipe(preset: str) -> None:
    config = main_job.EXPERIMENT.presets[preset]
    assert config.method == recipe("mopo", preset)
    found = config.seeds, config.evaluations, config.episodes
    assert found == (LOOKS[preset].seeds, LOOKS[preset].evaluations, LOOKS[preset].episodes)


def test_a_report_names_preset_steps_and_what_differs_from_the_paper(finished: Path) -> None:
    notes = load_report(finished).notes
    assert "mopo, preset smoke: 40 gradient steps per seed." in notes
    (line,) = (note for note in notes if note.startswith("Differs from the paper ("))
    assert "OfflineRL-Kit" in line and "steps 40 (paper 3,000,000)" in line


@pytest.mark.slow
def test_without_a_simulator_the_report_ends_with_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.hdf5"
    env = make("runner")
    write_rows(path, env, collect(env, random_policy(1), None, jax.random.key(0), steps=400))
    words = ["--dataset", str(path), "--method", "base", "--environment", "none"]
    report = load_report(smoke("offline", tmp_path / "runs", *words))
    behaviour, base = report.tables["result"]
    first, second, data = report.tables["choice"]
    assert base["return"].partition(":")[0] in ("undecided", "do not deploy", "try first")
    assert first["policy"] == "base/0" and second["why"] and data["low"] < data["value"]
    assert report.conclusion[0] == f"Without a simulator: {base['return']}."
    assert behaviour["return"] > behaviour["true value"] > 0
    assert set(report.numbers) == {"estimated value", "imagined value", "gain"}
    gains = [row["value"] - data["value"] for row in (first, second)]
    np.testing.assert_allclose(report.numbers["gain"].values, gains)
    assert not report.claims
    assert any("Not evaluated" in note for note in report.notes)
    # The file says that it is from the runner, whose rule is known without its simulator.
    assert not any("learned" in note for note in report.notes)
    assert "Not evaluated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--environment", "pendulm"], "did you mean pendulum"),
        (["--environment", "plane"], "found 3 columns, expected 2, as plane has them"),
        (["--method", "rvl"], "method: found 'rvl', expected one of base, mopo, mobile, ravl"),
        (["--dataset", "nowhere.hdf5"], "nowhere.hdf5"),
        (["--dataset", "hoper-medium-v2"], "hopper-medium-v2"),
        (["--seeds", "0"], "--seeds: found 0"),
        (["--evaluations", "0"], "--evaluations: found 0"),
        (["--method", "RAVL"], "did you mean ravl?"),
        (["--steps", "0"], "--steps: found 0"),
        (["--method", "rebrac", "--tau", "0"], "--tau: found 0.0"),
        (["--method", "iql", "--penalty", "5"], "'--penalty'"),
        (["--penality", "5"], "did you mean --penalty"),
        (["--agent.hiden", "5"], "did you mean --agent.hidden-dims"),
        (["--agent.num_critics", "0"], "--agent.num-critics: found 0"),
        (["--agent.discount", "1.0"], "--agent.discount: found 1.0"),
        (["--agent.eta", "-1.0"], "--agent.eta: found -1.0"),
        (["--agent.tau", "0.0"], "--agent.tau: found 0.0"),
        (["--agent.initial-alpha", "0.0"], "--agent.initial-alpha: found 0.0"),
        (["--world.elites", "9"], "--world.elites: found 9"),
        (["--world.activation", "tanhh"], "activation: found 'tanhh'"),
        (["--world.weight-decay", "1", "2", "3"], "weight-decay"),
        (["--world.batch-size", "0"], "--world.batch-size: found 0"),
        (["--world.variance", "output"], "--world.variance: found 'output', expected row"),
        (["--rollouts.length", "0"], "--rollouts.length: found 0"),
        (["--real-ratio", "1.5"], "--real-ratio: found 1.5"),
        (["--batch-size", "0"], "--batch-size: found 0"),
        (["--penalty", "-1.0", "--method", "mopo"], "--penalty: found -1.0"),
        (["--num-samples", "0", "--method", "mobile"], "--num-samples: found 0"),
        (["--method", "mobile", "--preset", "paper"], "--agent.min-target: found 0.0"),
    ],
)
def test_bad_settings_are_one_line_and_exit_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("jaxrl_rollouts.offline.data.names.fetch", _offline, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "offline", *SMOKE, "--out", str(tmp_path / "runs"), *arguments])
    assert stop.value.code == 2
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error:")]
    assert len(lines) == 1
    assert says in lines[0]
    assert not list((tmp_path / "runs").glob("*")), "bad input leaves nothing behind"


def _offline(*_: object, **__: object) -> None:
    raise OSError("no connection")


@pytest.mark.parametrize(
    "method",
    [
        "td3_bc",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("iql", "rebrac")),
    ],
)
def test_agents_without_a_model_run_from_the_same_entry(tmp_path: Path, method: str) -> None:
    folder = smoke("offline", tmp_path, "--method", method)
    report = load_report(folder)
    behaviour, row = report.tables["result"]
    assert (behaviour["method"], row["method"]) == ("behaviour", method)
    assert row.keys() >= {"return", "estimated value", "true value"}
    assert report.numbers["return"].seeds == 2
    assert f"{method}, preset smoke: 40 gradient steps per seed." in report.notes
    saved = read_policy(folder)
    assert saved.facts["kind"] == method and saved.environment == "pendulum"
    action, _ = saved.agent.greedy(saved.actor(1), jax.random.key(0), jnp.zeros((4, 3)), ())
    assert action.shape == (4, 1) and (np.abs(action) <= 1).all()


def played(name: str, steps: int, **options: Any) -> dict[str, np.ndarray]:
    """What a random policy does in one of Gymnasium's MuJoCo environments, as D4RL stores it."""
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    env = gymnasium.make(name, **options).unwrapped
    env.action_space.seed(0)
    columns: dict[str, list] = {}
    observation, _ = env.reset(seed=0)
    for step in range(steps):
        action = env.action_space.sample()
        following, reward, terminal, *_ = env.step(action)
        row = {"observations": observation, "actions": action, "rewards": reward}
        row |= {"next_observations": following, "terminals": terminal}
        row |= {"timeouts": step == steps - 1 and not terminal}
        for key, value in row.items():
            columns.setdefault(key, []).append(value)
        observation = env.reset()[0] if terminal else following
    flags = ("terminals", "timeouts")
    return {k: np.asarray(v, bool if k in flags else np.float32) for k, v in columns.items()}


def write_raw(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            file[key] = values


@pytest.mark.filterwarnings("ignore")
def test_d4rls_names_are_trained_on_and_played_in_the_version_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path))
    write_raw(tmp_path / "hopper_medium-v2.hdf5", played("Hopper-v4", 400))
    words = ["--dataset", "hopper-medium-v2", "--method", "bc"]
    folder = smoke("offline", tmp_path / "runs", *words)
    report = load_report(folder)
    assert any("Hopper-v4 in place of Hopper-v2" in note for note in report.notes)
    # D4RL's scale: 0 is a random policy, which this is, 100 an expert.
    behaviour, trained = (row["score"] for row in report.tables["result"])
    assert -1 < behaviour < 5 and len(trained.values) == 2
    assert read_policy(folder).environment == "mujoco/Hopper-v4"
    forces = played("Ant-v4", 50, use_contact_forces=True)
    write_raw(tmp_path / "ant_medium-v2.hdf5", forces)
    env = environment_of(load("ant-medium-v2"))
    assert env.observation_size == 111 and "in place of Ant-v2" in env.version

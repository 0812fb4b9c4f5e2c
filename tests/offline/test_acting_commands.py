"""`jaxrl-rollouts evaluate` and `export`: their numbers, their files, and what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline import video
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.environments.ks_control import (
    FOUR,
    KS_CONTROL,
    advance,
    ks_control,
)
from jaxrl_rollouts.offline.environments.plane import PLANE
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.policy import Policy, load_policy
from jaxrl_rollouts.offline.saved_policies import SavedPolicy, read_policy, save_policy
from jaxrl_rollouts.plugins import trust

CONFIG = SacConfig(num_critics=2, eta=0.0, hidden_dims=(4,), discount=0.9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    """Three seeds on the plane, the last policy and the best."""
    agent = make_sac(CONFIG, 2, 2)
    actors = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 3)).actor
    folder = tmp_path_factory.mktemp("run")
    for name, shift, facts in (
        ("policy", 0.1, {}),
        ("policy-best", 0.5, {"selection": "chosen by returns"}),
    ):
        moved = jax.tree.map(lambda x, by=shift: x + by, actors)
        save_policy(folder / "s" / name, CONFIG, moved, PLANE, method="m", dataset="d", **facts)
    return folder


def untrained(env: Environment, folder: Path) -> SavedPolicy:
    """A policy with weights that no training has changed."""
    agent = make_sac(CONFIG, env.observation_size, env.action_size)
    actors = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 1)).actor
    moved = jax.tree.map(lambda x: x + 0.5, actors)  # else its actions are near zero
    save_policy(folder / "policy", CONFIG, moved, env, method="m", dataset="d")
    return read_policy(folder / "policy")


def call(*arguments: Any) -> None:
    cli.main([str(a) for a in arguments])


def refused(capsys: Any, *arguments: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        call(*arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err and err.count("\n") == 1
    return err


def test_evaluate_prints_and_writes_what_the_policies_earn(
    run: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "numbers.json"
    call("evaluate", run, "--episodes", 5, "--seed", 5, "--out", out)
    printed, numbers = capsys.readouterr().out, json.loads(out.read_text())
    saved = read_policy(run)
    keys = jax.random.split(jax.random.key(5), 3)
    for seed in range(3):
        expected = evaluate(
            PLANE, saved.agent.greedy, saved.actor(seed), keys[seed], 5, discount=0.9
        )
        row = numbers["rows"][seed]
        np.testing.assert_allclose(numbers["played"]["returns"][seed], expected.returns, rtol=1e-5)
        assert row["return"] == pytest.approx(float(expected.returns.mean()), rel=1e-5)
        assert row["discounted"] == pytest.approx(float(expected.discounted.mean()), rel=1e-5)
        assert row["low"] <= row["return"] <= row["high"]
    means = [row["return"] for row in numbers["rows"][:3]]
    assert numbers["rows"][3]["return"] == pytest.approx(np.mean(means))
    assert "low" not in numbers["rows"][3], "three seeds make no interval"
    assert "m on d, played in plane" in printed and "discounted (0.9)" in printed
    assert "score" not in printed


def test_one_seed_of_the_best_policies(run: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "numbers.json"
    call("evaluate", run, "--episodes", 2, "--best", "--training-seed", 1, "--out", out)
    numbers = json.loads(out.read_text())
    assert [row["seed"] for row in numbers["rows"]] == ["1"]
    assert numbers["policy"]["selection"] in capsys.readouterr().out
    call("evaluate", run, "--episodes", 2, "--training-seed", 1, "--out", out)
    assert json.loads(out.read_text())["rows"][0]["return"] != numbers["rows"][0]["return"]


def test_a_gif_of_an_episode(run: Path, tmp_path: Path, capsys: Any) -> None:
    film = tmp_path / "film.gif"
    call("evaluate", run, "--episodes", 1, "--training-seed", 0, "--video", film)
    with Image.open(film) as image:
        assert 2 <= image.n_frames <= PLANE.max_episode_steps
        assert np.asarray(image.convert("L")).std() > 5
    # The film is an episode of the policy: one of this start state earns the same.
    state = PLANE.reset(jax.random.key(0), 1)
    saved, total = read_policy(run), 0.0
    for _ in range(PLANE.max_episode_steps):
        action, _ = saved.agent.greedy(saved.actor(0), jax.random.key(0), state.observation, ())
        state, out = PLANE.step(jax.random.key(0), state, action)
        total += float(out.reward[0])
    assert f"return {total:.4g})" in capsys.readouterr().out


def test_a_field_is_filmed_over_time_above_it_the_one_without_control(
    tmp_path: Path, monkeypatch: Any
) -> None:
    short = KS_CONTROL._replace(step=ks_control(FOUR._replace(max_episode_steps=6)).step)
    saved = untrained(short, tmp_path)
    film, still, policy = tmp_path / "film.gif", tmp_path / "film.png", Policy(saved)
    earned = video.record(policy, short, film, 0)
    assert video.record(policy, short, still, 0) == earned
    with Image.open(film) as image, Image.open(still) as last:
        assert image.n_frames == 2 and image.size == last.size, "two of six steps, the last"
        image.seek(1)
        apart = np.abs(np.asarray(image.convert("RGB"), int) - np.asarray(last, int))
        assert apart.mean() < 2, "the picture is the film's last frame"
    # The painter is given what was played: an episode of the policy, and one without actions.
    given: dict[str, Any] = {}

    def painter(name: str, beside: np.ndarray) -> Any:
        given.update(name=name, beside=beside)
        return lambda seen: given.update(seen=seen) or np.zeros((2, 2, 3), np.uint8)

    monkeypatch.setattr(video, "painter", painter)
    video.record(policy, short, still, 0)
    field = KS_CONTROL.reset(jax.random.key(0), 1).inner
    np.testing.assert_array_equal(given["seen"][0], field[0])
    for row in given["beside"]:
        np.testing.assert_allclose(row, field[0], atol=1e-5)
        field = advance(FOUR, field, np.zeros((1, 4), np.float32))
    assert np.abs(given["seen"][2] - given["beside"][2]).max() > 0.01


def test_gymnasium_draws_its_own(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    gymnasium = pytest.importorskip("gymnasium")

    class Spot(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Box(-1, 1, (2,))
        metadata = {"render_modes": ["rgb_array"]}

        def __init__(self, render_mode: str, broken: bool | None = False) -> None:
            self.render_mode, self.time, self.broken = render_mode, 0, broken

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            return np.zeros(2), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            if self.broken is None and self.time == 2:
                raise SystemExit(0)
            return np.zeros(2), 2.0, self.time == 3, False, {}

        def render(self) -> Any:
            if self.broken:
                raise RuntimeError("no\nOpenGL")
            return np.full((8, 8, 3), 60 * self.time, np.uint8)

    for name, broken in (("Spot-v0", False), ("Broken-v0", True), ("Ends-v0", None)):
        gymnasium.register(name, entry_point=Spot, kwargs={"broken": broken})
        monkeypatch.setitem(gymnasium.registry, name, gymnasium.registry[name])
    film, policy = tmp_path / "film.gif", load_policy(run)
    env = PLANE._replace(name="gymnasium/Spot-v0")
    assert video.record(policy, env, film, 0) == 6.0
    with Image.open(film) as image:
        assert image.n_frames == 3
    with pytest.raises(
        Exception, match="found 'no OpenGL', expected gymnasium/Broken-v0 to draw.*MUJOCO_GL"
    ):
        video.record(policy, PLANE._replace(name="gymnasium/Broken-v0"), film, 0)
    with pytest.raises(ConfigError, match="gymnasium/Ends-v0', expected .*; SystemExit: 0"):
        video.record(policy, PLANE._replace(name="gymnasium/Ends-v0"), film, 0)


ROBOT = """
import gymnasium, numpy as np
class Robot(gymnasium.Env):
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        box = lambda size: gymnasium.spaces.Box(-1, 1, (size,))
        self.observation_space = gymnasium.spaces.Dict(arm=box(1), base=box(1))
        self.action_space = box(2)
    def reset(self, seed=None, options=None):
        self.time = 0
        return {"arm": np.zeros(1), "base": np.ones(1)}, {}
    def step(self, action):
        self.time += 1
        return {"arm": np.zeros(1), "base": np.ones(1)}, np.array([1.5]), False, False, {}
    def render(self):
        return np.full((8, 8, 3), 20 * self.time, np.uint8)
def make(mode="rgb_array"):
    return gymnasium.wrappers.TimeLimit(Robot(mode), 4)
def plain():
    return make(None)
class Declared(Robot):
    metadata = {"render_modes": ["rgb_array"]}
def declared():
    return gymnasium.wrappers.TimeLimit(Declared(), 4)
gymnasium.register("Robot-v0", entry_point=make)
"""


@pytest.mark.parametrize("name", ["robot_env:make", "robot_env:Robot-v0", "robot_env:declared"])
def test_a_users_environment_is_filmed(
    name: str, run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "robot_env.py").write_text(ROBOT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "robot_env", raising=False)
    trust(name, "robot_env:plain")
    film = tmp_path / "film.gif"
    call("evaluate", run, "--environment", name, "--episodes", 1, "--video", film)
    assert "return 6)" in capsys.readouterr().out
    with Image.open(film) as image:
        assert image.n_frames == 4
    played = ("--environment", "robot_env:plain", "--episodes", 1, "--video", film)
    said = refused(capsys, "evaluate", run, *played)
    assert "found 'render_mode None', expected 'rgb_array'" in said and "its factory" in said


def test_what_evaluate_refuses(run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def said(*options: Any) -> str:
        return refused(capsys, "evaluate", run, *options)

    assert "observation_size 2, as the policy has" in said("--environment", "pendulum")
    assert "did you mean pendulum" in said("--environment", "pendulm")
    assert "--episodes: found 0" in said("--episodes", 0)
    assert "training seed: found 3, expected 0 to 2" in said("--training-seed", 3)
    assert "--video: found" in said("--video", tmp_path / "film.avi")
    assert "--out: found" in said("--out", tmp_path / "no" / "numbers.json")
    assert "no trained policy" in refused(capsys, "evaluate", tmp_path)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert "pip install 'jaxrl-rollouts[video]'" in said("--video", tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


def test_export_writes_the_policy(run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    pytest.importorskip("flatbuffers")
    from jaxrl_rollouts.exported import load_exported

    file, seen = tmp_path / "policy.stablehlo", np.ones((3, 2), np.float32)
    call("export", run, "--out", file, "--training-seed", 2, "--best")
    expected = load_policy(run, 2, best=True)(seen)
    np.testing.assert_allclose(load_exported(file)(seen), expected, rtol=1e-5)
    assert str(file) in capsys.readouterr().out
    assert "--out" in refused(capsys, "export", run, "--out", tmp_path / "no" / "policy")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    assert "[export]" in refused(capsys, "export", run, "--out", tmp_path / "other")


def test_seeds_that_diverged_are_named_and_not_played(tmp_path: Path, capsys: Any) -> None:
    agent = make_sac(CONFIG, 2, 2)
    actors = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 3)).actor
    for name, bad in (("some", [1]), ("all", [0, 1, 2])):
        lost = jax.tree.map(lambda x, bad=bad: x.at[np.array(bad)].set(np.nan), actors)
        save_policy(tmp_path / name, CONFIG, lost, PLANE, method="m", dataset="d")
    call("evaluate", tmp_path / "some", "--episodes", 5, "--out", tmp_path / "n.json")
    assert "note: training seed 1 diverged" in capsys.readouterr().err
    rows = json.loads((tmp_path / "n.json").read_text())["rows"]
    assert [row["seed"] for row in rows] == ["0", "2", "all"]
    with pytest.raises(SystemExit):
        call("evaluate", tmp_path / "all", "--episodes", 5)
    assert "training seed 2: its parameters are not finite" in capsys.readouterr().err
    wrong = refused(capsys, "evaluate", tmp_path / "some", "--training-seed", 1)
    assert "take another seed" in wrong

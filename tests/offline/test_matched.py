"""Whether data and environment are of the same thing: columns, bounds, limits, ends, claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from helpers_environments import HIGH, LOW, Cart, played  # noqa: E402

from jaxrl_rollouts.compare.grid import Cell  # noqa: E402
from jaxrl_rollouts.errors import (  # noqa: E402
    ConfigError,
    DataError,
)
from jaxrl_rollouts.offline.commands import collect  # noqa: E402
from jaxrl_rollouts.offline.data import from_arrays, load  # noqa: E402
from jaxrl_rollouts.offline.data.catalogue import CATALOGUE  # noqa: E402
from jaxrl_rollouts.offline.environments import from_gymnasium  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.offline.environments.terminations import (  # noqa: E402
    hopper,
    hopper_from_x,
)
from jaxrl_rollouts.offline.job import train  # noqa: E402
from jaxrl_rollouts.offline.matching import (  # noqa: E402
    environment_of,
    is_simulator,
    matched,
    unlike,  # noqa: E402
)
from jaxrl_rollouts.offline.policy import load_policy  # noqa: E402
from jaxrl_rollouts.offline.recipes import recipe  # noqa: E402
from jaxrl_rollouts.offline.report import add_main_job  # noqa: E402
from jaxrl_rollouts.offline.saved_policies import read_policy  # noqa: E402
from jaxrl_rollouts.offline.task import behaviour, termination_of, warnings_of  # noqa: E402
from jaxrl_rollouts.offline.worlds.fit import WorldModelConfig  # noqa: E402
from jaxrl_rollouts.reports.claims import Claim, counted  # noqa: E402
from jaxrl_rollouts.reports.report import Report  # noqa: E402

SMALL: dict[str, Any] = {"hidden_dims": (8,), "batch_size": 16, "per_iteration": 2, "steps": 4}
BC = recipe("bc", "smoke", **SMALL)
QUICK: dict[str, Any] = {"seeds": 1, "evaluations": 2, "episodes": 2}


@pytest.mark.parametrize(("first", "rule"), [((), hopper), ((7.0,), hopper_from_x)])
def test_the_rule_for_hopper_follows_the_columns(first: tuple[float, ...], rule: Any) -> None:
    row = np.array([*first, 1.2, 0.05, *np.zeros(9)], np.float32)
    fallen = row.copy()
    fallen[len(first)] = 0.6
    states = np.tile(row, (40, 1))
    states[:, -1] = np.arange(40) / 10  # a speed
    following = np.concatenate([states[1:], fallen[None]])
    ends = np.arange(40) == 39
    arrays = {"observations": states, "actions": np.zeros((40, 3)), "rewards": np.ones(40)}
    arrays |= {"terminals": ends, "timeouts": ~ends & False, "next_observations": following}
    dataset = from_arrays(**arrays, environment="Hopper-v3", name="neorl/hopper")
    env, config = environment_of(dataset, "none"), WorldModelConfig()
    found = termination_of(dataset, env, config)
    assert found is rule
    assert np.asarray(rule(states, None, following)).tolist() == ends.tolist()
    shifted = np.roll(following, 1, 1)
    moved = from_arrays(**arrays | {"next_observations": shifted}, environment="Hopper-v3")
    with pytest.raises(DataError, match="rule of Hopper-v3 ends 39 of 39 rows inside episodes"):
        termination_of(moved, env, config)
    learned = replace(config, termination="learned")
    assert termination_of(moved, env, learned) is config.ending


def write_own(path: Path, arrays: dict[str, np.ndarray], **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            file[key] = values
        file.attrs.update(attributes)
    return path


def endless() -> Any:
    return Cart()


def test_bounds_and_time_limit_are_the_environments_and_the_datas_where_none_are_declared(
    tmp_path: Path,
) -> None:
    arrays = played()
    path = write_own(tmp_path / "own.hdf5", arrays)
    result = train(path, BC, environment=endless, **QUICK)
    dataset, env = result.source.dataset, result.source.env
    np.testing.assert_allclose([dataset.action_low, dataset.action_high], [[LOW], [HIGH]])
    np.testing.assert_allclose(
        dataset.transitions.actions, arrays["actions"].reshape(-1, 1) / HIGH, atol=1e-6
    )
    assert env.max_episode_steps == 15 and "longest of the data" in env.notes[0]
    said = " ".join(warnings_of(dataset, env, None, imagines=False))
    assert "[-0.4, 0.4]" in said and "the bounds of Cart, as none are declared" in said
    assert "episodes end after 15 steps" in said
    wide = write_own(tmp_path / "wide.hdf5", arrays | {"actions": 2 * arrays["actions"]})
    with pytest.raises(DataError, match=r"no declared bounds.*\[-0.4, 0.4\]"):
        train(wide, BC, environment=endless, **QUICK)
    far = write_own(tmp_path / "far.hdf5", arrays | {"actions": 9 * arrays["actions"]})
    for environment in (endless, "none"):
        with pytest.raises(DataError, match="magnitude 3.58.*, expected within.*--action-low"):
            train(far, BC, environment=environment, **QUICK)


def test_columns_are_matched_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = gymnasium.spaces.Box(-9, 9, (1,), np.float64)

    class Parts(Cart):
        observation_space = gymnasium.spaces.Dict(place=box, speed=box)

        def reset(self, **options: Any) -> tuple[Any, dict]:
            seen, facts = super().reset(**options)
            return {"place": seen[:1], "speed": seen[1:]}, facts

        def step(self, action: np.ndarray) -> tuple:
            seen, *rest = super().step(action)
            return {"place": seen[:1], "speed": seen[1:]}, *rest

    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(Parts(), 10)

    given = {"action_low": LOW, "action_high": HIGH}
    arrays = played()
    turned = {k: v[:, ::-1] if "obs" in k else v for k, v in arrays.items()}
    path = write_own(tmp_path / "a.hdf5", turned, observation_columns=["speed", "place"], **given)
    dataset, env = matched(load(path), make)
    assert dataset.columns == env.columns == ("speed", "place")
    state = env.reset(jax.random.key(1), 4).observation
    plain = environment_of(from_arrays(**arrays, **given), make)
    same = plain.reset(jax.random.key(1), 4).observation
    np.testing.assert_array_equal(state, same[:, ::-1])
    folder = train(load(path), BC, environment=make, **QUICK).save(tmp_path)
    saved = read_policy(folder / "policy")
    assert saved.facts["columns"] == ["speed", "place"]
    seen = saved.sees(from_gymnasium(make)).reset(jax.random.key(1), 4).observation
    np.testing.assert_array_equal(seen, state)
    policy, parts = load_policy(tmp_path), make().reset(seed=0)[0]
    shown = policy({"speed": parts["speed"], "place": parts["place"]})
    np.testing.assert_array_equal(policy(parts), shown)
    np.testing.assert_array_equal(shown, policy(np.append(parts["speed"], parts["place"])))
    with pytest.raises(DataError, match="observation: found no part place, expected one, of"):
        policy({"speed": parts["speed"]})
    collected = tmp_path / "rows.hdf5"
    monkeypatch.setattr(
        "jaxrl_rollouts.offline.environments.registry.make", lambda _: from_gymnasium(make)
    )
    collect(collected, "own", str(tmp_path), steps=20)
    with h5py.File(collected) as file:
        assert file.attrs["observation_columns"].tolist() == ["speed", "place"]
        acted = [policy(row) for row in np.asarray(file["observations"])]
        np.testing.assert_allclose(np.asarray(file["actions"]), acted, atol=1e-6)
    with pytest.raises(ConfigError, match="the columns speed, place, as the policy has"):
        saved.sees(from_gymnasium(make)._replace(columns=("place", "depth")))
    write_own(path, turned, observation_columns=["speed", "depth"], **given)
    with pytest.raises(DataError, match="only one of the two has: depth, place"):
        environment_of(load(path), make)


def test_a_claim_compares_episodes_of_one_length(tmp_path: Path) -> None:
    rows = {"observations": np.random.default_rng(0).normal(size=(400, 2)) * 0.1}
    rows |= {"actions": np.zeros((400, 1)), "rewards": -np.ones(400), "terminals": np.zeros(400)}
    ends = np.arange(400) % 100 == 99
    given = {"action_low": LOW, "action_high": HIGH, "name": "minus"}
    dataset = from_arrays(**rows, timeouts=ends, **given)

    def make(steps: int) -> Any:
        return lambda: gymnasium.wrappers.TimeLimit(Cart(), steps)

    result = train(dataset, BC, environment=make(20), **QUICK)
    assert behaviour(result.source).tolist() == [-20.0] * 4
    report = Report("offline", "smoke", {}, "run offline", 1)
    add_main_job(report, result.source, Cell.of(result.trained))
    (claim,) = report.claims
    assert claim.verdict == "undecided" and not claim.holds
    assert claim.undecided == "episodes of the data are cut after 100 steps, those in Cart after 20"
    assert any(claim.undecided in note for note in report.notes)
    assert Claim.from_json(claim.to_json(), "x") == claim
    assert counted(report.claims) == "0 of 1 hold, 1 undecided"
    assert unlike(dataset, environment_of(dataset, make(100))) == ""
    longer = unlike(dataset, environment_of(dataset, make(300)))
    assert longer == "episodes of the data are cut after 100 steps, those in Cart after 300"
    apart = [30, 100, 230, 399]  # of which no two are cut at one length
    ragged = from_arrays(**rows, timeouts=np.isin(np.arange(400), apart), **given)
    assert "the longest episode of the data has 169" in unlike(ragged, PENDULUM_LIKE)
    ends_too = replace(dataset, transitions=dataset.transitions._replace(terminations=ends[:-4]))
    assert "episodes of the data terminate, those in x do not" in unlike(ends_too, PENDULUM_LIKE)
    whole = environment_of(dataset, make(100))
    assert unlike(dataset, whole, np.array([100.0, 100.0])) == ""
    shorter = unlike(dataset, whole, np.array([100.0, 62.5]))
    assert shorter.startswith("episodes in Cart end before the limit (after 62.5 steps")
    assert unlike(ends_too, whole, np.array([62.5])) == "", "both may end before the limit"


PENDULUM_LIKE = PENDULUM._replace(name="x", max_episode_steps=100)


def antmaze(folder: Path, goals: list[tuple[float, float]]) -> Path:
    """A file in the layout of D4RL's AntMaze: a reward at the goal alone, no next_observations."""
    rng = np.random.default_rng(0)
    steps, count = 12, 5
    states = rng.normal(0, 0.1, (count, steps, 29)).astype(np.float32)
    for episode, goal in enumerate(goals):
        way = np.linspace(0, 1, steps)[:, None]
        states[episode, :, :2] += way * np.float32(goal)
    last = np.zeros((count, steps), bool)
    last[: len(goals), -1] = True
    cut = np.zeros_like(last)
    cut[len(goals) :, -1] = True
    arrays = {"observations": states.reshape(-1, 29), "rewards": last.reshape(-1) * 1.0}
    arrays |= {"actions": rng.uniform(-1, 1, (count * steps, 8)).astype(np.float32)}
    arrays |= {"terminals": last.reshape(-1), "timeouts": cut.reshape(-1)}
    return write_own(folder / "antmaze-umaze-v2.hdf5", arrays)


def test_antmaze_loads_by_name_ends_at_its_goal_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path))
    antmaze(tmp_path, [(0.5, 8.5)] * 4)
    dataset = load("antmaze-umaze-v2", download=False)
    env = environment_of(dataset)
    assert not is_simulator(env) and env.max_episode_steps == 700
    assert "no package has this simulator" in env.notes[0]
    assert any(env.notes[0] in fact for fact in warnings_of(dataset, env, None, imagines=False))
    rule = termination_of(dataset, env, WorldModelConfig())
    there = np.zeros((3, 29), np.float32)
    there[:, :2] = [(0.5, 8.4), (0.5, 7.8), (0, 0)]
    assert np.asarray(rule(there, None, there)).tolist() == [True, False, False]
    assert dataset.transitions.rewards.sum() == dataset.transitions.terminations.sum() == 4
    result = train(dataset, recipe("td3_bc", "smoke", **SMALL), **QUICK)
    assert np.isfinite(result.estimated_value).all() and result.returns is None
    antmaze(tmp_path, [(0.5, 8.5), (8.0, 0.5)])  # two goals: none is the rule
    several = load("antmaze-umaze-v2", download=False)
    assert termination_of(several, env, WorldModelConfig()) == WorldModelConfig().ending


@pytest.mark.parametrize("name", ["pen-human-v1", "kitchen-mixed-v0", "maze2d-umaze-v1"])
def test_d4rls_other_tasks_train_without_a_simulator(name: str) -> None:
    columns = {"pen": 45, "kit": 60, "maz": 4}[name[:3]]
    rng, flags = np.random.default_rng(0), np.zeros(40, bool)
    states = rng.normal(size=(41, columns)).astype(np.float32) + 3
    arrays = {"observations": states[:-1], "actions": np.zeros((40, 2)), "rewards": flags * 1.0}
    arrays |= {"terminals": flags, "timeouts": np.arange(40) == 39}
    entry = CATALOGUE[name]
    given = {"environment": entry.environment, "name": name, "next_observations": states[1:]}
    dataset = from_arrays(**arrays, **given)
    env, config = environment_of(dataset), WorldModelConfig()
    assert not is_simulator(env) and env.notes[0].startswith(f"{entry.environment}: ")
    rule = termination_of(dataset, env, config)
    if name.startswith("kitchen"):
        assert rule is config.ending
        return
    dropped = states.copy()
    dropped[:, -1 if columns == 4 else 26] = 0.01
    found = np.asarray(rule(None, None, dropped))
    assert found.all() if columns == 45 else not found.any()
    assert not np.asarray(rule(None, None, states)).any()

"""One's own data and one's own environment, or none: from a file to a policy that was played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from helpers_environments import HIGH, LOW, Cart, played  # noqa: E402

from jaxrl_rollouts import plugins  # noqa: E402
from jaxrl_rollouts.compare.grid import Cell  # noqa: E402
from jaxrl_rollouts.ensemble_config import EnsembleConfig  # noqa: E402
from jaxrl_rollouts.errors import (  # noqa: E402
    CheckpointError,
    ConfigError,
    DataError,
    DivergenceError,
)
from jaxrl_rollouts.offline.agents.td3_bc import Td3Bc  # noqa: E402
from jaxrl_rollouts.offline.data import Dataset, Transitions, from_arrays  # noqa: E402
from jaxrl_rollouts.offline.data.inspection import inspect  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.offline.environments.terminations import never  # noqa: E402
from jaxrl_rollouts.offline.job import train  # noqa: E402
from jaxrl_rollouts.offline.matching import check_fits, environment_of, is_simulator  # noqa: E402
from jaxrl_rollouts.offline.policy import load_policy  # noqa: E402
from jaxrl_rollouts.offline.report import result_rows  # noqa: E402
from jaxrl_rollouts.offline.saved_policies import read_policy  # noqa: E402
from jaxrl_rollouts.offline.task import (  # noqa: E402
    check_rewards,
    score_in,
    termination_of,
    verify_checksum,
    warnings_of,
)
from jaxrl_rollouts.offline.worlds.fit import WorldModelConfig, fit_world_models  # noqa: E402
from jaxrl_rollouts.record.context import RunContext  # noqa: E402
from jaxrl_rollouts.record.folder import RunFolder  # noqa: E402

TD3_BC = Td3Bc(
    hidden_dims=(8,), batch_size=16, steps=8, per_iteration=2, actor_lr=1e-3, critic_lr=1e-3
)
LOOKS: dict[str, Any] = {"evaluations": 2, "episodes": 2}
MODEL = WorldModelConfig()


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("test/Own-v0", Cart, max_episode_steps=15)
    yield
    del gymnasium.registry["test/Own-v0"]


def test_an_own_file_of_an_own_environment_gives_a_policy_with_a_return(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "own.hdf5", "w") as file:
        for key, values in played().items():
            file[key] = values
        file.attrs.update({"env_id": "test/Own-v0", "action_low": LOW, "action_high": HIGH})
    folder = RunFolder.create(tmp_path, "own", "test", TD3_BC, "nothing")
    context = RunContext(folder, progress=False)
    outcome = train(tmp_path / "own.hdf5", TD3_BC, **LOOKS, context=context)
    assert outcome.env.name == "gymnasium/test/Own-v0" and outcome.returns.shape == (2,)
    # The reward is minus a distance squared, below 9 in each of 15 steps.
    assert ((outcome.returns < 0) & (outcome.returns > -135)).all()
    assert read_policy(folder.path).environment == "gymnasium/test/Own-v0"
    np.testing.assert_allclose(outcome.source.dataset.action_high, [HIGH])
    # It acts in the environment's own units: one large observation reaches the bound.
    actions = load_policy(folder.path, 0)(1e3 * np.random.default_rng(0).normal(size=(64, 2)))
    np.testing.assert_allclose(np.abs(actions).max(), HIGH, rtol=0.05)
    env = gymnasium.make("test/Own-v0")
    observation, _ = env.reset(seed=0)
    env.step(load_policy(folder.path, 1)(observation))  # asserts that its space has the action


def test_without_a_simulator_the_method_trains_and_nothing_is_evaluated(tmp_path: Path) -> None:
    dataset = from_arrays(**played(), action_low=LOW, action_high=HIGH, name="robot")
    folder = RunFolder.create(tmp_path, "own", "test", TD3_BC, "nothing")
    context = RunContext(folder, progress=False)
    outcome = train(dataset, TD3_BC, **LOOKS, context=context)
    assert outcome.env is None and outcome.returns is None and outcome.true_value is None
    assert outcome.estimated_value.shape == (2,) and np.isfinite(outcome.estimated_value).all()
    assert set(outcome.history.records[-1].metrics) >= {"estimated_value"}
    saved = read_policy(folder.path)
    assert saved.environment == "" and saved.facts["returns"] is None
    np.testing.assert_allclose(saved.facts["action_high"], [HIGH])
    with pytest.raises(ConfigError, match="a simulator to play in"):
        outcome.source.env.reset(None, 1)
    # It acts in the bounds the data declared; there is no best without an evaluation.
    np.testing.assert_allclose(outcome.policy(1).action_high, [HIGH])
    with pytest.raises(ConfigError, match="best"):
        outcome.policy(1, best=True)
    with pytest.raises(CheckpointError, match="no policy of a best evaluation.*best=False takes"):
        read_policy(folder.path, best=True)
    assert len(repr(outcome)) < 600 and "estimated_value " in repr(outcome)


def test_what_dataset_and_environment_say_of_each_other() -> None:
    dataset = from_arrays(**played(), action_low=LOW, action_high=HIGH, name="robot")
    alone = environment_of(dataset)
    assert not is_simulator(alone) and alone.max_episode_steps == 15
    np.testing.assert_allclose([alone.action_low, alone.action_high], [[LOW], [HIGH]])
    assert is_simulator(environment_of(dataset, "test/Own-v0"))
    assert not is_simulator(environment_of(replace(dataset, environment="test/Own-v0"), "none"))
    lost = replace(dataset, environment="Nowhere-v0")
    with pytest.raises(ConfigError, match="environment of robot: found 'Nowhere-v0'.* or none"):
        environment_of(lost)


def rows_of(observations: int, actions: int, largest: float = 1.0) -> Transitions:
    flags = np.zeros(4, bool)
    states = np.zeros((4, observations), np.float32)
    acted = np.full((4, actions), largest, np.float32)
    return Transitions(states, acted, np.zeros(4, np.float32), states, flags, flags)


def bounded_by(bound: float | None) -> dict[str, Any]:
    if bound is None:
        return {}
    return {"action_low": np.float32([-bound]), "action_high": np.float32([bound])}


@pytest.mark.parametrize(
    ("rows", "attributes", "bound", "says"),
    [
        (rows_of(5, 1), {}, None, "observations: found 5 columns, expected 3, as pendulum has"),
        (rows_of(3, 2), {}, None, "actions: found 2 columns, expected 1"),
        (rows_of(3, 1, 1.5), {}, None, "magnitude 1.5"),
        (rows_of(3, 1), {"format": "d4rl"}, None, r"no declared bounds.* pendulum has \[-2, 2\]"),
        (rows_of(3, 1), {"format": "d4rl"}, 0.4, r"found \[-0.4, 0.4\], expected \[-2, 2\]"),
        (rows_of(3, 1), {"format": "d4rl"}, 2.0, None),
        (rows_of(3, 1), {"format": "d4rl"}, 1.0, None),  # declared to be rescaled already
        (rows_of(3, 1), {}, None, None),  # rows of our own
    ],
)
def test_a_dataset_that_does_not_fit_is_refused(
    rows: Transitions, attributes: dict, bound: float | None, says: str | None
) -> None:
    dataset = Dataset("own", rows, None, Path("(x)"), "", attributes, **bounded_by(bound))
    if says is None:
        return check_fits(dataset, PENDULUM)
    with pytest.raises(DataError, match=says):
        check_fits(dataset, PENDULUM)


def test_a_file_that_does_not_fit_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(DataError, match="2 columns, expected 3"):
        train(
            from_arrays(**played(), action_low=LOW, action_high=HIGH), "ravl", environment=PENDULUM
        )


def test_a_dataset_without_rewards_is_for_imitation_alone() -> None:
    dataset = Dataset("play", rows_of(3, 1), None, Path("(x)"), "", {"rewards": "none"})
    check_rewards(dataset, "bc")
    with pytest.raises(DataError, match="rewards for ravl"):
        check_rewards(dataset, "ravl")


def test_where_no_rule_is_known_the_learned_one_is_taken_and_said() -> None:
    config = MODEL
    dataset = from_arrays(**played(), action_low=LOW, action_high=HIGH, name="robot")
    env = environment_of(dataset)
    assert termination_of(dataset, env, config) is config.ending
    with pytest.raises(ConfigError, match="observation columns: found 2, expected one of 11, 12"):
        termination_of(replace(dataset, environment="Hopper-v2"), env, config)
    assert termination_of(dataset, PENDULUM, config) is never
    assert (
        termination_of(dataset, PENDULUM, replace(config, termination="learned")) is config.ending
    )
    said = " ".join(warnings_of(dataset, env, config, imagines=True))
    assert "rescaled to [-1, 1] from the declared [-0.4, 0.4]" in said
    assert "learned from the dataset (no rule is known)" in said
    assert "Not evaluated" in said
    assert "learned" not in " ".join(warnings_of(dataset, env, config, imagines=False))
    assert warnings_of(replace(dataset, action_low=None), PENDULUM, config, imagines=True) == []


def test_a_run_goes_on_with_the_data_it_began_with(tmp_path: Path) -> None:
    arrays = played()
    context = RunContext(RunFolder.at(tmp_path / "run", "cart"), progress=False)
    given: dict[str, Any] = {"action_low": LOW, "action_high": HIGH, "name": "cart"}
    verify_checksum(from_arrays(**arrays, **given), context)
    verify_checksum(from_arrays(**arrays, **given), context)
    other = from_arrays(**arrays | {"rewards": -arrays["rewards"]}, **given)
    verify_checksum(replace(other, sha256=""), context)  # made on the spot
    verify_checksum(other, None)
    said = "run.json: data.cart.sha256: found .*start a new run"
    for method in ("bc", "ravl"):
        with pytest.raises(DataError, match=said):
            train(other, method, preset="smoke", environment="none", context=context)


def test_ends_without_a_successor_are_learned_as_values_and_told() -> None:
    arrays = played()
    ended = arrays["terminals"].sum()
    given: dict[str, Any] = {"action_low": LOW, "action_high": HIGH, "name": "robot"}
    whole = from_arrays(**arrays, **given)
    arrays.pop("next_observations")
    alone = from_arrays(**arrays, **given)
    assert alone.transitions.terminations.sum() == ended > 0
    assert not alone.with_successors.terminations.any()
    env = environment_of(alone, "none")
    says = f"robot: the successors of the {ended} terminal rows are not in the data"
    assert warnings_of(alone, env, MODEL, imagines=False)[0].startswith(says)
    assert says not in " ".join(warnings_of(whole, env, MODEL, imagines=False))
    kinds = {one.kind for one in inspect(alone).suspicions}
    assert any(kind.startswith("terminals without a successor") for kind in kinds)
    config = EnsembleConfig(
        members=2, elites=2, hidden_dims=(8,), weight_decay=(0.0,), max_epochs=1
    )
    sets = alone, alone.with_successors, alone.transitions
    fits = (jax.tree.leaves(fit_world_models(config, rows, seeds=1).worlds) for rows in sets)
    seen, known, all_rows = (np.concatenate([np.ravel(x) for x in leaves]) for leaves in fits)
    np.testing.assert_array_equal(seen, known)
    assert not np.array_equal(known, all_rows)


def test_without_a_simulator_the_promise_is_held_against_what_the_rows_are_worth() -> None:
    arrays = played()
    dataset = from_arrays(**arrays, action_low=LOW, action_high=HIGH, name="robot")
    outcome = train(dataset, TD3_BC, **LOOKS, environment="none")
    behaviour, ours = result_rows(outcome.source, "td3_bc", Cell.of(outcome.trained), 0.9)
    ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"]) + 1
    whole = np.split(arrays["rewards"], ends)[:-1]  # what was cut short counts for nothing
    worth = [(rewards * 0.9 ** np.arange(len(rewards))).sum() for rewards in whole]
    assert behaviour["true value"] == pytest.approx(np.mean(worth), rel=1e-5)
    assert ours["return"] == "not evaluated" and np.isfinite(ours["estimated value"]).all()


def test_a_file_names_no_code_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text("open('ran', 'w')\ndef make():\n    return 'test/Own-v0'\n")
    dataset = from_arrays(**played(), action_low=LOW, action_high=HIGH, name="robot")
    for name in ("evil:make", "gymnasium/evil:Own-v0", "evil:Own-v0"):
        with pytest.raises(ConfigError, match="no code is imported"):
            environment_of(replace(dataset, environment=name))
    with pytest.raises(ConfigError, match="no code is imported"):
        environment_of(replace(dataset, environment=None, name="hopper-x:make"))
    with pytest.raises(ConfigError, match="no code to import but what you name"):
        environment_of(dataset, "evil:make")  # out of a configuration, say
    assert not Path("ran").exists()
    plugins.trust("evil:make")
    assert is_simulator(environment_of(dataset, "evil:make"))
    assert Path("ran").exists()


def test_a_divergence_says_which_column_is_extreme(tmp_path: Path) -> None:
    rows = played()
    rows["rewards"][3] = 1e30
    dataset = from_arrays(**rows, action_low=LOW, action_high=HIGH, name="robot")
    says = r"metric \w+ is (nan|inf).*; robot: rewards has 1 extreme number\(s\), first in row 3\."
    with pytest.raises(DivergenceError, match=says):
        train(dataset, TD3_BC, **LOOKS, seeds=1, environment="none")
    env = environment_of(dataset, "none")
    facts = warnings_of(dataset, env, MODEL, imagines=False)
    assert facts[0].startswith("robot: rewards has 1 extreme") and "Check it" in facts[0]


@pytest.mark.parametrize(
    ("name", "environment", "attributes", "where", "want"),
    [
        ("hopper-medium-v2", "Hopper-v2", {}, "mujoco/Hopper-v4", 50.0),
        ("hopper-medium-v2", "Hopper-v2", {}, "pendulum", None),
        ("hopper-medium-v2", "Hopper-v2", {}, "brax/hopper", None),
        ("hopper-medium-v2", "Hopper-v2", {}, "none", None),
        ("mine", "Hopper-v2", {}, "mujoco/Hopper-v4", None),
        ("toy/point-v0", "Point-v0", {"ref_min_score": 0.0, "ref_max_score": 8.0}, "Point-v0", 75),
        ("toy/point-v0", "Point-v0", {"ref_min_score": 0.0, "ref_max_score": 8.0}, "Cart-v0", None),
    ],
)
def test_a_score_is_of_the_datasets_own_environment(
    name: str, environment: str, attributes: dict, where: str, want: float | None
) -> None:
    """Half way between D4RL's references, or three quarters between those of the file."""
    middle = (3234.3 - 20.272305) / 2  # of -20.27 and 3234.3
    returns = np.array([6.0 if attributes else middle])
    rows = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.ones(4)}
    ends = {"terminals": np.zeros(4), "timeouts": np.arange(4) == 3}
    data = from_arrays(**rows, **ends, name=name, environment=environment)
    data = replace(data, attributes={**data.attributes, **attributes})
    found = score_in(data, PENDULUM._replace(name=where), returns)
    assert found is None if want is None else found == pytest.approx(want)

"""Choosing on a linear system whose values are known, and what no verdict is given on."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.choosing import estimates
from jaxrl_rollouts.offline.choosing.choice import Choice
from jaxrl_rollouts.offline.choosing.choose import NETWORKS, ChooseConfig, choose
from jaxrl_rollouts.offline.choosing.clones import clone
from jaxrl_rollouts.offline.choosing.importance import by_importance
from jaxrl_rollouts.offline.choosing.played import values_in
from jaxrl_rollouts.offline.choosing.policies import entries_of
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.data.offsets import with_offset
from jaxrl_rollouts.offline.fitted_q import FqeConfig
from jaxrl_rollouts.offline.saved_policies import policy_of
from jaxrl_rollouts.rollouts import Model, step_result

KEPT, PUSHED, STEPS, DISCOUNT = 0.8, 0.2, 20, 0.9
CONFIG = ChooseConfig(
    replace(NETWORKS, members=4, elites=4, hidden_dims=(32, 32), batch_size=64, max_epochs=25),
    FqeConfig(members=3, hidden_dims=(32,), steps=1500, tau=0.05, lr=3e-3, batch_size=64),
    clone_steps=500,
    draws=500,
)


def log(episodes: int = 40, mean: float = 0.0) -> Dataset:
    """`s' = 0.8 s + 0.2 a + noise` with reward `s`; actions `N(mean, 0.3)`, cut after 20 steps."""
    rng = np.random.default_rng(0)
    states = np.zeros((episodes, STEPS + 1))
    states[:, 0] = rng.normal(0.0, 0.5, episodes)
    actions = np.clip(rng.normal(mean, 0.3, (episodes, STEPS)), -0.99, 0.99)
    for t in range(STEPS):
        noise = 0.02 * rng.normal(size=episodes)
        states[:, t + 1] = KEPT * states[:, t] + PUSHED * actions[:, t] + noise
    last = np.tile(np.arange(STEPS) == STEPS - 1, episodes)
    return offline.from_arrays(
        observations=states[:, :-1].reshape(-1, 1),
        next_observations=states[:, 1:].reshape(-1, 1),
        actions=actions.reshape(-1, 1),
        rewards=states[:, :-1].reshape(-1),
        terminals=np.zeros_like(last),
        timeouts=last,
        name="linear",
    )


def gain(action: float) -> float:
    """Value of a constant action less that of the behaviour, from the same starts."""
    t = np.arange(STEPS)
    return float((DISCOUNT**t * action * (1 - KEPT**t)).sum())


def constant(action: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda seen: np.full((len(seen), 1), action)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return log()


@pytest.fixture(scope="module")
def found(data: Dataset) -> Choice:
    policies: Any = [("up", constant(0.5)), ("same", constant(0.0)), ("down", constant(-0.5))]
    policies += [("nan", constant(np.nan))]
    return choose(policies, data, config=CONFIG, discount=DISCOUNT)


def test_gains_are_those_of_the_system(found: Choice) -> None:
    up, same, down, _ = found.table
    for row, action in ((up, 0.5), (same, 0.0), (down, -0.5)):
        assert row.gain == pytest.approx(gain(action), abs=0.15)
        assert row.gain_low < gain(action) < row.gain_high
    assert found.check.passed and found.check.parts == 8
    assert abs(found.check.off) < 0.2


def test_verdicts(found: Choice) -> None:
    verdicts = {row.policy: row.verdict for row in found.table}
    assert verdicts["up"] == "deploy" and verdicts["down"] == "do not deploy"
    assert verdicts["same"] == "undecided" and verdicts["nan"] == "undecided"
    assert found.verdict == "deploy up" and found.trials(1)[0] == ("up",)
    nan = found.table[3]
    assert "4 of 4 members" in nan.why and nan.members == "0/4"
    assert str(found).startswith("deploy up\n") and "nan, nan" not in str(found)


def test_fitted_q_evaluation_agrees(found: Choice) -> None:
    """Its values go on beyond the cut: `E s_t -> a`, so a constant 0.5 tends to `0.5 / (1 - 0.9)`
    less what the way there costs, `0.5 / (1 - 0.72)`."""
    up, same = found.table[:2]
    assert up.fqe - same.fqe == pytest.approx(0.5 * (1 / 0.1 - 1 / (1 - 0.72)), rel=0.15)
    assert np.isnan(found.table[3].fqe)
    assert found.table[3].why.endswith("no fqe: critics diverged (not finite)")


def test_models_are_fitted_once_and_a_second_call_gives_the_same_bits(
    data: Dataset, found: Choice, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"config": CONFIG, "discount": DISCOUNT}
    policies: Any = [("up", constant(0.5))]
    again = choose(policies, data, ["models"], models=found.models, **more)
    np.testing.assert_array_equal(again.draws[0], found.draws[0])
    folder = tmp_path / "models"
    written = choose(policies, data, ["models"], models=folder, **more)
    read = choose(policies, data, ["models", "dice"], models=folder, **more)
    assert read.table[0].dice > found.table[1].fqe and "dice" in str(read)
    assert np.isnan(written.table[0].dice) and "density" not in read.table[0].why
    np.testing.assert_array_equal(written.draws, read.draws)
    np.testing.assert_array_equal(written.draws, again.draws)
    other = replace(CONFIG, models=replace(CONFIG.models, lr=2e-3))
    with pytest.raises(ConfigError, match="models of these settings"):
        choose(policies, data, ["models"], models=folder, config=other)


def test_it_is_written(found: Choice, tmp_path: Path) -> None:
    file = found.save(tmp_path / "choose.json")
    written = json.loads(file.read_text())
    assert written["verdict"] == "deploy up" and written["rows"][3]["value"] is None
    assert written["rows"][0]["gain"] == pytest.approx(found.table[0].gain)
    rows = list(csv.DictReader((tmp_path / "choose.csv").open()))
    assert [row["policy"] for row in rows] == ["up", "same", "down", "nan"]
    assert (tmp_path / "choose.png").stat().st_size > 5000
    with pytest.raises(ConfigError, match="ends in .json"):
        found.save(tmp_path / "choose.txt")


def test_models_that_err_more_than_nothing_changes_allow_no_verdict(data: Dataset) -> None:
    """Next states that have nothing to do with the states: no model predicts them."""
    rows = data.transitions
    jumps = 5 * np.random.default_rng(0).normal(size=rows.observations.shape)
    still = rows.observations + 1e-3 * jumps
    bad = replace(data, transitions=rows._replace(next_observations=still.astype(np.float32)))
    quick = replace(CONFIG, models=replace(CONFIG.models, max_epochs=1), clone_steps=250)
    said = choose([("up", constant(0.5))], bad, ["models"], config=quick)
    assert said.verdict == "undecided" and "nothing changes" in said.table[0].why


def test_importance_sampling_of_the_behaviour_is_its_mean_return(data: Dataset) -> None:
    rng = np.random.default_rng(0)
    cut = estimates.cut(data, DISCOUNT, 128, 10, rng)
    alone = cut._replace(part=np.zeros_like(cut.part))
    rows = data.transitions
    one = clone(rows, np.zeros(len(data), int), jax.random.key(0), steps=500)
    values, sizes = by_importance(alone, one, [one], None)
    np.testing.assert_allclose(values, alone.returns.mean(), rtol=1e-6)
    np.testing.assert_allclose(sizes, 40.0)
    # The clone is that of a normal before the tanh; the data's mean is 0, its deviation 0.3.
    keys = jax.random.split(jax.random.key(1), 400)
    actor = jax.tree.map(lambda x: x[0], one.actors)
    drawn = jax.vmap(lambda k: one.agent.policy(actor, k, jnp.zeros((1, 1)), ())[0])(keys)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.06)
    assert float(drawn.std()) == pytest.approx(0.3, abs=0.06)


def test_a_policy_that_needs_its_last_action_is_played_with_it() -> None:
    """It acts 0.1 more than before: rewards 0.1, 0.2, ... where the reward is the action."""

    def step(params: Any, key: Any, state: Any, action: Any, member: Any) -> tuple:
        return state, step_result(len(state), reward=action[:, 0])

    def policy(actor: Any, key: Any, seen: jax.Array, memory: jax.Array) -> tuple:
        return seen[:, 2:3] + 0.1, memory + 1

    memory, start, key = jnp.zeros((6, 1)), jnp.ones((6, 2)), jax.random.key(0)
    given: Any = (Model(step), None, policy, None, memory, start, key)
    more: dict[str, Any] = {"members": 3, "discount": 0.5, "horizon": 4}
    values, seen, _, valid = values_in(*given, **more, shows=1)
    want = sum(0.5**t * 0.1 * (t + 1) for t in range(4))
    np.testing.assert_allclose(values, want, rtol=1e-6)
    assert seen.shape == (4, 6, 4) and valid.all()


def test_values_in_an_ensemble_are_each_rows_own_members() -> None:
    """Member `m` pays `m + 1` for every step and ends after three."""

    def step(pay: jax.Array, key: Any, state: jax.Array, action: Any, member: Any) -> tuple:
        del key, action
        return state + 1, step_result(len(state), reward=pay[member], terminated=state[:, 0] >= 2)

    def policy(actor: Any, key: Any, seen: jax.Array, memory: tuple) -> tuple:
        return jnp.zeros((len(seen), 2)), memory

    pay, start = jnp.array([1.0, 2.0, 3.0]), jnp.zeros((5, 1))
    given: Any = (Model(step), pay, policy, None, (), start, jax.random.key(0))
    values, _, _, valid = values_in(*given, members=3, discount=0.5, horizon=8)
    np.testing.assert_allclose(values, 1.75 * np.array([1, 2, 3, 1, 2]))
    np.testing.assert_array_equal(valid.sum(0), 3)


def test_observations_are_those_of_the_policys_own_offset(data: Dataset) -> None:
    config = BcConfig(hidden_dims=(8,))
    agent = config.make(1, 1)
    actors = jax.vmap(lambda key: agent.init(key).actor)(jax.random.split(jax.random.key(0), 2))
    saved = policy_of(config, actors, sizes=(1, 1), method="bc")
    states, actor = jnp.linspace(-1, 1, 5)[:, None], saved.actor(1)
    want = agent.greedy(actor, jax.random.key(0), states, ())[0]
    for log_of, shift in ((data, 0.0), (with_offset(data, np.array([7.0])), 7.0)):
        (entry,) = entries_of([saved], log_of, sampled=False, best=False)
        assert entry.names == ("bc/0", "bc/1")
        found = entry.agent.policy(actor, jax.random.key(0), states - shift, ())[0]
        np.testing.assert_allclose(found, want, atol=1e-5)
        (own,) = entries_of([("f", lambda s: 0.1 * s)], log_of, sampled=False, best=False)
        found = own.agent.policy(None, jax.random.key(0), states - shift, ())[0]
        np.testing.assert_allclose(found, 0.1 * states, atol=1e-5)


def test_what_cannot_be_chosen_from_is_named(data: Dataset, found: Choice) -> None:
    up = ("up", constant(0.5))

    def refused(match: str, *given: Any, **more: Any) -> None:
        with pytest.raises((ConfigError, DataError), match=match):
            choose(*given, config=CONFIG, **more)

    refused("estimators: found \\['is'\\], expected models or fqe", [up], data, ["is"])
    refused("fqe as well", [up], data, ["models", "dr"])
    refused("estimators: found 'magic'", [up], data, ["magic"])
    refused("discount: found 1", [up], data, discount=1.0)
    refused("level: found 2", [up], data, level=2)
    refused("policies: found 'none'", [], data)
    refused("expected a TrainResult", [constant(0.5)], data)
    refused("actions: found \\(2, 2\\)", [("two", lambda s: np.zeros((len(s), 2)))], data)
    refused("episodes: found 3, expected at least 8", [up], log(3))
    with pytest.raises(ConfigError, match=re.escape("config: found 'smol'")):
        choose([up], data, config="smol")

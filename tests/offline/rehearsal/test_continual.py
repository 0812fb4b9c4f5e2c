"""Sequences of tasks: identities of buffers, batches and scores, and the built-in tasks."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.rehearsal.command import EXPERIMENT, Config
from jaxrl_rollouts.offline.rehearsal.network import Rows, Seen, rehearsing
from jaxrl_rollouts.offline.rehearsal.result import Continual
from jaxrl_rollouts.offline.rehearsal.sequences import SEQUENCES
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

METHOD = offline.recipe("bc", "smoke", hidden_dims=(8,), steps=40)
CONFIG = offline.ContinualConfig(
    ("random", "policy"), ("data", "policy"), hidden_dims=(16,), steps=60, episodes=2, share=0.05
)


@functools.cache
def learned(count: int = 2, share: float = 0.05) -> Continual:
    tasks = SEQUENCES["plane-goals"](300, 0)[:count]
    config = offline.ContinualConfig(**{**vars(CONFIG), "share": share})
    return offline.continual(tasks, METHOD, config, evaluations=1, episodes=2)


def test_buffers_are_their_share_and_only_earlier_tasks_are_seen() -> None:
    found = learned()
    assert found.arms[-2:] == ("nothing", "everything") and len(found.arms) == 6
    for arm, kept in found.kept.items():
        size = 300 if arm == "everything" else 15
        assert [x.shape for x in kept] == [(2, size)] * 2
    assert np.isnan(found.returns[:, 0, 1]).all() and np.isfinite(found.returns[:, 1]).all()
    # Of both arms with the rule the same rows.
    for x, y in zip(found.kept["policy, data"], found.kept["policy, policy"], strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_sequence_of_one_task_is_ordinary_training() -> None:
    """Its own policy is that of `train`, to the bit, and no arm differs: nothing is rehearsed."""
    found = learned(1)
    data, env = SEQUENCES["plane-goals"](300, 0)[0]
    alone = offline.train(data, METHOD, environment=env, seeds=2, evaluations=1, episodes=2)
    again = offline.continual([(data, env)], METHOD, CONFIG, evaluations=1, episodes=2)
    np.testing.assert_array_equal(found.returns, again.returns)
    for leaf in jax.tree.leaves(found.actors):
        for arm in np.asarray(leaf):
            np.testing.assert_allclose(arm, leaf[0], atol=1e-5)
    rows = data.transitions
    chosen = found.kept["policy, data"][0]
    greedy = jax.vmap(lambda a: alone.agent.greedy(a, jax.random.key(0), rows.observations, ())[0])
    apart = np.square(np.asarray(greedy(alone.actors)) - rows.actions).sum(-1)
    for own, kept in zip(apart, chosen, strict=True):
        np.testing.assert_array_equal(np.sort(own)[:15], own[kept])
    assert (found.backward == 0).all() and (found.forgetting == 0).all()


def test_a_buffer_of_all_rows_is_the_data() -> None:
    """And rehearsed with the policy's actions it is the arm `everything`, whatever the rule."""
    found = learned(share=1.0)
    for kept in found.kept["policy, data"]:
        np.testing.assert_array_equal(np.sort(kept, 1), np.tile(np.arange(300), (2, 1)))
    same, every = (found.arms.index(x) for x in ("random, policy", "everything"))
    np.testing.assert_allclose(found.returns[same], found.returns[every], rtol=1e-3)


def test_a_batch_is_of_the_task_and_of_each_buffer_alike() -> None:
    now = Rows(jnp.zeros((50, 1)), jnp.zeros((50, 1)))
    kept = jnp.arange(1.0, 4.0)[:, None, None] * jnp.ones((3, 4, 1))
    kept = kept.at[0, 2:].set(9.0).at[2].set(9.0)  # not filled
    data = Seen(now, Rows(kept, kept), jnp.array([2, 4, 4]), jnp.int32(2), jnp.float32(0.5))
    batch = np.asarray(rehearsing(data, jax.random.key(0), 4000).actions)[:, 0]
    assert (batch == 0).sum() == 2000 and (batch == 9).sum() == 0
    np.testing.assert_allclose((batch == 1).sum(), 1000, atol=100)
    first = rehearsing(data._replace(known=jnp.int32(0)), jax.random.key(0), 100)
    none = rehearsing(data._replace(rehearsed=jnp.float32(0)), jax.random.key(0), 100)
    assert not np.asarray(first.actions).any() and not np.asarray(none.actions).any()


def test_scores_transfer_and_forgetting_are_their_formulas() -> None:
    returns = np.full((1, 3, 3, 2), np.nan)
    returns[0, 0, 0], returns[0, 1, :2] = 10.0, [[8.0, 8.0], [30.0, 20.0]]
    returns[0, 2] = [[4.0, 12.0], [20.0, 20.0], [5.0, 5.0]]
    own, random = np.array([[9.0, 11.0], [20.0, 20.0], [5.0, 5.0]]), np.array([0.0, 10.0, 0.0])
    none: Any = None
    found = Continual(("a",), ("x", "y", "z"), returns, own, random, {}, none, none, none)
    np.testing.assert_allclose(found.average, [[(0.4 + 1 + 1) / 3, (1.2 + 1 + 1) / 3]])
    np.testing.assert_allclose(found.backward, [[(-0.6 - 1) / 2, (0.2 + 0) / 2]])
    np.testing.assert_allclose(found.forgetting, [[(0.6 + 1) / 2, 0.0]])


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequences_rewards_are_its_environments(name: str) -> None:
    tasks = SEQUENCES[name](400, 3)
    assert len({env.name for _, env in tasks}) == len(tasks) == 3
    for data, env in tasks:
        rows = data.transitions
        assert len(data) == 400 and data.name == env.name and env.reward is not None
        parts = map(jnp.asarray, (rows.observations, rows.actions, rows.next_observations))
        np.testing.assert_allclose(env.reward(*parts), rows.rewards, rtol=1e-5, atol=1e-5)
        assert env.set_observation is not None
        state = env.set_observation(jnp.asarray(rows.observations))
        after, out = env.step(jax.random.key(0), state, jnp.asarray(rows.actions))
        np.testing.assert_allclose(out.reward, rows.rewards, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after.observation, rows.next_observations, rtol=1e-3, atol=1e-4)
        other = collect(env, random_policy(env.action_size), None, jax.random.key(1), steps=50)
        assert np.isfinite(other.rewards).all()


def test_the_policy_of_a_task_acts() -> None:
    found = learned()
    seen = np.zeros((3, 2))
    first = found.policy("plane-east")(seen)
    assert first.shape == (3, 2) and not np.array_equal(
        first, found.policy("plane-northwest")(seen)
    )
    with pytest.raises(ConfigError, match="arm: found 'best'"):
        found.policy("plane-east", "best")


def test_refused() -> None:
    (data, env), _, _ = SEQUENCES["plane-goals"](300, 0)
    runner = SEQUENCES["runner-builds"](300, 0)[0]
    given: Any = {"evaluations": 1, "episodes": 2}
    with pytest.raises(ConfigError, match="tasks: found 'plane-east twice'"):
        offline.continual([(data, env), (data, env)], METHOD, CONFIG, **given)
    with pytest.raises(ConfigError, match=r"runner-plain: \(3, 1\)', expected .* \(2, 2\)"):
        offline.continual([(data, env), runner], METHOD, CONFIG, **given)
    with pytest.raises(ConfigError, match="without a simulator', expected one"):
        offline.continual([(data, "none")], METHOD, CONFIG)
    with pytest.raises(ConfigError, match="tasks: found 'nothing'"):
        offline.continual([], METHOD, CONFIG)
    with pytest.raises(ConfigError, match="rules: found 'best'"):
        check(offline.ContinualConfig(("best",)))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="data: found '1 datasets beside the sequence plane"):
        check(Config(data=("a.hdf5",)))
    with pytest.raises(ConfigError, match="environments: found '1 of 2 datasets'"):
        check(Config("files", ("a.hdf5", "b.hdf5"), ("pendulum",)))


def test_the_command_reports_arms_tasks_and_thresholds(tmp_path: Path) -> None:
    config = replace(EXPERIMENT.presets["smoke"], buffers=replace(CONFIG, rules=("random",)))
    folder = RunFolder.create(tmp_path, "continual", "smoke", config, "nothing")
    report = EXPERIMENT.run(config, RunContext(folder, progress=False))
    arms = [row["arm"] for row in report.tables["arms"]]
    assert arms == ["random, data", "random, policy", "nothing", "everything"]
    assert [row["task"] for row in report.tables["tasks"]][0] == "plane-east"
    assert [claim.threshold for claim in report.claims] == [0.05, 0.3]

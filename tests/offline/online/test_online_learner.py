"""Online SAC: what is acted, remembered, learned and kept, and that a cut run goes on the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import StopAt

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import ConfigError, Interrupted
from jaxrl_rollouts.offline.collect import random_policy
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.online.learner import OnlineConfig, act, make_online
from jaxrl_rollouts.offline.online.report import online_report
from jaxrl_rollouts.offline.online.rows import Prior
from jaxrl_rollouts.offline.online.train import Online
from jaxrl_rollouts.offline.task import keys_of
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

TINY = OnlineConfig(
    environments=2, rows=20, warmup=40, update_ratio=0.5, batch_size=16, looks=2, episodes=2
)
SAC = offline.Sac(hidden_dims=(8, 8))
STEPS = 120  # 40 of them random: 4 iterations


@pytest.fixture(scope="module")
def pendulum() -> Online:
    return offline.train_online("pendulum", SAC, STEPS, online=TINY, seeds=2)


def test_episodes_follow_each_other_and_rows_keep_the_true_successor() -> None:
    start = PENDULUM.reset(jax.random.key(0), 2)
    start = start._replace(time=jnp.array([PENDULUM.max_episode_steps - 2, 0]))
    state, (rows, _) = act(PENDULUM, random_policy(1), (), start, jax.random.key(1), 4)
    rows = jax.tree.map(lambda x: np.asarray(x).reshape(4, 2, *x.shape[1:]), rows)
    assert rows.truncations.tolist() == [[False] * 2, [True, False], [False] * 2, [False] * 2]
    assert state.time.tolist() == [2, 4] and not rows.terminations.any()
    same = (rows.next_observations[:-1] == rows.observations[1:]).all(-1)
    assert same.tolist() == [[True, True], [False, True], [True, True]]
    moved = np.abs(rows.next_observations - rows.observations).max(-1)
    assert moved.max() < 1.0, "a successor is one step away, also at an ending"


def test_what_a_training_leaves(pendulum: Online) -> None:
    state, history = pendulum.trained.state, pendulum.trained.history
    assert pendulum.steps == STEPS and pendulum.curve()[0].tolist() == [80, 120]
    assert state.replay.size.tolist() == [STEPS] * 2, "nothing that happened is forgotten"
    assert [r.iteration for r in history.records] == [1, 2, 3, 4]
    updates = [x for x in jax.tree.leaves(state.agent.opt_critic) if x.dtype == jnp.int32]
    assert [x.tolist() for x in updates] == [[4 * 10] * 2], "half a gradient step for each step"
    np.testing.assert_array_equal(pendulum.returns, history.last("return"))
    for seed in range(2):
        last = jax.tree.map(lambda x, seed=seed: x[seed], state.agent.actor)
        jax.tree.map(np.testing.assert_array_equal, pendulum.actor(seed), last)
    different = jax.tree.map(
        lambda a, b: bool((a != b).any()), pendulum.actor(0, 0), pendulum.actor(0, 1)
    )
    assert all(jax.tree.leaves(different)), "a look keeps the policy of its own time"
    action = pendulum.policy(1)(np.zeros(3, np.float32))
    assert action.shape == (1,) and np.abs(action) <= 2


def test_it_is_a_method_like_the_others() -> None:
    job: dict[str, Any] = {"seeds": 2, "evaluations": 2, "episodes": 2}
    own = {"environments": 2, "rows": 20, "warmup": 40, "update_ratio": 0.5, "batch_size": 16}
    asked = offline.recipe("online_sac", "paper", steps=40, agent={"hidden_dims": (8, 8)}, **own)
    result = offline.train("pendulum-mixed", asked, **job)
    learner = make_online(PENDULUM, SAC.acts, TINY, 4)
    alone = train_learner(learner, Prior(), keys_of(0)[0], seeds=2, iterations=4)
    jax.tree.map(np.testing.assert_array_equal, result.actors, alone.state.agent.actor)
    assert result.steps == 40 and "120 steps of its own in pendulum" in result.source.synthetic
    assert result.policy(1, best=True)(np.zeros(3, np.float32)).shape == (1,)
    half = replace(asked, share=0.5)
    mixed = offline.train("pendulum-mixed", half, **job)
    assert "50 % of each batch from pendulum-mixed" in mixed.source.synthetic
    assert not np.array_equal(np.asarray(mixed.returns), np.asarray(result.returns))
    with pytest.raises(ConfigError, match="expected a simulator for online_sac"):
        offline.train("pendulum-mixed", asked, environment="none", **job)


def test_a_cut_run_in_mujoco_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    arguments = ("mujoco/InvertedDoublePendulum-v4", SAC, STEPS)
    run = RunContext(RunFolder.at(tmp_path / "cut", "cut"), progress=False)
    stop: Any = StopAt(2)
    with pytest.raises(Interrupted, match="after 2 of 4"):
        offline.train_online(*arguments, online=TINY, context=replace(run, stop=stop))
    resumed = offline.train_online(*arguments, online=TINY, context=run)
    report = online_report(resumed, run)
    whole = offline.train_online(*arguments, online=TINY)
    data = jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        (resumed.trained.state, whole.trained.state),
    )
    jax.tree.map(np.testing.assert_array_equal, *data)
    np.testing.assert_array_equal(resumed.curve()[1], whole.curve()[1])
    ended = resumed.trained.state.replay.rows[0]
    assert np.asarray(ended.terminations).any(), "episodes end and begin on the way"
    assert [row["steps"] for row in report.tables["learning curve"]] == [80, 120]
    np.testing.assert_array_equal(report.numbers["return"].values, resumed.returns)
    again = offline.load_policy(tmp_path / "cut")(np.zeros(11, np.float32))
    np.testing.assert_allclose(again, resumed.policy(0)(np.zeros(11, np.float32)), rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"agent": offline.Cql()}, "settings of sac or edac"),
        ({"online": OnlineConfig(rows=25)}, "multiple of environments"),
        ({"online": OnlineConfig(rows=10, update_ratio=0.01)}, "a gradient step at least"),
        ({"online": OnlineConfig(capacity=100)}, "room for"),
        ({"steps": 0}, "whole number of at least 1"),
    ],
)
def test_what_cannot_be_trained_is_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        offline.train_online(**{"environment": "pendulum", **wrong})


@pytest.mark.slow
def test_it_swings_the_pendulum_up() -> None:
    online = OnlineConfig(warmup=1000, looks=4)
    outcome = offline.train_online(
        "pendulum", offline.Sac(hidden_dims=(64, 64)), 12_000, online=online
    )
    assert outcome.returns.mean() > -350, "random actions earn -1200, good ones about -150"

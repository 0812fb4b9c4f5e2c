"""Fine-tuning: it begins with the agent that was trained, mixes as asked and resumes to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import StopAt

from jaxrl_rollouts import offline, replay
from jaxrl_rollouts.cli.main import dispatch
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError, Interrupted
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.compare_command import compared
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.data.transitions import RewardScale
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.online.learner import OnlineConfig, make_online
from jaxrl_rollouts.offline.online.report import online_report
from jaxrl_rollouts.offline.online.rows import Prior, known_of, mixed
from jaxrl_rollouts.offline.online.start import log_of, start_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report

TINY = OnlineConfig(
    environments=2, rows=20, warmup=0, update_ratio=0.5, batch_size=16, looks=2, episodes=2
)
IQL = {"hidden_dims": (8, 8), "per_iteration": 20, "reward": (0.1, 1.0), "cosine": True}
STEPS = 80  # 4 iterations


def numbers(tree: Any) -> Any:
    """Keys as the numbers they are."""
    typed = jax.dtypes.prng_key
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, typed) else x, tree
    )


def context(folder: Path) -> RunContext:
    return RunContext(RunFolder.at(folder, "offline"), progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("offline")


@pytest.fixture(scope="module")
def trained(folder: Path) -> offline.TrainResult:
    method = offline.recipe("iql", "smoke", "pendulum-mixed", steps=60, **IQL)
    return offline.train(
        "pendulum-mixed", method, seeds=2, evaluations=1, episodes=2, context=context(folder)
    )


@pytest.fixture(scope="module")
def tuned(trained: offline.TrainResult) -> Any:
    return offline.finetune(trained, steps=STEPS, online=TINY)


def test_it_begins_with_the_agent_that_was_trained(trained: offline.TrainResult) -> None:
    start = start_of(trained)
    learner = make_online(PENDULUM, start.settings, TINY, 4, start.reward)
    keys = jax.random.split(jax.random.key(3), 2)
    state = jax.vmap(lambda key, agent: learner.init(key, Prior(agent)))(keys, start.agent)
    jax.tree.map(np.testing.assert_array_equal, state.agent, start.agent)
    jax.tree.map(np.testing.assert_array_equal, state.agent.actor, trained.actors)
    assert state.replay.size.tolist() == [0, 0]
    settings: Any = (trained.config, start.settings)
    assert [x.cosine for x in settings] == [True, False], "a rate of 0 would learn nothing"
    assert start.reward == RewardScale(0.1, 1.0)


def test_a_run_folder_gives_the_same_start_as_its_result(
    trained: offline.TrainResult, folder: Path
) -> None:
    memory, disk = start_of(trained), start_of(folder)
    jax.tree.map(np.testing.assert_array_equal, memory.agent, disk.agent)
    assert memory.settings == disk.settings and memory.reward == disk.reward
    assert len(disk.sha256) == 64 and memory.sha256 == ""


def test_what_it_began_with_is_the_policys_return(trained: offline.TrainResult, tuned: Any) -> None:
    still = offline.finetune(trained, steps=STEPS, online=replace(TINY, episodes=2), seed=0)
    assert still.before is not None
    np.testing.assert_array_equal(still.before["return"], tuned.before["return"])
    assert tuned.steps == STEPS and tuned.curve()[0].tolist() == [40, 80]
    assert not np.array_equal(tuned.before["return"], tuned.returns)


def test_gradient_steps_are_counted_on(tuned: Any) -> None:
    updates = [x for x in jax.tree.leaves(tuned.trained.state.agent.opt_critic) if x.ndim == 1]
    assert [x.tolist() for x in updates if x.dtype == jnp.int32] == [[60 + 40] * 2]
    assert tuned.trained.state.replay.size.tolist() == [STEPS] * 2


@pytest.mark.parametrize(("share", "logged"), [(0.0, 0), (0.25, 4), (0.5, 8), (1.0, 16)])
def test_the_share_of_the_data_is_exact(share: float, logged: int) -> None:
    data, seen = rows(30, 1.0), lived(5, 2.0)
    batch = mixed(data, seen, jax.random.key(0), 16, share, RewardScale(10.0, 0.5))
    assert (np.asarray(batch.rewards) == 1.0).sum() == logged
    assert (np.asarray(batch.rewards) == 20.5).sum() == 16 - logged, "as they are learned from"


def test_without_a_share_every_row_is_as_likely() -> None:
    data, seen = rows(30, 1.0), lived(10, 2.0)
    batch = mixed(data, seen, jax.random.key(0), 40_000, None)
    share = float((batch.rewards == 1.0).mean())
    assert abs(share - 0.75) < 3 * np.sqrt(0.75 * 0.25 / 40_000)
    nothing = replay.create(jax.tree.map(lambda x: x[0], rows(1, 0.0)), 10)
    assert (mixed(data, nothing, jax.random.key(1), 50, None).rewards == 1.0).all()


def rows(count: int, reward: float) -> Transitions:
    flags = jnp.zeros(count, bool)
    seen, acted = jnp.zeros((count, 3)), jnp.zeros((count, 1))
    return Transitions(seen, acted, jnp.full(count, reward), seen, flags, flags)


def lived(count: int, reward: float) -> replay.Replay:
    empty = replay.create(jax.tree.map(lambda x: x[0], rows(1, 0.0)), 20)
    return replay.add(empty, rows(count, reward))


def test_of_the_data_alone_it_is_training_that_goes_on(trained: offline.TrainResult) -> None:
    """The dataset is one row, so every batch is known; IQL's step has no random number."""
    start, online = start_of(trained), replace(TINY, share=1.0)
    learner = make_online(PENDULUM, start.settings, online, 4, start.reward)
    agent = jax.tree.map(lambda x: x[0], start.agent)
    row = rows(1, 3.0)._replace(observations=jnp.array([[0.3, -0.8, 0.5]]))
    batch = jax.tree.map(lambda x: jnp.repeat(x, online.batch_size, 0), row)
    begun, key = learner.init(jax.random.key(3), Prior(agent)), jax.random.key(4)
    after, _ = jax.jit(learner.update)(begun, Prior(rows=row))
    step, want = jax.jit(learner.agent.update), agent
    for _ in range(online.per_iteration):
        want, _ = step(want, key, batch)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), after.agent, want
    )
    moved = zip(*map(jax.tree.leaves, (after.agent.critic, agent.critic)), strict=True)
    assert any((np.asarray(x) != np.asarray(y)).any() for x, y in moved)


def test_returns_of_a_block_are_those_of_its_whole_episodes() -> None:
    """Two copies side by side; the first one's second episode is not over."""
    rewards = np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], np.float32)
    ended = np.array([[False, False], [True, False], [False, True]])
    flat = rows(6, 0.0)._replace(rewards=jnp.asarray(rewards.ravel()))
    flat = flat._replace(truncations=jnp.asarray(ended.ravel()))
    config = CqlConfig(discount=0.5, calibrated=True)
    found = np.asarray(known_of(config, RewardScale(2.0, 1.0), flat, 2).returns).reshape(3, 2)
    seen = 2.0 * rewards + 1.0
    np.testing.assert_allclose(found[:2, 0], [seen[0, 0] + 0.5 * seen[1, 0], seen[1, 0]])
    later = seen[1, 1] + 0.5 * seen[2, 1]
    np.testing.assert_allclose(found[:, 1], [seen[0, 1] + 0.5 * later, later, seen[2, 1]])
    assert found[2, 0] == -np.inf, "nothing is known of an episode that goes on"
    assert known_of(CqlConfig(), RewardScale(), flat, 2) is flat


def test_cql_goes_on_as_cal_ql() -> None:
    settings = offline.recipe("cql", "smoke", "pendulum-mixed", steps=20, hidden_dims=(8,))
    found = offline.train("pendulum-mixed", settings, seeds=1, evaluations=1, episodes=1)
    online = replace(TINY, looks=1, rows=400, update_ratio=0.05)  # whole episodes of both copies
    tuned = offline.finetune(found, steps=400, online=online, calibrated=True)
    returns = np.asarray(tuned.trained.state.replay.rows[0].returns[0])
    rewards = np.asarray(tuned.trained.state.replay.rows[0].rewards[0]).reshape(200, 2)
    assert np.isfinite(returns).all(), "both episodes ended with the block"
    np.testing.assert_allclose(returns.reshape(200, 2)[-1], rewards[-1], rtol=1e-5)
    with pytest.raises(ConfigError, match="an agent of CQL"):
        offline.finetune(found._replace(config=offline.Iql().acts), calibrated=True)


def test_a_cut_run_goes_on_to_the_same_bits(folder: Path, tuned: Any, tmp_path: Path) -> None:
    run, stop = context(tmp_path / "cut"), StopAt(2)
    given: dict[str, Any] = {"data": "pendulum-mixed", "online": TINY}
    with pytest.raises(Interrupted, match="after 2 of 4"):
        stopped = replace(run, stop=stop)  # type: ignore[arg-type]
        offline.finetune(folder, steps=STEPS, context=stopped, **given)
    resumed = offline.finetune(folder, steps=STEPS, context=run, **given)
    states = numbers((resumed.trained.state, tuned.trained.state))
    jax.tree.map(np.testing.assert_array_equal, *states)
    report = online_report(resumed, run)
    assert [row["steps"] for row in report.tables["learning curve"]] == [0, 40, 80]
    (claim,) = report.claims
    assert resumed.before is not None
    np.testing.assert_allclose(claim.values, resumed.returns - resumed.before["return"])
    observation = np.zeros(3, np.float32)
    again = offline.load_policy(tmp_path / "cut")(observation)
    np.testing.assert_allclose(again, resumed.policy(0)(observation), rtol=1e-6)


def test_another_start_is_not_gone_on_with(folder: Path, tmp_path: Path) -> None:
    run = context(tmp_path)
    run.folder.hold("start", sha256="another")
    with pytest.raises(DataError, match="as the run began with"):
        offline.finetune(folder, steps=STEPS, data="pendulum-mixed", online=TINY, context=run)


@pytest.mark.parametrize("method", ["cql", "sac"])
def test_critics_of_other_agents_go_on_as_well(method: Any) -> None:
    settings = offline.recipe(method, "smoke", "pendulum-mixed", steps=20, hidden_dims=(8,))
    found = offline.train("pendulum-mixed", settings, seeds=1, evaluations=1, episodes=1)
    tuned = offline.finetune(found, steps=40, online=replace(TINY, looks=1, share=0.0))
    counts = [x for x in jax.tree.leaves(tuned.trained.state.agent.opt_critic) if x.ndim == 1]
    assert max(int(x[0]) for x in counts if x.dtype == jnp.int32) == 20 + 20


def test_who_has_no_policy_that_explores_is_refused(tmp_path: Path) -> None:
    found = offline.train("pendulum-mixed", "td3_bc", preset="smoke", steps=20, seeds=1)
    with pytest.raises(ConfigError, match="SAC, EDAC, CQL or IQL"):
        offline.finetune(found)
    with pytest.raises(CheckpointError, match="found no trained policy"):
        offline.finetune(tmp_path)


def test_a_policy_alone_has_no_critics(trained: offline.TrainResult, tmp_path: Path) -> None:
    trained.save(tmp_path)
    with pytest.raises(CheckpointError, match="a policy without its critics"):
        offline.finetune(tmp_path)
    assert log_of(trained).name == "pendulum-mixed"
    with pytest.raises(ConfigError, match="no run"):
        log_of(tmp_path / "policy")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dispatch(
        [
            "run",
            "offline",
            "--preset",
            "smoke",
            "--method",
            "iql",
            "--steps",
            "20",
            "--hidden-dims",
            "8",
        ]
    )
    (run,) = Path("runs").iterdir()
    run = run.rename(run.with_name("pendulum-mixed-iql-20261129-200802-2"))
    dispatch(["finetune", str(run), "--preset", "smoke", "--online.share", "0.25"])
    (made,) = (folder for folder in Path("runs").iterdir() if folder != run)
    assert made.name.startswith("pendulum-mixed-iql-finetuned-")
    report = load_report(made)
    assert "25 % of each batch from pendulum-mixed" in " ".join(report.notes)
    assert "in 100 steps" in report.conclusion[0]
    first, second = compared([run, made]).tables["runs"]
    assert (first["dataset"], second["dataset"]) == ("pendulum-mixed", "pendulum-mixed")
    assert (first["method"], second["method"]) == ("iql", "iql, fine-tuned")
    assert second["true value"] == report.tables["learning curve"][-1]["earned value"]
    dispatch(["evaluate", str(made), "--episodes", "2"])


@pytest.mark.slow
def test_it_improves_a_policy_of_the_pendulum() -> None:
    settings = offline.recipe("sac", "small", "pendulum-mixed", steps=2_000, hidden_dims=(64, 64))
    found = offline.train("pendulum-mixed", settings, seeds=2, evaluations=1)
    tuned = offline.finetune(found, steps=6_000, online=replace(TINY, rows=200, update_ratio=1.0))
    assert tuned.before is not None
    assert (tuned.returns > tuned.before["return"]).all() and tuned.returns.mean() > -400

"""Tapes: the replay is the simulator's own, the file is checked, recipes choose their rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts import offline
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import episodes, load_d4rl, reference_scores
from jaxrl_rollouts.offline.data.transitions import file_sha256
from jaxrl_rollouts.offline.environments.mujoco import make_gymnasium
from jaxrl_rollouts.offline.environments.stateless import stateless
from jaxrl_rollouts.offline.online.learner import OnlineConfig
from jaxrl_rollouts.offline.online.tape_command import export, make
from jaxrl_rollouts.offline.online.tapes import (
    Rows,
    buffer,
    first_medium,
    make_tape,
    spread,
    tape_of,
)
from jaxrl_rollouts.offline.online.train import Online, train_online
from jaxrl_rollouts.offline.tapes import ENVIRONMENTS
from jaxrl_rollouts.offline.tapes.replay import load_tape, replay
from jaxrl_rollouts.offline.tapes.tape import (
    FOLDER,
    Tape,
    packaged,
    read_tape,
    segments_of,
    write_tape,
)

pytest.importorskip("mujoco")
TINY = OnlineConfig(
    environments=2, rows=20, warmup=60, batch_size=16, looks=5, episodes=1, tape=True
)


@pytest.fixture(scope="module")
def hopper() -> Tape:
    return make_tape("random", stateless("Hopper-v4"), None, 400, 0)


@pytest.fixture(scope="module")
def trained() -> Online:
    return train_online("mujoco/Hopper-v4", SacConfig(hidden_dims=(8, 8)), 260, online=TINY)


@pytest.mark.parametrize("name", ["HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"])
def test_a_replay_is_what_the_environment_does_row_by_row(name: str) -> None:
    tape = make_tape("random", stateless(name), None, 130, 3)
    rows = replay(tape).rows
    env = make_gymnasium(name).unwrapped
    env.reset(seed=0)
    size, snapshot, row = env.model.nq, 0, 0
    for length in tape.lengths.tolist():
        for step in range(length):
            if step % 20 == 0:
                state = tape.states[snapshot]
                env.set_state(state[:size], state[size:])
                snapshot += 1
            np.testing.assert_allclose(env._get_obs(), rows.observations[row], atol=1e-5)
            seen, reward, ended, _, _ = env.step(tape.actions[row].astype(np.float32))
            np.testing.assert_allclose(seen, rows.next_observations[row], atol=1e-5)
            np.testing.assert_allclose(reward, rows.rewards[row], atol=1e-4)
            assert ended == rows.terminations[row]
            assert rows.truncations[row] == (step == length - 1 and not ended)
            row += 1
    assert row == 130 == len(rows.rewards) and snapshot == len(tape.states)
    inner = ~(rows.terminations | rows.truncations)[:-1]
    following, after = rows.next_observations[:-1][inner], rows.observations[1:][inner]
    np.testing.assert_array_equal(following, after)


def test_a_tape_is_read_as_it_was_written(hopper: Tape, tmp_path: Path) -> None:
    for name in ("a.tape", "b.tape"):
        write_tape(tmp_path / name, hopper)
    assert file_sha256(tmp_path / "a.tape") == file_sha256(tmp_path / "b.tape")
    again = read_tape(tmp_path / "a.tape")
    jax.tree.map(np.testing.assert_array_equal, hopper[1:5], again[1:5])
    assert (again.environment, again.facts["kind"]) == ("mujoco/Hopper-v4", "random")
    data = offline.load(str(tmp_path / "a.tape"))
    assert (data.name, len(data), data.environment) == ("a", 400, "mujoco/Hopper-v4")
    assert data.attributes["drift"] == 0.0 and data.sha256 == file_sha256(tmp_path / "a.tape")
    assert data.infos["qpos"].shape == (400, 6) and data.infos["qpos"].dtype == np.float64
    assert np.abs(data.transitions.actions).max() < 1


def test_segments() -> None:
    assert segments_of(45).tolist() == [20, 20, 5]
    assert segments_of(20).tolist() == [20] and segments_of(1).tolist() == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": np.ones((3, 3))}, "actions: found 2 axes of float64"),
        ({"actions": np.full((400, 3), 2, np.float16)}, r"in \[-1, 1\]"),
        ({"lengths": np.array([400, 1], np.int32)}, "401 rows in 2 episodes"),
        ({"states": np.zeros((3, 12))}, "3 states"),
        ({"states": np.full((30, 12), np.nan)}, "not finite"),
        ({"environment": "mujoco/Ant-v4"}, "one of halfcheetah, hopper, walker2d"),
        ({"environment": "mujoco/HalfCheetah-v4"}, "3 actions and 12 coordinates"),
    ],
)
def test_parts_that_contradict_each_other(
    hopper: Tape, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_tape(tmp_path / "a.tape", hopper._replace(**change))
    with pytest.raises(DataError, match=message):
        load_tape(tmp_path / "a.tape")


def test_a_damaged_file(hopper: Tape, tmp_path: Path) -> None:
    write_tape(tmp_path / "a.tape", hopper)
    whole = (tmp_path / "a.tape").read_bytes()
    (tmp_path / "a.tape").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="tape"):
        load_tape(tmp_path / "a.tape")
    np.savez(tmp_path / "b.npz", actions=hopper.actions)
    (tmp_path / "b.npz").rename(tmp_path / "b.tape")
    with pytest.raises(DataError, match="lengths: found nothing"):
        load_tape(tmp_path / "b.tape")


def test_other_returns_are_reported(hopper: Tape, tmp_path: Path) -> None:
    write_tape(tmp_path / "a.tape", hopper._replace(returns=hopper.returns + 0.5))
    with pytest.warns(UserWarning, match="up to 0.5 away"):
        assert load_tape(tmp_path / "a.tape").attributes["drift"] == pytest.approx(0.5)


def test_the_replay_buffer_as_a_tape(trained: Online) -> None:
    env = stateless("Hopper-v4")
    parts = buffer(env, trained, 200)
    assert sum(len(part.actions) for part in parts) == 200
    kept = jax.tree.map(lambda leaf: np.asarray(leaf[0]), trained.trained.state.replay).rows[0]
    whole = Rows(
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.states for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )
    tape = tape_of(env, whole, {})
    assert tape.facts["largest_state_difference"] < 1e-9
    rows = replay(tape).rows
    # The same rows in another order: the buffer's are interleaved by copy of the simulator.
    order, theirs = (np.lexsort(x.T) for x in (rows.observations, kept.observations[:200]))
    for mine, name in zip(rows[:4], kept._fields[:4], strict=True):
        expected = getattr(kept, name)[:200][theirs]
        np.testing.assert_allclose(mine[order], expected, atol=1e-5)
    assert rows.terminations.sum() == kept.terminations[:200].sum() > 0


def episode(number: int, length: int) -> Rows:
    return Rows(
        np.full((length, 1), number), np.full((length, 2), float(number)), np.array([length])
    )


def test_episodes_are_spread_evenly() -> None:
    parts = [episode(number, 10) for number in range(40)]
    taken = spread(parts, 100)
    chosen = taken.actions[::10, 0]
    assert len(taken.actions) == len(taken.states) == 100 == taken.lengths.sum()
    assert len(np.unique(chosen)) == 10 and (np.diff(chosen) == 4).all()
    whole = spread(parts, 400)
    np.testing.assert_array_equal(whole.actions[::10, 0], np.arange(40))
    cut = spread([episode(0, 30), episode(1, 30)], 45)
    assert cut.lengths.tolist() == [30, 15] and len(cut.states) == 45


def test_medium_is_the_first_policy_at_a_third_of_the_experts_return(
    trained: Online, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = stateless("Hopper-v4")
    curve = SimpleNamespace(
        curve=lambda: (np.arange(5), np.array([[0.5], [1e4], [0.5], [1e4], [1e4]])),
        agent=trained.agent,
        actor=lambda seed, look: trained.actor(seed, look),
    )
    module = "jaxrl_rollouts.offline.online.tapes.reference_scores"
    monkeypatch.setattr(module, lambda name: (0.0, 3.0))
    assert first_medium(env, curve, jax.random.key(0)) == 1  # type: ignore[arg-type]
    # What evaluations earn is not enough: sampled actions have to earn it.
    monkeypatch.setattr(module, lambda name: (0.0, 3e3))
    with pytest.raises(ValueError, match="expected 1000 or more"):
        first_medium(env, curve, jax.random.key(0))  # type: ignore[arg-type]


def test_the_parts_of_medium_expert(trained: Online, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jaxrl_rollouts.offline.online.tapes.reference_scores", lambda name: (0.0, 3.0)
    )
    env = stateless("Hopper-v4")
    tape = make_tape("medium-expert", env, trained, 101, 0)
    steps, returns = trained.curve()
    assert tape.facts["policy_steps"][1] == int(steps[returns[:, 0].argmax()])
    assert len(tape.actions) == 101 and 51 in np.cumsum(tape.lengths)
    again = make_tape("medium-expert", env, trained, 101, 0)
    np.testing.assert_array_equal(tape.actions, again.actions)


def test_names_and_bad_arguments(tmp_path: Path) -> None:
    assert reference_scores("hopper-medium-mini-v1") == reference_scores("hopper-medium-v2")
    with pytest.raises(ConfigError, match="did you mean hopper-medium"):
        make("hoper-medium", tmp_path / "a.tape")
    with pytest.raises(ConfigError, match="ends in .tape"):
        make("hopper-random", tmp_path / "a.hdf5")
    with pytest.raises(ConfigError, match="made by a program"):
        offline.load(str(tmp_path / "a.tape"), clip=True)
    ant = replace(TINY, rows=20)
    with pytest.raises(ConfigError, match="tape"):
        train_online("pendulum", SacConfig(hidden_dims=(8,)), 260, online=ant)


def test_export_to_d4rls_layout(made_hopper: Path) -> None:
    tape, file = (made_hopper / f"hopper-random{end}" for end in (".tape", ".hdf5"))
    data, exported = offline.load(str(tape)), load_d4rl(file, infos=True)
    jax.tree.map(np.testing.assert_array_equal, data.transitions, exported.transitions)
    np.testing.assert_allclose(data.infos["qpos"], exported.infos["qpos"], rtol=1e-6, atol=1e-9)
    assert exported.environment == data.environment
    with pytest.raises(ConfigError, match=".hdf5"):
        export(str(tape), tape)


def test_the_page_lists_what_the_package_has() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pages" / "howto" / "data.md").read_text()
    lines = {line for line in page.splitlines() if line.startswith("| `")}
    for name in packaged():
        path = FOLDER / f"{name}.tape"
        tape, (low, high) = read_tape(path), reference_scores(name) or (0.0, 1.0)
        mean = tape.returns.mean()
        steps = " and ".join(f"{count:,}" for count in tape.facts["policy_steps"])
        numbers = f"{len(tape.actions):,} | {len(tape.lengths):,} | {mean:,.0f}"
        score = 100 * (mean - low) / (high - low)
        sha = file_sha256(path)[:12]
        assert f"| `{name}` | {numbers} | {score:.1f} | {steps} | `{sha}` |" in lines


@pytest.mark.parametrize("name", packaged())
def test_tapes_of_the_package(name: str) -> None:
    tape = read_tape(FOLDER / f"{name}.tape")
    assert len(tape.actions) == 100_000 and tape.environment in ENVIRONMENTS.values()
    assert (FOLDER / f"{name}.tape").stat().st_size < 2e6
    # The first episodes stand for all: a replay of the whole takes seconds.
    count = int(np.searchsorted(np.cumsum(tape.lengths), 2000)) + 1
    rows = int(tape.lengths[:count].sum())
    snapshots = sum(len(segments_of(int(length))) for length in tape.lengths[:count])
    head = Tape(
        tape.environment,
        tape.actions[:rows],
        tape.lengths[:count],
        tape.states[:snapshots],
        tape.returns[:count],
        tape.facts,
    )
    played = replay(head).rows
    found = np.add.reduceat(np.float64(played.rewards), episodes(played).starts)
    np.testing.assert_allclose(found, head.returns, atol=1e-3)

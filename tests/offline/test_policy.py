"""A policy that acts on numpy arrays: what it answers, what it remembers, and in one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_exported import altered

from jaxrl_rollouts import exported
from jaxrl_rollouts.errors import ConfigError, UserError
from jaxrl_rollouts.exported import load_exported
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.policy import Policy, load_policy
from jaxrl_rollouts.offline.recurrent.histories import remembering
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig, make_recurrent_sac
from jaxrl_rollouts.offline.saved_policies import SavedPolicy, policy_of, save_policy

CONFIG = SacConfig(num_critics=2, eta=0.0, hidden_dims=(4,))
MEMORY = RecurrentSacConfig(
    memory=MemoryConfig("lru", width=4, state=2, layers=1), head_dims=(4,), num_critics=2
)
OBSERVATIONS = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


def actors_of(agent: Any) -> Any:
    """Two seeds; biases apart from zero, so that no output is."""
    actors = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2)).actor
    return jax.tree.map(lambda x: x + 0.1 if x.dtype == jnp.float32 else x, actors)


@pytest.fixture(scope="module")
def saved() -> SavedPolicy:
    """Without a memory, for Pendulum with its torque of 2."""
    return policy_of(CONFIG, actors_of(make_sac(CONFIG, 3, 1)), PENDULUM, method="sac")


@pytest.fixture(scope="module")
def remembering_policy() -> SavedPolicy:
    env = remembering(PENDULUM)
    return policy_of(MEMORY, actors_of(make_recurrent_sac(MEMORY, 5, 1)), env, method="neubay")


def test_actions_are_in_the_environments_bounds(saved: SavedPolicy) -> None:
    policy, key = Policy(saved, 1), jax.random.key(0)
    unit, _ = saved.agent.greedy(saved.actor(1), key, jnp.asarray(OBSERVATIONS), ())
    many = policy(OBSERVATIONS)
    assert many.dtype == np.float32 and many.shape == (3, 1)
    np.testing.assert_allclose(many, 2.0 * np.asarray(unit), rtol=1e-6)
    one = policy(OBSERVATIONS[1].astype(np.float64).tolist())
    np.testing.assert_allclose(one, many[1], rtol=1e-6)
    one[0] = 7.0  # the caller's own
    assert (policy.action_low, policy.action_high) == (-2.0, 2.0)


def test_random_actions_go_on_and_begin_alike(saved: SavedPolicy) -> None:
    policy, again = Policy(saved), Policy(saved, deterministic=False)
    draws = [policy.sample(OBSERVATIONS) for _ in range(2)]
    np.testing.assert_array_equal(draws[0], again(OBSERVATIONS))
    assert (draws[0] != draws[1]).any() and (np.abs(draws) <= 2.0).all()
    assert (Policy(saved, key=1).sample(OBSERVATIONS) != draws[0]).any()


def play(policy: Any, rows: slice = slice(None)) -> list[np.ndarray]:
    """Three steps with made-up rewards."""
    actions, reward = [], None
    for t in range(3):
        actions.append(policy(OBSERVATIONS[rows] + t, reward))
        reward = np.arange(3.0)[rows] - t
    return actions


def test_a_memory_is_shown_what_training_showed(remembering_policy: SavedPolicy) -> None:
    saved = remembering_policy
    actions, key = play(Policy(saved, 1)), jax.random.key(0)
    last, reward, memory = np.zeros((3, 1)), np.zeros((3, 1)), saved.start(3)
    for t, action in enumerate(actions):
        token = jnp.asarray(np.concatenate([OBSERVATIONS + t, last, reward], 1), jnp.float32)
        unit, memory = saved.agent.greedy(saved.actor(1), key, token, memory)
        np.testing.assert_allclose(action, 2.0 * np.asarray(unit), rtol=1e-5, atol=1e-6)
        last, reward = unit, np.arange(3.0)[:, None] - t


def test_reset_begins_an_episode_of_all_or_of_some(remembering_policy: SavedPolicy) -> None:
    policy = Policy(remembering_policy)
    first = play(policy)
    policy.reset()
    np.testing.assert_array_equal(play(policy), first)
    policy.reset([False, True, False])
    then = policy(OBSERVATIONS, np.ones(3))
    np.testing.assert_allclose(then[1], first[0][1], rtol=1e-5)
    assert (np.abs(then - first[0])[[0, 2]] > 1e-4).all()


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(4), "policy: observation: found shape [4], expected [3] or [B, 3]"),
        (np.zeros((0, 3)), "found shape [0, 3]"),
        (np.zeros((1, 1, 3)), "found shape [1, 1, 3]"),
        ([0.0, np.nan, 0.0], "found nan in entry [1], expected finite numbers"),
        ("left", "found str, expected real numbers"),
        ([[0.0, 1.0, 2.0], [0.0]], "found list, expected real numbers"),
        (np.zeros(3, complex), "found complex numbers, expected real numbers"),
    ],
)
def test_what_is_no_observation(saved: SavedPolicy, observation: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        Policy(saved)(observation)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_what_a_memory_cannot_do_without(remembering_policy: SavedPolicy) -> None:
    policy = Policy(remembering_policy)
    policy(OBSERVATIONS)
    for arguments, words in (
        ((OBSERVATIONS,), "reward: found None, expected that of the last step"),
        ((OBSERVATIONS, np.zeros(2)), "reward: found shape [2]"),
        ((OBSERVATIONS, np.inf), "reward: found inf"),
        ((OBSERVATIONS[:2], 0.0), "observation: found 2 rows, expected 3; call reset()"),
    ):
        with pytest.raises(UserError) as error:
            policy(*arguments)
        assert words in str(error.value)
    for seed in (2, -1, 0.5, "a", True):
        with pytest.raises(UserError, match=f"training seed: found {seed}, expected 0 to 1"):
            Policy(remembering_policy, seed)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="training seed: found 2, expected 0 to 1"):
        Policy(remembering_policy, 2)


def test_a_policy_without_an_environment(tmp_path: Path) -> None:
    actors = actors_of(make_sac(CONFIG, 3, 2))
    with pytest.raises(ConfigError, match="sizes"):
        save_policy(tmp_path, CONFIG, actors)
    bounds = ([0.0, -1.0], [4.0, 1.0])
    save_policy(str(tmp_path / "a"), CONFIG, actors, sizes=(3, 2), bounds=bounds)
    policy = load_policy(tmp_path, 1)
    assert policy.facts["environment"] is None
    np.testing.assert_array_equal(policy.action_high, [4.0, 1.0])
    unit = load_policy(save_policy(tmp_path / "b", CONFIG, actors, sizes=(3, 2)), 1)(OBSERVATIONS)
    np.testing.assert_allclose(policy(OBSERVATIONS)[:, 0], 2.0 + 2.0 * unit[:, 0], rtol=1e-5)
    np.testing.assert_allclose(policy(OBSERVATIONS)[:, 1], unit[:, 1], rtol=1e-5)


BLOCKED = """
import sys
for name in ("flax", "optax", "orbax", "jaxrl_rollouts.offline", "jaxrl_rollouts.record"):
    sys.modules[name] = None
import numpy as np
from jaxrl_rollouts.exported import load_exported
for name in ("plain", "remembers"):
    policy, numbers = load_exported(f"{name}.stablehlo"), np.load(f"{name}.npz")
    reward = None
    for t in range(3):
        found = policy(numbers["observations"] + t, reward)
        np.testing.assert_allclose(found, numbers["actions"][t], rtol=1e-5, atol=1e-6)
        reward = np.arange(3.0) - t
    policy.reset()
    one = policy(numbers["observations"][0])
    np.testing.assert_allclose(one, numbers["actions"][0, 0], rtol=1e-5, atol=1e-6)
"""


def test_an_exported_policy_acts_with_jax_alone(
    saved: SavedPolicy, remembering_policy: SavedPolicy, tmp_path: Path
) -> None:
    pytest.importorskip("flatbuffers")
    for name, policy in (("plain", Policy(saved, 1)), ("remembers", Policy(remembering_policy, 1))):
        np.savez(tmp_path / f"{name}.npz", observations=OBSERVATIONS, actions=play(policy))
        policy.export(tmp_path / f"{name}.stablehlo")
    command = [sys.executable, "-c", BLOCKED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    files = {p.name for p in tmp_path.iterdir() if p.suffix != ".npz"}
    assert files == {"plain.stablehlo", "remembers.stablehlo"}


def test_files_that_are_no_exported_policy(saved: SavedPolicy, tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    file = Policy(saved).export(tmp_path / "a.stablehlo")
    with zipfile.ZipFile(file) as archive:
        facts, program = json.loads(archive.read("policy.json")), archive.read("policy.bin")
    assert facts["method"] == "sac" and facts["action_high"] == [2.0]

    def said(facts: Any, program: bytes) -> str:
        with pytest.raises(ValueError) as error:
            load_exported(altered(tmp_path, facts, program))
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "format: found 9, expected 1" in said({**facts, "format": 9}, program)
    assert "jax cannot read it" in said(facts, program[:40])
    assert "found other bytes" in said(json.dumps(facts), program[:-1] + b"x")
    older = {name: value for name, value in facts.items() if name != "sha256"}
    assert load_exported(altered(tmp_path, older, program)).action_size == 1
    (tmp_path / "c").write_bytes(file.read_bytes()[:100])
    for name, words in (("c", "found no exported policy"), ("d", "found no such file")):
        with pytest.raises(ValueError, match=words):
            load_exported(tmp_path / name)


@pytest.fixture(scope="module")
def whole(remembering_policy: SavedPolicy, tmp_path_factory: Any) -> tuple[dict, bytes]:
    """Facts and program of an exported policy."""
    pytest.importorskip("flatbuffers")
    file = Policy(remembering_policy).export(tmp_path_factory.mktemp("whole") / "a")
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read("policy.json")), archive.read("policy.bin")


MISSING = object()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, MISSING) for name in ("memory", "remembers", "observation_size", "action_size")),
        *(("observation_size", value) for value in (0, -3, 4, 3.0, "3", None, True, 10**12)),
        *(("action_size", value) for value in (0, 2, [1], 10**9)),
        *(
            ("memory", value)
            for value in (None, [], 3, [[[4], "float64"]], [[[10**12], "float32"]])
        ),
        *(("memory", value) for value in ([[4, "float32"]], [["x", "y"]], [[[4], "object"]])),
        *(("remembers", value) for value in (None, 1, "true")),
        *(("action_low", value) for value in ([1, 2], ["a"], 3, [None], [[1]], {"a": 1})),
        ("action_high", [float("inf")]),
        ("action_low", [10**400]),
        ("memory", [[[4], "(,)f4"]]),
    ],
)
def test_facts_of_another_program_are_refused(
    whole: tuple[dict, bytes], tmp_path: Path, name: str, value: Any
) -> None:
    facts = {key: old for key, old in whole[0].items() if key != name}
    facts |= {} if value is MISSING else {name: value}
    with pytest.raises(ValueError, match=r"policy\.json: found .*(expected|than a)") as caught:
        load_exported(altered(tmp_path, facts, whole[1]))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_no_file_of_another_kind_is_opened_and_none_expands_without_end(
    whole: tuple[dict, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(ValueError, match="no regular file"):
            load_exported(place)
    with pytest.raises(ValueError, match="found no exported policy"):
        load_exported("zero\0byte")
    monkeypatch.setitem(exported.MOST, "policy.bin", 10**6)
    with pytest.raises(ValueError, match=r"policy\.bin has more than 1,000,000 bytes"):
        load_exported(altered(tmp_path, whole[0], bytes(10**7)))
    with pytest.raises(ValueError, match=r"policy\.json has more than 1,048,576 bytes"):
        load_exported(altered(tmp_path, " " * 2**21, whole[1]))
    for text in ("[" * 10**5, '{"a":' * 10**5, "[]", "3", "?"):
        with pytest.raises(ValueError, match=r"found no exported policy|format: found"):
            load_exported(altered(tmp_path, text, whole[1]))


def test_flipped_bits_are_one_line(whole: tuple[dict, bytes], tmp_path: Path) -> None:
    good = altered(tmp_path, *whole).read_bytes()
    draw, refused = np.random.default_rng(0), 0
    for _ in range(30):
        data = bytearray(good)
        at = int(draw.integers(len(data)))
        data[at] ^= 1 << int(draw.integers(8))
        (tmp_path / "flipped").write_bytes(data)
        try:
            assert load_exported(tmp_path / "flipped").observation_size == 3
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 10


def test_a_seed_that_diverged_is_no_policy(saved: SavedPolicy) -> None:
    half = saved._replace(actors=jax.tree.map(lambda x: x.at[1].set(jnp.nan), saved.actors))
    assert half.diverged == [1] and saved.diverged == []
    with pytest.raises(UserError, match="training seed 1: its parameters are not finite"):
        Policy(half, 1)
    assert Policy(half, 0)(OBSERVATIONS).shape == (3, 1)


@pytest.mark.parametrize(
    ("place", "value"),
    [("hidden_dims", [10**6] * 2), ("hidden_dims", [10**9]), ("kind", [])]
    + [("seeds", 10**9), ("observation_size", 10**9), ("action_low", [float("inf")])],
)
def test_sizes_are_compared_before_anything_is_allocated(
    tmp_path: Path, place: str, value: Any
) -> None:
    folder = save_policy(tmp_path / "a", CONFIG, actors_of(make_sac(CONFIG, 3, 1)), sizes=(3, 1))
    facts = json.loads((folder / "policy.json").read_text())
    del facts["digest"]
    (facts["agent"] if place == "hidden_dims" else facts)[place] = value
    (folder / "policy.json").write_text(json.dumps(facts).replace("Infinity", "1e999"))
    with pytest.raises(UserError) as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)

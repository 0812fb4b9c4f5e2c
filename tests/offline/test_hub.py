"""What is published comes back the same, by HTTP from a stand-in for the hub; nothing is run."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

constants = pytest.importorskip("huggingface_hub.constants")
pytest.importorskip("safetensors")

from helpers_hub import Hub, commit_of, serving  # noqa: E402

import jaxrl_rollouts as jr  # noqa: E402
from jaxrl_rollouts import offline, pde  # noqa: E402
from jaxrl_rollouts.cli.main import dispatch  # noqa: E402
from jaxrl_rollouts.errors import CheckpointError, ConfigError, StorageError  # noqa: E402
from jaxrl_rollouts.offline.saved_policies import read_policy  # noqa: E402
from jaxrl_rollouts.offline.worlds.saved import load_worlds  # noqa: E402
from jaxrl_rollouts.record import fetched  # noqa: E402
from jaxrl_rollouts.record.tensors import PARAMS, read_tensors, write_tensors  # noqa: E402


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as (found, address):
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield found


@pytest.fixture(scope="module")
def trained() -> offline.TrainResult:
    small: dict[str, Any] = {"agent": {"hidden_dims": (4,)}, "steps": 1}
    small |= {"world": {"hidden_dims": (4,), "max_epochs": 1, "members": 2, "elites": 1}}
    small |= {"rollouts": {"batch_size": 4, "every": 1, "length": 2}}
    method = offline.recipe("mopo", "smoke", "pendulum-mixed", **small)
    return offline.train("pendulum-mixed", method, seeds=2, evaluations=1, episodes=2)


def push(what: Any, name: str, **options: Any) -> str:
    return jr.push_to_hub(what, name, token="hf_none", **options)


def test_a_policy_acts_the_same_from_the_hub(trained: offline.TrainResult, there: Hub) -> None:
    address = push(trained, "me/pendulum", licence="apache-2.0", private=True)
    assert address.endswith(commit_of(1)) and there.private == {"models/me/pendulum": True}
    files = there.repositories["models/me/pendulum"][-1]
    endings = {name.rpartition(".")[2] for name in files}
    assert endings == {"md", "json", "safetensors"}, "numbers, JSON and a card"
    observation = np.array([0.1, -0.2, 0.3], np.float32)
    for seed in (0, 1):
        policy = offline.load_policy("hf://me/pendulum", seed)
        np.testing.assert_array_equal(policy(observation), trained.policy(seed)(observation))
    best = offline.load_policy("hf://me/pendulum", best=True)
    np.testing.assert_array_equal(best(observation), trained.policy(0, best=True)(observation))
    named = read_policy(f"hf://me/pendulum@{commit_of(1)}")
    jax.tree.map(np.testing.assert_array_equal, named.actors, trained.actors)


def test_worlds_come_back_for_their_data_alone(trained: offline.TrainResult) -> None:
    push(trained, "me/worlds")
    source: Any = trained.source
    found = load_worlds("hf://me/worlds", source.dataset)
    jax.tree.map(np.testing.assert_array_equal, found.worlds, source.fitted.worlds)


def test_an_emulator_rolls_the_same(there: Hub) -> None:
    fields = np.random.default_rng(0).normal(size=(4, 6, 1, 16)).astype(np.float32)
    emulator = pde.fit("mse", fields, network=pde.Fno(width=4, modes=2, layers=1), steps=2)
    push(emulator, "me/ks")
    again = pde.load_emulator("hf://me/ks")
    np.testing.assert_array_equal(again.roll(fields[:, 0], 3), emulator.roll(fields[:, 0], 3))
    card = there.repositories["models/me/ks"][-1]["README.md"].decode()
    assert "tags: [jax, neural-pde]" in card and 'jr.pde.load_emulator("hf://me/ks")' in card


def test_a_tape_is_a_dataset_of_the_hub(there: Hub, made_hopper: Path) -> None:
    tape = made_hopper / "hopper-random.tape"
    push(tape, "me/hopper")
    assert list(there.repositories) == ["datasets/me/hopper"]
    here, far = offline.load(tape), offline.load("hf://me/hopper")
    assert far.sha256 == here.sha256 and far.name == here.name == "hopper-random"
    jax.tree.map(np.testing.assert_array_equal, far.transitions, here.transitions)
    assert here.sha256 in there.repositories["datasets/me/hopper"][-1]["README.md"].decode()


def test_the_card_of_a_run(there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = offline.load("pendulum-mixed").transitions
    np.savez(
        "mine.npz",
        observations=data.observations[:400],
        actions=data.actions[:400],
        rewards=data.rewards[:400],
        next_observations=data.next_observations[:400],
        terminals=data.terminations[:400],
        timeouts=data.truncations[:400],
    )
    asked = "run offline --preset smoke --method bc --steps 20 --dataset mine.npz"
    dispatch([*asked.split(), "--environment", "pendulum"])
    (run,) = Path("runs").iterdir()
    push(run, "me/mine", licence="mit")
    card = there.repositories["models/me/mine"][-1]["README.md"].decode()
    head, _, body = card.removeprefix("---\n").partition("---\n")
    assert "license: mit" in head and "library_name: jaxrl-rollouts" in head
    sha256 = json.loads((run / "run.json").read_text())["data"]["mine"]["sha256"]
    for part in (
        sha256,
        f"Made by `jaxrl-rollouts {asked}",
        "## Limits",
        "return of each training",
    ):
        assert part in body, part
    policy = json.loads(next(run.rglob("policy/policy.json")).read_text())
    assert policy["data_sha256"] == sha256
    assert all(f"{value:,.4g}" in body or f"{value:.1f}" in body for value in policy["returns"])
    dispatch(["evaluate", "hf://me/mine", "--episodes", "2"])


def test_what_is_refused(trained: offline.TrainResult, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected owner/name"):
        push(trained, "pendulum")
    with pytest.raises(ConfigError, match="a folder with policy.json"):
        push(tmp_path, "me/nothing")
    with pytest.raises(StorageError, match="me/absent"):
        offline.load_policy("hf://me/absent")
    with pytest.raises(ConfigError, match="hf://owner/name"):
        fetched.local("hf://me")
    assert fetched.local(tmp_path) == tmp_path and not fetched.is_name("runs/hf")


def test_only_json_numbers_and_tapes_are_fetched(
    trained: offline.TrainResult, there: Hub, tmp_path: Path
) -> None:
    push(trained, "me/bad")
    files = there.repositories["models/me/bad"][-1]
    files["policy/evil.py"] = b"raise SystemExit"
    files["policy/0/evil.pickle"] = pickle.dumps(print)
    folder = fetched.local("hf://me/bad")
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors"}
    assert not any("evil" in request for request in there.asked)


@pytest.mark.parametrize("damage", ["shape", "type", "name", "torn", "header"])
def test_damaged_numbers_are_one_line(damage: str, tmp_path: Path) -> None:
    params = {"net": {"kernel": np.ones((2, 3), np.float32), "bias": np.zeros(3, np.float32)}}
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
    path = tmp_path / PARAMS
    write_tensors(path, params)
    jax.tree.map(np.testing.assert_array_equal, read_tensors(path, like), params)
    if damage == "shape":
        write_tensors(path, {"net": {**params["net"], "bias": np.zeros(4, np.float32)}})
    elif damage == "type":
        write_tensors(path, {"net": {**params["net"], "bias": np.zeros(3, np.int32)}})
    elif damage == "name":
        write_tensors(path, {"net": {**params["net"], "more": np.zeros(3, np.float32)}})
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(CheckpointError, match=PARAMS) as raised:
        read_tensors(path, like)
    assert "\n" not in str(raised.value)

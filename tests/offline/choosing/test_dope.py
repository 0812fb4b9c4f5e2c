"""DOPE's policies: what they do by hand, from both kinds of file, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.offline.choosing.dope import read_dope_policy

S, H, A = 3, 5, 2


def weights(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"fc0": (H, S), "fc1": (H, H), "last_fc": (A, H), "last_fc_log_std": (A, H)}
    found: dict[str, Any] = {}
    for layer, shape in shapes.items():
        found[f"{layer}/weight"] = rng.normal(size=shape).astype(np.float32) / 2
        found[f"{layer}/bias"] = rng.normal(size=shape[0]).astype(np.float32) / 2
    return {**found, "nonlinearity": "relu", "output_distribution": "tanh_gaussian"} | changes


def written(folder: Path, name: str = "p.npz", **changes: Any) -> Path:
    np.savez(folder / name, **weights(**changes))
    return folder / name


def by_hand(w: dict[str, Any], seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bend = np.tanh if w["nonlinearity"] == "tanh" else lambda x: np.maximum(x, 0)
    x = bend(w["fc0/weight"] @ seen + w["fc0/bias"])
    x = bend(w["fc1/weight"] @ x + w["fc1/bias"])
    heads = (w[f"{name}/weight"] @ x + w[f"{name}/bias"] for name in ("last_fc", "last_fc_log_std"))
    mean, log_std = heads
    return mean, np.exp(log_std)


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("output", ["tanh_gaussian", "gaussian"])
def test_it_acts_as_published(kind: str, output: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"nonlinearity": kind, "output_distribution": output}
    found = read_dope_policy(written(tmp_path, **given))
    actor = jax.tree.map(lambda x: x[0], found.actors)
    seen = np.random.default_rng(1).normal(size=(4, S)).astype(np.float32)
    agent, key = found.agent, jax.random.key(0)
    moved, _ = agent.greedy(actor, key, seen, ())
    drawn, _ = agent.policy(actor, key, seen, ())
    noise = np.asarray(jax.random.normal(key, (4, A)))
    shown = np.tanh if output == "tanh_gaussian" else (lambda x: x)
    for row in range(4):
        mean, std = by_hand(weights(**given), seen[row])
        np.testing.assert_allclose(moved[row], shown(mean), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(drawn[row], shown(mean + std * noise[row]), rtol=1e-4, atol=1e-6)
    assert found.facts["observation_size"] == S and found.facts["action_size"] == A


@pytest.mark.parametrize("output", ["tanh_gaussian", "gaussian"])
def test_its_density_integrates_to_one(output: str, tmp_path: Path) -> None:
    """Summed over the plane of both actions."""
    narrow: Any = {"last_fc_log_std/bias": np.full(A, -1.5, np.float32)}
    narrow["last_fc_log_std/weight"] = np.zeros((A, H), np.float32)
    found = read_dope_policy(written(tmp_path, output_distribution=output, **narrow))
    actor = jax.tree.map(lambda x: x[0], found.actors)
    edge = 0.998 if output == "tanh_gaussian" else 4.0
    axis = np.linspace(-edge, edge, 801)
    plane = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, A).astype(np.float32)
    seen = np.broadcast_to(np.array([0.3, -0.2, 0.1], np.float32), (len(plane), S))
    assert found.agent.density is not None
    density = np.exp(np.asarray(found.agent.density(actor, seen, plane), np.float64))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=0.01)


def test_a_d4rl_file_has_its_behaviour(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        for name, value in weights().items():
            data = np.bytes_(value) if isinstance(value, str) else value
            file[f"metadata/policy/{name}"] = data
    found, same = read_dope_policy(tmp_path / "d.hdf5"), read_dope_policy(written(tmp_path))
    jax.tree.map(np.testing.assert_array_equal, found.actors, same.actors)
    assert found.agent is same.agent


class Bomb:
    def __reduce__(self) -> Any:
        return (open, ("/nowhere/at/all", "w"))


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    for name in ("p.pkl", "p.pickle"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(DataError, match="a pickle, which runs code when read.*savez"):
            read_dope_policy(tmp_path / name)
    odd: Any = {"fc0/weight": np.array([Bomb()], object)}
    np.savez(tmp_path / "o.npz", **odd)
    with pytest.raises(DataError, match="Python objects, which are never loaded"):
        read_dope_policy(tmp_path / "o.npz")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"nonlinearity": "elu"}, "nonlinearity.*'elu'.*relu, tanh"),
        ({"output_distribution": np.float32(1)}, "output_distribution"),
        ({"fc1/weight": np.zeros((H, H - 1), np.float32)}, r"fc1/weight.*\(5, 4\).*\(5, 5\)"),
        ({"fc0/bias": np.full(H, np.nan, np.float32)}, "fc0/bias.*finite numbers on 1 axes"),
        ({"last_fc/weight": np.zeros((A, H), int)}, "last_fc/weight"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=match):
        read_dope_policy(written(tmp_path, **changes))


def test_missing_weights_are_named(tmp_path: Path) -> None:
    one: Any = {"fc0/weight": np.zeros((H, S), np.float32)}
    np.savez(tmp_path / "p.npz", **one)
    with pytest.raises(DataError, match="fc0/bias.*only fc0/weight"):
        read_dope_policy(tmp_path / "p.npz")

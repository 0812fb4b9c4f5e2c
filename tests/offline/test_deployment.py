"""A policy taken along: the loader as a file of its own, and ONNX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli.main import dispatch
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.policy import Policy
from jaxrl_rollouts.offline.saved_policies import policy_of, save_policy

BOUNDS = ((-2.0, 0.0), (2.0, 1.0))
SEEN = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
ALONE = """
import sys
import numpy as np
import robot
policy = robot.load_exported("policy.stablehlo")
np.save("acted.npy", policy(np.load("seen.npy")))
assert not [name for name in sys.modules if name.startswith("jaxrl_rollouts")]
"""


def policy(config: Any) -> Policy:
    keys = jax.random.split(jax.random.key(0), 2)
    actors = jax.vmap(config.make(3, 2).init)(keys).actor
    actors = jax.tree.map(lambda x: x + 0.1 if x.dtype == jnp.float32 else x, actors)
    return Policy(policy_of(config, actors, sizes=(3, 2), bounds=BOUNDS), 1)


def test_the_loader_is_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = policy(IqlConfig(hidden_dims=(4,)))
    save_policy("run", made.saved.config, made.saved.actors, sizes=(3, 2), bounds=BOUNDS)
    words: str = "export run --out policy.stablehlo --training-seed 1 --loader robot.py"
    dispatch(words.split())
    assert 'act with: robot.load_exported("policy.stablehlo")' in capsys.readouterr().out
    np.save("seen.npy", SEEN)
    (tmp_path / "alone.py").write_text(ALONE)
    subprocess.run([sys.executable, "alone.py"], check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load("acted.npy"), made(SEEN), rtol=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        IqlConfig(hidden_dims=(8, 8)),
        SacConfig(hidden_dims=(8, 8)),
        CqlConfig(hidden_dims=(8, 8)),
        Td3BcConfig(hidden_dims=(8, 8)),
    ],
    ids=["iql", "sac", "cql", "td3_bc"],
)
def test_onnx_acts_the_same(config: Any, tmp_path: Path) -> None:
    pytest.importorskip("jax2onnx")
    runtime = pytest.importorskip("onnxruntime")
    made = policy(config)
    session = runtime.InferenceSession(made.export(tmp_path / "policy.onnx"))
    for rows in (1, 7):
        (acted,) = session.run(["action"], {"observation": SEEN[:rows]})
        np.testing.assert_allclose(acted, made(SEEN[:rows]), rtol=1e-5, atol=1e-6)
    assert (np.abs(acted) <= 2).all() and (acted[:, 1] >= 0).all()


def test_what_onnx_cannot_say_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy(IqlConfig(hidden_dims=(4,)))
    facts: Any = made.facts
    facts["offset"] = [1e6, 0.0, 0.0]
    with pytest.raises(ConfigError, match="less an offset"):
        made.export(tmp_path / "policy.onnx")
    pytest.importorskip("jax2onnx")
    pytest.importorskip("onnxruntime")
    other = policy(IqlConfig(hidden_dims=(4,)))
    call = type(other).__call__
    monkeypatch.setattr(Policy, "__call__", lambda self, seen: call(self, seen) + 0.01)
    with pytest.raises(DataError, match="of their range away"):
        other.export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())

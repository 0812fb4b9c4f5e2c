"""d3rlpy beside ours: equal settings, whole episodes, the same start states."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import claimed, smoke

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.benchmarks import comparison
from jaxrl_rollouts.experiments.benchmarks.comparison import METHODS, Config
from jaxrl_rollouts.experiments.benchmarks.peer import Peer, Theirs
from jaxrl_rollouts.offline import training
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.reports.report import load_report


def test_ours_alone_at_smoke_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, evaluate_seeds = [], training.evaluate_seeds

    def watched(env: Any, policy: Any, params: Any, key: jax.Array, *rest: Any, **more: Any) -> Any:
        keys.append(jax.random.key_data(jax.random.split(key, 2)))
        return evaluate_seeds(env, policy, params, key, *rest, **more)

    monkeypatch.setattr(training, "evaluate_seeds", watched)
    report = load_report(smoke("comparison", tmp_path))
    rows = report.tables["returns on pendulum-mixed"]
    assert [row["agent"] for row in rows] == ["data", "bc", "td3_bc"] and not report.claims
    assert len(rows[1]["ours"].values) == 2 and rows[1]["ours updates/s"] > 0
    # A peer's policies start where ours did, whatever the agent.
    config = comparison.EXPERIMENT.preset("smoke")
    want = jax.random.key_data(comparison.play_keys(config))
    np.testing.assert_array_equal(keys, [want] * len(config.agents))


# Settings that d3rlpy has under another name, or has not: there the same is said by its absence.
ELSEWHERE = {
    "hidden_dims",
    "normalize_obs",
    "critic_norm",
    "edac_init",
    "cosine",
    "target_entropy",
    "max_alpha",
    "max_q_backup",
    "value_lr",
    "eta",
    "min_target",
    "target_critics",
    "target_gap",
    "bc_steps",
    "discount",
    "actor",
    "flow_steps",
    "steps",
    "batch_size",
    "per_iteration",
    "unroll",
    "reward",
}


# d3rlpy has none of these: in ours they have to be off.
OFF = {
    "td3_bc": {"actor_norm"},
    "iql": {"dropout_rate"},
    "cql": {"critic_hidden_dims", "clip_diff_min", "normalize_obs"}
    | {"target_critics", "calibrated"},
    "sac": {"target_critics"},
}


@pytest.mark.parametrize("name", METHODS)
def test_each_of_our_settings_changes_d3rlpys(name: str) -> None:
    ours = METHODS[name]
    options = comparison.their_options(name, ours)
    # Off there as long as it is not named.
    assert not getattr(ours, "max_q_backup", False)
    for field in fields(ours):
        value = getattr(ours, field.name)
        if field.name in OFF.get(name, ()):
            assert value in (None, False, 0.0), f"{name}.{field.name}"
            continue
        if field.name in ELSEWHERE or (name == "sac" and field.name == "backup_entropy"):
            continue
        other = (not value) if isinstance(value, bool) else value + 1
        changed = comparison.their_options(name, replace(ours, **{field.name: other}))
        assert changed != options, f"{name}.{field.name}"


def test_rows_are_whole_episodes_that_end_by_time_or_by_themselves(tmp_path: Path) -> None:
    rng, no = np.random.default_rng(0), np.zeros(6, bool)
    s = rng.normal(size=(6, 3)).astype(np.float32)
    ended, cut = no.copy(), no.copy()
    ended[1], cut[3] = True, True
    rows = Transitions(s, s[:, :1], s[:, 0], s, ended, cut)
    data = Dataset("x", rows, "none", tmp_path, "")
    path = comparison.write_rows(comparison.rows_of("td3_bc", data), tmp_path / "x.npz")
    with np.load(path) as kept:
        np.testing.assert_array_equal(kept["rewards"], s[:, 0])
        assert kept["terminals"].tolist() == [0, 1, 0, 0, 0, 0]
        assert kept["timeouts"].tolist() == [0, 0, 0, 1, 0, 1]  # the last row ends somehow
    returns = s[:, 0].astype(np.float64).reshape(3, 2).sum(1)  # of the three episodes
    want = s[:, 0] * 1000 / (returns.max() - returns.min())
    np.testing.assert_allclose(comparison.rows_of("iql", data).rewards, want, rtol=1e-5)


SCRIPT = """
from serving import serve

class Study:
    def __init__(self, settings):
        self.gain = settings.gain

    def describe(self):
        return {"rows": 7}

    def said(self, observations):
        return [[self.gain * row[2]] for row in observations]

serve(Study)
"""


def test_a_peers_policy_is_evaluated_as_ours_would_be(tmp_path: Path) -> None:
    (tmp_path / "peer.py").write_text(SCRIPT)
    env, key = make("pendulum"), jax.random.key(3)

    def act(params: Any, key: Any, observation: jax.Array, memory: Any) -> tuple:
        return jnp.clip(-0.3 * observation[:, 2:], -1.0, 1.0), memory

    want = float(evaluate(env, act, (), key, 2).returns.mean())
    with Peer(Theirs(sys.executable, tmp_path / "peer.py", "nothing", {}, {})) as peer:
        assert peer.ask({"kind": "start", "gain": -0.3}) == {"rows": 7}
        assert comparison.played(peer, env, key, 2) == pytest.approx(want, rel=1e-4)


def test_what_cannot_run_is_refused() -> None:
    for wrong, match in ({"agents": ("neubay",)}, "agents"), ({"updates": 1234}, "updates"):
        with pytest.raises(ConfigError, match=match):
            check(Config(**wrong))
    with pytest.raises(ConfigError, match="peer_python"):
        check(Config(peer_python="/no/such/python"))


@pytest.mark.parametrize(
    ("ours", "holds"), [([1, 2, 3], False), ([1, 2, 7], True), ([10, 11], False)]
)
def test_ranges_overlap_whichever_is_higher(ours: list[float], holds: bool) -> None:
    cells = {
        ("data", "bc", by): Cell(extra={"returns": np.array(values, float)})
        for by, values in (("ours", ours), ("d3rlpy", [6.0, 8.0, 9.0]))
    }
    grid = Grid(("dataset", "agent", "by"), cells)
    made = claimed(comparison.add_claims, grid, Config(("data",), ("bc",)))
    assert made[0].holds is holds

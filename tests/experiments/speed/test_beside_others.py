"""Agents beside other people's: what they are told, what they are given, how they are played."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.compare.peer import Peer, Theirs
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.speed import beside_others, published
from jaxrl_rollouts.experiments.speed.beside_others import AGENTS, Config
from jaxrl_rollouts.experiments.speed.beside_others_page import add_claims, add_claims_alone
from jaxrl_rollouts.offline import training
from jaxrl_rollouts.offline.agents.registry import AgentConfigs
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.reports.report import load_report

LOOKED = ("ours, discounted", "ours")


def test_ours_alone_at_smoke_size(
    made_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, evaluate_seeds = [], training.evaluate_seeds

    def watched(env: Any, policy: Any, params: Any, key: jax.Array, *rest: Any, **more: Any) -> Any:
        played.append(jax.random.key_data(jax.random.split(key, 2)))
        return evaluate_seeds(env, policy, params, key, *rest, **more)

    monkeypatch.setattr(training, "evaluate_seeds", watched)
    arguments = ["--preset", "smoke", "--no-progress", "--out", str(tmp_path)]
    cli.dispatch(["run", "beside_others", *arguments])
    report = load_report(next(tmp_path.iterdir()))
    rows = report.tables["returns"]
    assert [row["agent"] for row in rows] == ["behaviour", "bc", "td3_bc"]
    assert "d3rlpy" not in rows[1]  # nothing to compare with but the data
    # Hopper's rewards are positive here: what is discounted is less.
    assert 0 < rows[0]["ours, discounted"] < rows[0]["ours"]
    assert all(0 < v < r for v, r in zip(*(rows[1][c].values for c in LOOKED), strict=True))
    bc, td3 = report.claims
    assert bc.threshold == rows[0]["ours"] and bc.time_constants is None
    assert len(bc.values) == 2
    # Its targets move with a delayed actor, every other of the steps.
    config = beside_others.EXPERIMENT.preset("smoke")
    assert td3.time_constants == pytest.approx(config.updates * 0.005 / 2 * 0.01)
    assert td3.verdict == "not converged"
    assert len(rows[1]["ours"].values) == 2 and rows[1]["ours updates/s"] > 0
    assert set(report.pictures) == {"learning-hopper-random"}
    # A peer's policies start where ours did, whatever the agent.
    env = make("mujoco/Hopper-v4")
    looks = [beside_others.looks_of(name, config, env) for name in config.agents]
    keys = [beside_others.play_keys(config, look) for each in looks for look in each.values()]
    np.testing.assert_array_equal(played, [jax.random.key_data(key) for key in keys])


def test_both_are_looked_at_after_the_same_gradient_steps() -> None:
    env = make("pendulum")
    # Ours in whole iterations of at most a thousand, of whole periods of the agent.
    config = Config(updates=10_000, evaluations=4)
    steps = {2000: 2, 5000: 5, 8000: 8, 10_000: 10}
    assert beside_others.looks_of("cql", config, env) == steps
    odd = Config(updates=2 * 501, evaluations=2)
    assert beside_others.looks_of("bc", odd, env) == {501: 1, 1002: 2}
    assert beside_others.looks_of("td3_bc", odd, env) == {500: 1, 1000: 2}


# Settings that d3rlpy has under another name, or has not: there the same is said by its absence.
ELSEWHERE = {
    "hidden", "normalise", "critic_norm", "careful_init", "cosine_steps", "target_entropy",
    "max_alpha", "value_rate", "diversity", "least_target", "gap", "warm_start", "discount",
    "actor", "flow_steps",
}  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
def test_d3rlpy_is_told_everything_that_ours_is(name: str) -> None:
    """Each of our settings that is changed changes what d3rlpy is told."""
    ours = getattr(AgentConfigs(), name)
    said = beside_others.their_options(name, ours)
    for field in fields(ours):
        value = getattr(ours, field.name)
        if field.name in ELSEWHERE or (name == "sac" and field.name == "backup_entropy"):
            continue
        other = (not value) if isinstance(value, bool) else value + 1
        assert beside_others.their_options(name, replace(ours, **{field.name: other})) != said, (
            f"{name}.{field.name}"
        )


def test_rows_are_whole_episodes_that_end_by_time_or_by_themselves(tmp_path: Path) -> None:
    rng, no = np.random.default_rng(0), np.zeros(6, bool)
    s = rng.normal(size=(6, 3)).astype(np.float32)
    ended, cut = no.copy(), no.copy()
    ended[1], cut[3] = True, True
    rows = Transitions(s, s[:, :1], s[:, 0], s, ended, cut)
    path = beside_others.write_rows(Dataset("x", rows, "none", tmp_path, ""), tmp_path / "x.npz")
    with np.load(path) as kept:
        assert kept["terminals"].tolist() == [0, 1, 0, 0, 0, 0]
        assert kept["timeouts"].tolist() == [0, 0, 0, 1, 0, 1]  # the last row ends somehow
        np.testing.assert_array_equal(kept["rewards"], s[:, 0])


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


def test_a_peers_policy_is_played_as_ours_would_be(tmp_path: Path) -> None:
    (tmp_path / "peer.py").write_text(SCRIPT)
    env, key = make("pendulum"), jax.random.key(3)

    def act(params: Any, key: Any, observation: jax.Array, memory: Any) -> tuple:
        return jnp.clip(-0.3 * observation[:, 2:], -1.0, 1.0), memory

    want = float(evaluate(env, act, (), key, 2).returns.mean())
    with Peer(Theirs(sys.executable, tmp_path / "peer.py", "nothing", {}, {})) as peer:
        assert peer.ask({"kind": "start", "gain": -0.3}) == {"rows": 7}
        got = beside_others.played(peer, env, key, 2)
    assert got == pytest.approx(want, rel=1e-4)


def test_what_others_published_stands_beside_sets_of_the_same_name() -> None:
    rows = published.rows(("hopper-random", "hopper-medium"), ("sac", "bc", "iql"))
    assert [(row["dataset"], row["agent"]) for row in rows] == [
        ("hopper-medium-v2", "bc"),
        ("hopper-medium-v2", "iql"),
    ]
    assert rows[1]["OfflineRL-Kit"] == "65.7 ± 8.1" and set(published.BY) < set(rows[0])


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="agents"):
        check(Config(agents=("neubay",)))
    with pytest.raises(ConfigError, match="peer_python"):
        check(Config(peer_python="/no/such/python"))


def test_a_claim_fails_only_where_theirs_is_surely_better() -> None:
    claims = []
    report = SimpleNamespace(claim=lambda claim: claims.append(claim) or claim)
    for ours in ([1.0, 2.0, 3.0], [1.0, 2.0, 7.0]):
        cells = {
            ("data", "bc", by): Cell(extra={"returns": np.array(values)[:, None]})
            for by, values in (("ours", ours), ("d3rlpy", [6.0, 8.0, 9.0]))
        }
        claims.clear()
        grid = Grid(("dataset", "agent", "by"), cells)
        add_claims(report, grid, ["data"])  # type: ignore[arg-type]
        assert claims[0].holds is (max(ours) >= 6.0)


def test_alone_the_last_looks_are_held_against_the_data() -> None:
    made: list[Any] = []
    report: Any = SimpleNamespace(claim=lambda claim: made.append(claim) or claim)
    returns = np.array([[9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 9.0, 6.0, 6.0, 6.0, 6.0, 6.0]])
    cells = {("data", name, "ours"): Cell(extra={"returns": returns}) for name in ("bc", "iql")}
    grid = Grid(("dataset", "agent", "by"), cells)
    rows = SimpleNamespace(rewards=np.full(4, 2.0), terminations=np.array([0, 1, 0, 1], bool))
    rows.truncations = np.zeros(4, bool)
    env = SimpleNamespace(max_episode_steps=1000)
    setting = SimpleNamespace(dataset=SimpleNamespace(transitions=rows), env=env)
    settings: Any = {"data": setting}
    add_claims_alone(report, grid, settings, {"bc": None, "iql": 2.5})
    cloned, learned = made
    np.testing.assert_allclose(np.ravel(cloned.values), [3.0, 6.0])
    assert cloned.threshold == 4.0 and cloned.holds and cloned.verdict == "yes"
    assert learned.verdict == "not converged"

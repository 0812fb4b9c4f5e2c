"""The benchmark runs, counts right and rebuilds APEBench's network; no test asks how fast it is."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.compare.peer import Outputs, Peer, Theirs, shaken
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.experiments.speed.pde_speed import (
    EXPERIMENT,
    Config,
    PlainResnet,
    forward_operations,
    make_ours,
)
from jaxrl_rollouts.networks import parameter_count as count
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.operators import ResnetConfig
from jaxrl_rollouts.pde.operators.layers import field_network
from jaxrl_rollouts.reports.report import load_report

SMOKE = ["--preset", "smoke", "--no-progress"]
# A peer that answers `apply` with the zero fields of the right shape.
SCRIPT = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    zeros = [[[0.0] * len(f[0])] for f in question["fields"]]
    print("RESULT " + json.dumps({"said": zeros}), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "peer.py"
    path.write_text(SCRIPT)
    return path


def peer(script: Path, outputs: Outputs = ()) -> Peer:
    return Peer(Theirs(sys.executable, script, "torch", {}, {}, outputs=outputs))


@pytest.mark.slow
def test_it_measures_without_peers_and_makes_their_claims_not(tmp_path: Path) -> None:
    cli.dispatch(["run", "pde_speed", *SMOKE, "--out", str(tmp_path)])
    report = load_report(next(tmp_path.iterdir()))
    assert len(report.tables) == 5
    for name, rows in report.tables.items():
        if name == "seeds side by side":
            assert [row["seeds"] for row in rows] == [1, 2]
            continue
        (row,) = rows
        assert row["ours"] > 0 and 0 < row["% of peak"] < 100 and row["parameters"] > 0
        assert row["compile s"] > 0.05 or "rollout" in name
        assert row.get("second call compiles s", 0.0) < 0.05
    assert [claim.name for claim in report.claims] == ["2 seeds in 4 times the time of one"]
    notes = " ".join(report.notes)
    assert "torch was left out" in notes and "apebench was left out" in notes


@pytest.mark.parametrize("option", ["torch-python", "apebench-python"])
def test_a_missing_peer_is_said_before_anything_runs(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "pde_speed", *SMOKE, f"--{option}", "no/python", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert f"--{option}: found 'no/python'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_peer_with_another_network_is_refused(script: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    ours = make_ours(config, 8, plain=True)
    outputs = ours.outputs(config.points)
    with peer(script, outputs) as running, pytest.raises(DataError, match="torch: .*network"):
        running.check_same()


def plain(width: int, blocks: int, dilations: tuple[int, ...], points: int) -> FieldNetwork:
    return field_network(PlainResnet(width, blocks, dilations), 1, points, conditions=0)


def test_dilations_are_those_of_apebench() -> None:
    assert Config().dilations == ResnetConfig().dilations == (1, 2, 4, 8, 4, 2, 1)
    assert Config(dilation_factor=1).dilations == (1, 2, 1)


def test_the_plain_network_has_the_parameters_of_apebench() -> None:
    """`get_parameter_count("Dil;3;32;2;gelu")` of a one-dimensional scenario of APEBench 0.1.1."""
    net = plain(32, 2, Config().dilations, 64)
    assert count(net.init(jax.random.key(0))) == 44_449


def test_the_plain_network_is_translation_equivariant_and_sees_the_field_only() -> None:
    net = plain(8, 1, (1, 2, 1), 16)
    params = shaken(net, jax.random.key(0))
    field, other = jax.random.normal(jax.random.key(1), (2, 1, 16))
    said = net.apply(params, field, other, 0.0, jnp.zeros(0))
    assert jnp.abs(said).max() > 0.01
    np.testing.assert_array_equal(said, net.apply(params, field, field, 7.0, jnp.zeros(0)))
    moved = net.apply(params, jnp.roll(field, 5, -1), other, 0.0, jnp.zeros(0))
    np.testing.assert_allclose(moved, jnp.roll(said, 5, -1), atol=1e-5)


@pytest.mark.parametrize("plain", [True, False])
def test_operations_are_those_of_the_program(plain: bool) -> None:
    """Counted by hand against XLA's count, which has the elementwise ones too."""
    config, fields = Config(), jnp.ones((4, 1, 64))
    ours = make_ours(config, 64, plain=plain)
    apply = jax.vmap(lambda p, u: ours.net.apply(p, u, u, 0.0, jnp.zeros(0)), (None, 0))
    counted = jax.jit(apply).lower(ours.params, fields).compile().cost_analysis()["flops"]
    by_hand = 4 * forward_operations(config, 64, plain=plain)
    assert by_hand == pytest.approx(counted, rel=0.2)

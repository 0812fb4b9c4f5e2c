"""The benchmark runs, counts right and rebuilds APEBench's network; no test asks how fast it is."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import SMOKE, smoke

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.experiments.benchmarks.pde_speed import EXPERIMENT
from jaxrl_rollouts.experiments.benchmarks.pde_speed_cells import (
    COMPARED,
    Case,
    Config,
    PlainResnet,
    Work,
    cases,
    make_ours,
    operations,
    resnet_case,
)
from jaxrl_rollouts.experiments.benchmarks.peer import Outputs, Peer, Theirs, shaken
from jaxrl_rollouts.networks import parameter_count as count
from jaxrl_rollouts.pde.emulator import FieldNetwork, FieldShape
from jaxrl_rollouts.pde.operators import Resnet
from jaxrl_rollouts.pde.operators.layers import field_network
from jaxrl_rollouts.reports.report import load_report

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
    report = load_report(smoke("pde_speed", tmp_path))
    assert len(report.tables) == 2 * len(COMPARED) + 1
    for name, rows in report.tables.items():
        if name == "seeds side by side":
            assert [row["seeds"] for row in rows] == [1, 2]
            continue
        assert len(rows) == (2 if "plane" in name or "neuraloperator" in name else 1)
        for row in rows:
            assert row["ours"] > 0 and 0 < row["% of peak"] < 100 and row["parameters"] > 0
            assert row["ms a step"] == pytest.approx(1e3 / row["ours"])
            assert row["compile s"] > 0.05 or "rollout" in name
            assert row.get("second call compiles s", 0.0) < 0.05
    names = [claim.name for claim in report.claims]
    assert names == ["training, width 8: 30 % of the matrix peak"]
    notes = " ".join(report.notes)
    assert all(f"{peer} was left out" in notes for peer in ("torch", "apebench", "neuraloperator"))


@pytest.mark.parametrize("option", ["torch-python", "apebench-python", "neuralop-python"])
def test_a_missing_peer_is_said_before_anything_runs(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "pde_speed", *SMOKE, f"--{option}", "no/python", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert f"--{option}: found 'no/python'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_peer_with_another_network_is_refused(script: Path) -> None:
    case = resnet_case(EXPERIMENT.preset("smoke"), 8, plain=True)
    outputs = make_ours(case).outputs(case.space)
    with peer(script, outputs) as running, pytest.raises(DataError, match="torch: .*network"):
        running.check_same()


def plain(width: int, blocks: int, dilations: tuple[int, ...], points: int) -> FieldNetwork:
    return field_network(PlainResnet(width, blocks, dilations), FieldShape(1, points))


def test_dilations_are_those_of_apebench() -> None:
    assert Config().dilations == Resnet().dilations == (1, 2, 4, 8, 4, 2, 1)
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
def test_operations_of_a_resnet_are_those_of_its_convolutions(plain: bool) -> None:
    """2 for every weight and point of 14 layers and both ends; the embedding is shared."""
    case = resnet_case(Config(), 64, plain=plain)
    ends = 2 * 64 if plain else 9 * 64  # width 1 and 1; width 3 on two channels, and 3
    assert operations(case) == 2 * 64 * (14 * 3 * 64**2 + ends)


def test_operations_in_the_plane_are_those_of_the_network() -> None:
    """By hand: 9 taps in the ResNet; 2 x 12 x 12 complex matrices a layer, and 1 x 1 layers."""
    both = (*cases(Config(), "plane"), *cases(Config(), "neuralop"))
    rows = {case.name: case for case in both}
    points, width, depth = 32 * 32, 16, 7
    resnet = 2 * points * 9 * (depth * width**2 + (2 + 1) * width)
    assert operations(rows["dilated ResNet, 32 x 32"]) == resnet
    mixing, beside = 8 * 2 * 12 * 12 * width**2, 2 * points * width**2
    ends = 2 * points * (2 * width + 2 * width**2 + 2 * width)
    assert operations(rows["FNO, 32 x 32"]) == 4 * (mixing + beside) + ends
    # Four times the points; the FNO's modes stay as many.
    for name in ("dilated ResNet", "U-Net"):
        large, small = (operations(rows[f"{name}, {on}"]) for on in ("64 x 64", "32 x 32"))
        assert large == 4 * small


def test_the_peers_rows_are_our_networks_of_the_tables() -> None:
    config = Config()
    names = {compared: [case.name for case in cases(config, compared)] for compared in COMPARED}
    assert names["torch"] == names["apebench"] == ["width 32", "width 64"]
    grids = ("32 x 32", "64 x 64")
    kinds = ("dilated ResNet", "U-Net")
    assert names["plane"] == [f"{kind}, {on}" for kind in kinds for on in grids]
    assert names["neuralop"] == ["FNO, 64", *(f"FNO, {on}" for on in grids)]


def test_neuraloperator_goes_without_what_tells_the_index() -> None:
    """What is left has the number of its FNO: lifted by one layer, one bias a layer, no MLPs."""
    for case in cases(Config(), "neuralop"):
        width, modes = case.settings["width"], case.settings["modes"]
        params = jax.eval_shape(case.net.init, jax.random.key(0))
        left = count({k: v for k, v in params.items() if k not in case.apart})
        matrices = modes * (1 if len(case.space) == 1 else 2 * modes)
        layer = 2 * matrices * width**2 + width**2 + width
        ends = (2 + 1) * width + (width + 1) * 2 * width + 2 * width + 1
        assert left == 4 * layer + ends


@pytest.mark.slow
def test_a_network_in_the_plane_trains_and_rolls() -> None:
    net = EXPERIMENT.preset("smoke").networks.fno.make(FieldShape(1, (8, 8)))
    work = Work(batch=2, trajectories=2, frames=3, updates=2, fields=3, steps=4)
    ours = make_ours(Case("", {}, net, (8, 8), work, {}))
    first, second = ours.train(2), ours.train(2)  # raises where a loss is not finite
    assert first.compile_seconds > 0.0 == round(second.compile_seconds, 1)
    rolled = ours.roll()
    assert rolled.shape == (4, 3, 1, 8, 8) and np.isfinite(rolled).all()

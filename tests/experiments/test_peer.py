"""Programs in other interpreters: asked again and again, said when they end, given our weights."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import ResidualMlp, make_residual_mlp
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.experiments.benchmarks.peer import Peer, Theirs, shaken, write_weights
from jaxrl_rollouts.networks import parameter_count

# A network that answers every field with zeros, and dies when told to.
SCRIPT = """
import sys
from serving import serve

class Study:
    def __init__(self, settings):
        print("chatter")
        self.points = settings.points

    def describe(self):
        return {"parameters": 7, "torch": "0.0"}

    def said(self, fields):
        return [[0.0] * self.points for _ in fields]

    def seconds(self, kind, **how):
        if kind == "die":
            sys.exit("torch has left the building")
        return 0.5

serve(Study)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "peer.py"
    path.write_text(SCRIPT)
    return path


def peer(script: Path, parameters: int = 7) -> Peer:
    work, settings = {"train": 4}, {"points": 3}
    ones = [({"fields": np.ones((2, 3))}, np.ones((2, 3)))]
    how = {"parameters": parameters, "outputs": ones}
    return Peer(Theirs(sys.executable, script, "torch", settings, work, **how))


def test_a_peer_is_started_checked_and_timed(script: Path, tmp_path: Path) -> None:
    with peer(script) as running:
        assert running.start(tmp_path) == {"torch": "0.0"}
        for count in (1, 2):
            said = running.ask({"kind": "apply", "fields": [[1.0] * 3] * count})
            assert said == {"said": [[0.0] * 3] * count}
        timers = running.timers({"torch": {}})
        turn = timers["train", "torch"]()
        assert turn.rate == 8.0 and 0 <= turn.cpu < 1e3  # work per second
        with pytest.raises(DataError, match=r"torch: network on our weights: found 1\.0"):
            running.check_same()


def test_a_peer_with_other_parameters_is_refused(script: Path, tmp_path: Path) -> None:
    with peer(script, 8) as running, pytest.raises(DataError, match="parameters: found 7"):
        running.start(tmp_path)


def test_a_peer_that_dies_says_why_and_which_setting(script: Path, tmp_path: Path) -> None:
    with peer(script) as running, pytest.raises(ConfigError) as error:
        running.start(tmp_path)
        running.ask({"kind": "die"})
    assert "torch_python" in str(error.value) and "left the building" in str(error.value)


def test_weights_arrive_as_they_left(tmp_path: Path) -> None:
    net = make_residual_mlp(ResidualMlp(width=8, blocks=1, embedding=8), 3)
    params = shaken(net, jax.random.key(0))
    write_weights(tmp_path / "w.npz", params)
    stored = np.load(tmp_path / "w.npz")
    assert sum(stored[name].size for name in stored) == parameter_count(params)
    np.testing.assert_array_equal(stored["output/kernel"], params["output"]["kernel"])
    assert all(np.ptp(stored[name]) > 0 for name in stored), "zeros would hide a difference"

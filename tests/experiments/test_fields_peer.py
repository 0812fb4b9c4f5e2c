"""Another library's run of a cell, with a peer that answers persistence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.experiments.benchmarks import fields_peer
from jaxrl_rollouts.pde import Fno
from jaxrl_rollouts.pde.train_command import TrainConfig

# In the place of an interpreter: what it is to run there is not looked at.
PERSISTENCE = f"""#!{sys.executable}
import json, sys
import numpy as np
for line in sys.stdin:
    asked = json.loads(line)
    if asked["kind"] == "start":
        s, answer = asked, {{"parameters": 7}}
    else:
        given = np.load(s["folder"] + "/fields.npz")
        assert abs(given["fields"].std() - 1) < 1e-3 and s["warmup"] == 10 and s["modes"] == 3
        assert abs(np.diff(given["fields"], axis=1).std() - s["scale"]) < 1e-5
        np.save(s["folder"] + "/rolled.npy", np.stack([given["start"]] * s["steps"]))
        answer = {{"seconds": 2.0}}
    print("RESULT " + json.dumps(answer), flush=True)
"""


def test_a_peers_rollouts_are_scored_in_the_units_of_the_training_data(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PERSISTENCE)
    python.chmod(0o755)
    x, t = np.arange(16) * np.pi / 8, 0.1 * np.arange(32)
    phase = np.random.default_rng(0).uniform(0, 6, (10, 1, 1))
    np.savez(
        tmp_path / "u.npz", u=5 * np.sin(x - t[:, None] + phase), dt=0.5, boundaries="periodic"
    )
    config = TrainConfig(file=str(tmp_path / "u.npz"), network=Fno(modes=3), steps=100, seeds=2)
    found, seconds = fields_peer.measured(str(python), config)
    assert seconds == 4.0 and len(found) == 2 and found[0] == found[1]
    # sin(x - a) beside sin(x): an error of 2 sin(a / 2) over the field's size, correlation cos(a)
    ratio = 2 * np.sin(0.05 * np.arange(1, 32))
    assert found[0]["nrmse_1"] == pytest.approx(ratio[0], rel=1e-4)
    unbiased = np.sqrt(15 / 16)
    assert found[0]["vrmse_1"] == pytest.approx(unbiased * ratio[0], rel=1e-4)
    assert found[0]["vrmse_6_12"] == pytest.approx(unbiased * ratio[6:12].mean(), rel=1e-4)
    assert found[0]["time"] == pytest.approx(0.5 * 6)  # cos(0.6) > 0.8 > cos(0.7)
    assert found[0]["parameters"] == 7

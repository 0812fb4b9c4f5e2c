"""The benchmark runs, compares like with like and counts right; no test asks how fast it is."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl_rollouts.compare.peer import Peer, Theirs
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import SamplerConfig, sample
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.experiments.speed.diffusion_speed import EXPERIMENT, agent_rows
from jaxrl_rollouts.experiments.speed.diffusion_speed_cells import (
    AgentSpeed,
    DenoiserSpeed,
    denoiser_settings,
    learned_parameters,
    make_our_denoiser,
    time_agents,
)
from jaxrl_rollouts.experiments.speed.goals import PEERS
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")
# Says that it has as many parameters as told by its name, takes 10 ms per update on one thread and
# 20 on all, and answers every network with zeros.
SCRIPT = """
import json, pathlib, sys
count, updates = int(pathlib.Path(__file__).stem.split("_")[1]), 0
for line in sys.stdin:
    question = json.loads(line)
    answer = {"parameters": count, "d3rlpy": "0.0", "torch": "0.0"}
    updates = question.get("updates") or updates
    if question["kind"] == "train":
        each = 0.01 if question["threads"] == 1 else 0.02
        answer = {"seconds": updates * each * (0.5 + 0.5 * question["drawn"])}
    if question["kind"] == "apply":
        answer = {"said": [[0.0] * len(row) for row in question["rows"]]}
    print("RESULT " + json.dumps(answer), flush=True)
"""


def fake_python(folder: Path, parameters: int) -> str:
    """An interpreter that runs the script above, whatever it is asked to run."""
    script, python = folder / f"peer_{parameters}.py", folder / f"python_{parameters}"
    script.write_text(SCRIPT)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
    python.chmod(0o755)
    return str(python)


def context_in(folder: Path) -> RunContext:
    made = RunFolder.create(folder, "diffusion_speed", "smoke", SMOKE, "")
    return RunContext(made, progress=False)


@pytest.mark.slow
def test_it_measures_without_peers_and_makes_their_claims_not(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "diffusion_speed", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["agents: gradient steps per second"]
    assert [(r["agent"], r["seeds"]) for r in rows] == [
        ("td3_bc", 1),
        ("td3_bc", 2),
        ("iql", 1),
        ("iql", 2),
    ]
    assert all(row["ours"] > 0 and "ratio" not in row for row in rows)
    nets = report.tables["denoisers: training steps and samples per second"]
    assert [row["net"] for row in nets] == ["mlp", "unet"]
    assert all(row["samples/s, ours"] > 0 and 0 < row["% of peak"] < 100 for row in nets)
    assert not report.claims and not report.pictures
    assert any("no torch_python was given" in note for note in report.notes)


@pytest.mark.slow
def test_agents_are_compared_with_the_fastest_of_d3rlpy(tmp_path: Path) -> None:
    sizes = replace(SMOKE.agents, seeds=(1, 2))
    count = learned_parameters("td3_bc", sizes, 16)
    config = replace(SMOKE, agents=sizes, torch_python=fake_python(tmp_path, count))
    context = context_in(tmp_path)
    report = Report.of(context, 1)
    timing = time_agents(config, context, "td3_bc", 16)
    one, two = agent_rows(report, config, "td3_bc", 16, timing)
    cores = os.cpu_count() or 1
    assert one["d3rlpy, 1 thread"] == pytest.approx(100)
    assert one["d3rlpy, 1 thread, no draws"] == pytest.approx(200)
    assert one["d3rlpy, all cores"] == pytest.approx(50 if cores > 1 else 100)
    assert "d3rlpy, a process per core" not in one
    assert two["d3rlpy, a process per core"] == pytest.approx(100 * cores)
    assert one["ratio"] == pytest.approx(one["ours"] / 100)
    assert two["ratio"] == pytest.approx(two["ours"] / (100 * cores))
    assert [claim.threshold for claim in report.claims] == [5.0, 5.0]
    assert report.versions["d3rlpy"] == "0.0"
    wrong = replace(config, torch_python=fake_python(tmp_path, count + 1))
    with pytest.raises(DataError, match=f"d3rlpy: parameters: found {count + 1}"):
        time_agents(wrong, context, "td3_bc", 16)


def test_parameters_are_counted_without_targets() -> None:
    sizes = AgentSpeed(rows=10, layers=2)
    actor = 17 * 8 + 8 + 8 * 8 + 8 + 8 * 6 + 6
    critic = 23 * 8 + 8 + 8 * 8 + 8 + 8 + 1
    value = 17 * 8 + 8 + 8 * 8 + 8 + 8 + 1
    assert learned_parameters("td3_bc", sizes, 8) == actor + 2 * critic
    assert learned_parameters("iql", sizes, 8) == actor + 6 + 2 * critic + value


def test_a_peer_with_another_network_is_refused(tmp_path: Path) -> None:
    ours = make_our_denoiser("mlp", SMOKE.denoisers)
    python = fake_python(tmp_path, 1)
    theirs = Theirs(python, PEERS / "torch_denoisers.py", "torch", {}, {}, outputs=ours.outputs())
    match = r"torch: network on our weights: found 1\.0"
    with Peer(theirs) as peer, pytest.raises(DataError, match=match):
        peer.check_same()


def test_the_noise_levels_a_peer_gets_are_the_samplers() -> None:
    """Heun's rule written out over them gives what `sample` does, for a denoiser that is known."""
    config = DenoiserSpeed(sampler=SamplerConfig(6, churn=0.0))
    said = denoiser_settings("mlp", config, make_our_denoiser("mlp", config))
    assert said["raised"] == said["levels"][:-1] and not any(said["added"])
    key = jax.random.key(3)
    x = 80.0 * np.asarray(jax.random.normal(jax.random.split(key)[0], (5, 2)), np.float64)

    def denoise(x: np.ndarray, sigma: float) -> np.ndarray:
        return x / (1.0 + sigma**2)

    for now, after in zip(said["raised"], said["levels"][1:], strict=True):
        slope = (x - denoise(x, now)) / now
        there = x + (after - now) * slope
        if after > 0:
            there = x + (after - now) * 0.5 * (slope + (there - denoise(there, after)) / after)
        x = there
    found = sample(lambda p, x, s: x / (1.0 + s**2), None, key, (5, 2), config=config.sampler)
    np.testing.assert_allclose(found, x, rtol=1e-3, atol=1e-4)
    windows = make_our_denoiser("unet", SMOKE.denoisers)
    churned = denoiser_settings("unet", DenoiserSpeed(), windows)
    assert max(churned["added"]) > 0 and churned["shape"] == (25, 8)


def test_bad_settings_are_said_before_anything_runs() -> None:
    for change, setting in (
        ({"torch_python": "no/python"}, "torch_python"),
        ({"agents": replace(SMOKE.agents, seeds=(2, 4))}, "agents.seeds"),
        ({"denoisers": replace(SMOKE.denoisers, seeds=())}, "denoisers.seeds"),
        ({"repeats": 0}, "repeats"),
    ):
        with pytest.raises(ConfigError) as caught:
            check(replace(SMOKE, **change))
        assert caught.value.setting == setting

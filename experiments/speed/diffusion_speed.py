"""How fast agents and denoisers learn and sample, beside d3rlpy and torch in the same run.

TD3+BC and IQL with d3rlpy's nets and batch; the residual MLP and the temporal U-Net of
`jaxrl_rollouts/diffusion`, rebuilt in torch (`peers/torch_denoisers.py`): torch gets our weights
first, and what it makes of a few rows is compared with ours. The peers live in an environment of
their own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 d3rlpy
    jaxrl-rollouts run diffusion_speed --torch-python torch/bin/python
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import numpy as np

from jaxrl_rollouts.diffusion import ResidualMlpConfig, SamplerConfig, TemporalUnetConfig
from jaxrl_rollouts.experiments.kit.peer import Peer, Timer, check_parameters, torch_timers
from jaxrl_rollouts.experiments.kit.timing import SOURCE, matmul_peak, rounds, timed
from jaxrl_rollouts.experiments.speed.diffusion_speed_agents import AGENTS, agent_rows, draw_against
from jaxrl_rollouts.experiments.speed.diffusion_speed_study import (
    NETS,
    AgentSpeed,
    Config,
    DenoiserSpeed,
    Net,
    check_same,
    denoiser_peer_settings,
    make_our_denoiser,
)
from jaxrl_rollouts.experiments.speed.pde_speed_nets import write_weights
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.report import Report


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = Report.of(context, 1)
    cores = os.cpu_count()
    report.note(f"Load average at the start: {os.getloadavg()[0]:.1f} on {cores} cores.")
    if not config.torch_python:
        report.note("d3rlpy and torch were left out, and their claims: no torch_python was given.")
    rows = [
        row
        for name in AGENTS
        for width in config.agents.widths
        for row in agent_rows(config, context, report, name, width)
    ]
    report.table("agents: gradient steps per second", rows)
    if config.torch_python:
        draw_against(report, rows)
    peak = matmul_peak()
    report.table(
        "denoisers: training steps and samples per second",
        [_denoiser(config, context, report, name, peak) for name in NETS],
    )
    report.note(
        "Agents: all seeds' gradient steps together. d3rlpy learns one seed after the other on "
        "all cores or on one thread; beside it, a process of one thread per core, which is the "
        "most a user gets out of it with several seeds. Ratios are against the fastest. Drawing "
        "batches counts for both; 'no draws' is what d3rlpy's networks alone would allow."
    )
    report.note(
        "Denoisers: torch is eager on all cores, eager on one thread and compiled, and the fastest "
        f"is compared. Samples take {config.denoisers.sampler.steps} steps of Heun's rule, ours "
        "spread over the cores; one of the U-Net is a whole window. One large float32 product runs "
        f"at {peak / 1e9:.0f} GFLOP/s here; % of peak is the share of it that a training step's "
        "three passes use, as XLA counts them."
    )
    report.note(f"Load average after the timings: {os.getloadavg()[0]:.1f} on {cores} cores.")
    return report


def _denoiser(
    config: Config, context: RunContext, report: Report, name: Net, peak: float
) -> dict[str, Any]:
    sizes = config.denoisers
    ours = make_our_denoiser(name, sizes)
    row: dict[str, Any] = {"net": name, "parameters": parameter_count(ours.params)}
    with ExitStack() as stack:
        timers: dict[str, Timer] = {}
        if config.torch_python:
            weights = context.folder.path / f"weights_{name}.npz"
            write_weights(weights, ours.params)
            peer = stack.enter_context(
                Peer(
                    config.torch_python, "torch_denoisers.py", option="torch_python", needs="torch"
                )
            )
            said = peer.ask(denoiser_peer_settings(name, sizes, weights))
            check_parameters("torch", said["parameters"], row["parameters"], f"{name}'s parameters")
            row["networks differ by"] = check_same(ours, peer)
            report.versions["torch"] = said["torch"]
            timers = _timers(config, report, name, peer)
        compiling = {n: ours.train(n).compile_seconds for n in sizes.seeds}
        first = timed(ours.draw)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in rounds(context, name, config.repeats):
            for n in sizes.seeds:
                rate = n * sizes.updates / ours.train(n).run_seconds
                found.setdefault(("train", f"ours, {n} seeds"), []).append(rate)
            found.setdefault(("sample", "ours"), []).append(ours.samples / timed(ours.draw))
            for who, timer in timers.items():
                own = sizes.mlp_samples if name == "mlp" else sizes.unet_samples
                for kind, work in (("train", sizes.updates), ("sample", own)):
                    found.setdefault((kind, who), []).append(work / timer(kind))
    rates = {k: np.array(v) for k, v in found.items()}
    middle = {k: float(np.median(v)) for k, v in rates.items()}
    batch = sizes.mlp_batch if name == "mlp" else sizes.unet_batch
    for kind, called, mine in (
        ("train", "training steps/s", "ours, 1 seeds"), ("sample", "samples/s", "ours")
    ):  # fmt: skip
        row |= {
            f"{called}, {who}".replace("1 seeds", "1 seed"): v
            for (what, who), v in middle.items()
            if what == kind
        }
        if timers:
            best = max(timers, key=lambda who, kind=kind: middle[kind, who])
            ratio = rates[kind, mine] / rates[kind, best]
            row[f"{called}, ratio"] = float(np.median(ratio))
            report.claim(
                Claim.at_least(
                    f"{name}: {called} at least torch's", values=ratio, threshold=1.0,
                    source=SOURCE, statistic="median",
                    expected=f"against {best}: same network, batch and number of steps",
                )
            )  # fmt: skip
    used = 3.0 * batch * ours.operations * middle["train", "ours, 1 seeds"] / peak
    return row | {
        "% of peak": 100.0 * used, "training compile s": compiling[1],
        "sampling compile s": first - ours.samples / middle["sample", "ours"],
    }  # fmt: skip


def _timers(config: Config, report: Report, name: Net, peer: Peer) -> dict[str, Timer]:
    """How to time torch, after warming it up."""
    sizes = config.denoisers
    samples = sizes.mlp_samples if name == "mlp" else sizes.unet_samples
    question = {"updates": sizes.updates, "samples": samples}
    compiling = f"of the {name}" if config.torch_compile else None
    return torch_timers(peer, question, ("train", "sample"), report, compiling=compiling)


EXPERIMENT = Experiment(
    name="diffusion_speed",
    summary="benchmark: TD3+BC, IQL and denoisers beside d3rlpy and torch",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            agents=AgentSpeed(widths=(16,), batch=32, rows=2000, updates=10, seeds=(1, 2)),
            denoisers=DenoiserSpeed(
                mlp=ResidualMlpConfig(width=16, blocks=2, embedding=16),
                unet=TemporalUnetConfig(features=8, blocks=1), length=8, mlp_batch=16, unet_batch=8,
                rows=64, updates=5, seeds=(1,), sampler=SamplerConfig(4), mlp_samples=16,
                unet_samples=8,
            ),
            repeats=2, torch_compile=False,
        ),
        "cpu": Config(),
    },
    run=run,
)  # fmt: skip

"""How fast agents and denoisers learn and sample, beside d3rlpy and torch in the same run.

TD3+BC and IQL with d3rlpy's nets and batch; the residual MLP and the temporal U-Net of
`jaxrl_rollouts/diffusion`, rebuilt in torch (`peers/torch_denoisers.py`): torch gets our weights
first, and what it makes of a few rows is compared with ours. The peers live in an environment of
their own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 d3rlpy
    jaxrl-rollouts run diffusion_speed --torch-python torch/bin/python
"""

from __future__ import annotations

from jaxrl_rollouts.diffusion import ResidualMlpConfig, SamplerConfig, TemporalUnetConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..kit.timing import SOURCE, matmul_peak, note_load, start_report
from .diffusion_speed_cells import (
    AGENTS,
    NETS,
    AgentSpeed,
    Config,
    DenoiserSpeed,
    time_agents,
    time_denoiser,
)
from .diffusion_speed_page import note_meaning, show_agents, show_denoisers


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = start_report(context, config, {"torch_python": "d3rlpy and torch"})
    sizes = [(name, width) for name in AGENTS for width in config.agents.widths]
    show_agents(report, config, {size: time_agents(config, context, *size) for size in sizes})
    peak = matmul_peak()
    show_denoisers(report, {net: time_denoiser(config, context, net) for net in NETS}, peak)
    note_meaning(report, config, peak)
    note_load(report, "after the timings")
    return report


SMOKE = Config(
    agents=AgentSpeed(widths=(16,), batch=32, rows=2000, updates=10, seeds=(1, 2)),
    denoisers=DenoiserSpeed(
        mlp=ResidualMlpConfig(width=16, blocks=2, embedding=16),
        unet=TemporalUnetConfig(features=8, blocks=1),
        length=8,
        mlp_batch=16,
        unet_batch=8,
        rows=64,
        updates=5,
        seeds=(1,),
        sampler=SamplerConfig(4),
        mlp_samples=16,
        unet_samples=8,
    ),
    repeats=2,
    torch_compile=False,
)
EXPERIMENT = Experiment(
    name="diffusion_speed",
    summary="benchmark: TD3+BC, IQL and denoisers beside d3rlpy and torch",
    source=SOURCE,
    config_type=Config,
    presets={"smoke": SMOKE, "cpu": Config()},
    run=run,
)

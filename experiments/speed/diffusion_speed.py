"""How fast agents and denoisers learn and sample, beside d3rlpy and torch in the same run.

TD3+BC and IQL with d3rlpy's nets and batch; the residual MLP and the temporal U-Net of
`jaxrl_rollouts/diffusion`, rebuilt in torch (`peers/torch_denoisers.py`): torch gets our weights
first, and what it makes of a few rows is compared with ours.
"""

from __future__ import annotations

from typing import Any

from jaxrl_rollouts.compare.draw import picture
from jaxrl_rollouts.compare.timing import Timing, matmul_peak, note_load, start_report
from jaxrl_rollouts.diffusion import ResidualMlpConfig, SamplerConfig, TemporalUnetConfig
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from . import diffusion_speed_cells as cells
from .diffusion_speed_cells import AgentSpeed, Config, DenoiserSpeed, seeds_of
from .goals import claim_times

GOAL = 5.0  # times d3rlpy


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report, rows = start_report(context, config, {"torch_python": "d3rlpy and torch"}), []
    for name in cells.AGENTS:
        for width in config.agents.widths:
            timing = cells.time_agents(config, context, name, width)
            rows += agent_rows(report, config, name, width, timing)
    report.table("agents: gradient steps per second", rows)
    if config.torch_python:
        draw_against(report, rows)
    peak = matmul_peak()
    timings = {net: cells.time_denoiser(config, context, net) for net in cells.NETS}
    rows = [denoiser_row(report, net, timing, peak) for net, timing in timings.items()]
    report.table("denoisers: training steps and samples per second", rows)
    note_meaning(report, config, peak)
    note_load(report, "after the timings")
    return report


def agent_rows(
    report: Report, config: Config, name: str, width: int, timing: Timing
) -> list[dict[str, Any]]:
    """One row per number of seeds of an agent of one width, and their claims."""
    timing.tell(report)
    rates, nets, rows = timing.rates, f"{config.agents.layers} x {width}", []
    for seeds in config.agents.seeds:
        row = {"agent": name, "nets": nets, "seeds": seeds, "ours": rates.median(seeds)}
        row["compile s"] = timing.columns["compile s"][seeds]
        if "all cores" in rates:
            able = ["all cores", "1 thread"] + (["a process per core"] if seeds > 1 else [])
            row |= {f"d3rlpy, {way}": rates.median(way) for way in able}
            row["d3rlpy, 1 thread, no draws"] = rates.median("no draws")
            claim = f"{GOAL:g} times d3rlpy's {name}, {nets}, {seeds_of(seeds)}"
            means = "updates per second against d3rlpy ({best}), same nets and batch"
            row["ratio"] = claim_times(report, claim, rates, seeds, able, times=GOAL, means=means)
        rows.append(row)
    return rows


def draw_against(report: Report, rows: list[dict[str, Any]]) -> None:
    """How many times as fast as d3rlpy's the agents are, over seeds."""
    caption = "All seeds' gradient steps per second over d3rlpy's."
    size = {"width": 5.2, "height": 2.8, "title": "Agents against d3rlpy", "legend": False}
    with picture(report, "against_d3rlpy", caption, **size) as (ax,):
        for agent, nets in dict.fromkeys((row["agent"], row["nets"]) for row in rows):
            line = [row for row in rows if (row["agent"], row["nets"]) == (agent, nets)]
            seeds = [row["seeds"] for row in line]
            ax.plot(seeds, [row["ratio"] for row in line], "o-", label=f"{agent}, {nets}")
        ax.axhline(GOAL, color="black", linestyle=":", label="goal")
        ax.set_xscale("log", base=2)
        ax.set_xticks(seeds, [str(n) for n in seeds])
        ax.set_ylim(bottom=0)
        ax.set_xlabel("seeds")
        ax.set_ylabel("times as fast")
        ax.legend(fontsize=7)


def denoiser_row(report: Report, name: str, timing: Timing, peak: float) -> dict[str, Any]:
    """Training steps and samples per second of a denoiser, and its claims."""
    timing.tell(report)
    row = dict(timing.columns["first"])
    for kind, what in (("train", "training steps/s"), ("sample", "samples/s")):
        rates = timing.rates.of(kind)
        row |= {f"{what}, {who}": rates.median(who) for who in rates}
        if torch := [who for who in rates if who.startswith("torch")]:
            claim, one_seed = f"{name}: {what} at least torch's", next(iter(rates))
            means = "against {best}: same network, batch and number of steps"
            ratio = claim_times(report, claim, rates, one_seed, torch, times=1.0, means=means)
            row[f"{what}, ratio"] = ratio
    steps = timing.rates.median(("train", "ours, 1 seed"))
    row["% of peak"] = 100.0 * timing.columns["operations"] * steps / peak
    return row | timing.columns["last"]


def note_meaning(report: Report, config: Config, peak: float) -> None:
    """What the numbers are."""
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


TINY: dict[str, Any] = {"length": 8, "rows": 64, "updates": 5, "sampler": SamplerConfig(4)}
TINY |= {"mlp_batch": 16, "unet_batch": 8, "mlp_samples": 16, "unet_samples": 8}
MLP, UNET = ResidualMlpConfig(16, blocks=2, embedding=16), TemporalUnetConfig(features=8, blocks=1)
SMOKE = Config(
    AgentSpeed(widths=(16,), batch=32, rows=2000, updates=10, seeds=(1, 2)),
    DenoiserSpeed(MLP, UNET, seeds=(1,), **TINY),
    repeats=2,
    torch_compile=False,
)
PRESETS = {"smoke": SMOKE, "cpu": Config()}
EXPERIMENT = LISTINGS["diffusion_speed"].experiment(Config, PRESETS, run)

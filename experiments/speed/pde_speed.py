"""How fast emulators are: gradient steps, rollouts and seeds, beside torch and APEBench.

Two comparisons, each at an equal network, batch and grid, in turns within one run:

- torch: our conditioned dilated ResNet, rebuilt there (`peers/torch_resnet.py`);
- APEBench: its own `Dil` network, rebuilt here (`PlainResnet`), with its own trainer and rollout.

The peers get our weights first, and what they make of a few fields is compared with ours: networks
that differ are an error. Each lives in an environment of its own:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy
    python -m venv ape && ape/bin/pip install apebench==0.1.1
    jaxrl-rollouts run pde_speed --torch-python torch/bin/python --apebench-python ape/bin/python
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from jaxrl_rollouts.experiments.kit.peer import Peer, Timer, check_parameters, torch_timers
from jaxrl_rollouts.experiments.kit.timing import (
    SOURCE,
    matmul_peak,
    rounds,
    seeds_side_by_side,
    timed,
)
from jaxrl_rollouts.experiments.speed.pde_speed_nets import write_weights
from jaxrl_rollouts.experiments.speed.pde_speed_study import (
    Config,
    Ours,
    check_same,
    make_ours,
    peer_settings,
)
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

NOT_A_RATE = ("% of peak", "ratio", "compile s", "second call compiles s")


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    config.validate()
    report = Report.of(context, 1)
    cores = os.cpu_count()
    report.note(f"Load average at the start: {os.getloadavg()[0]:.1f} on {cores} cores.")
    for name in ("torch", "apebench"):
        if not getattr(config, f"{name}_python"):
            report.note(f"{name} was left out, and its claims: no {name}_python was given.")
    peak = matmul_peak()
    _against(config, context, report, "torch", peak)
    _against(config, context, report, "apebench", peak)
    seeds_side_by_side(
        report,
        {
            n: make_ours(config, config.seeds_width, plain=False, seeds=n).train
            for n in config.seeds
        },
        config.repeats,
        title=f"dilated ResNet, width {config.seeds_width}, batch {config.batch}",
        context=context,
    )
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The columns beside the "
        "rates are the share of that which the convolutions use; 100 % cannot be passed."
    )
    report.note(
        "Training is a gradient step at batch "
        f"{config.batch} on {config.points} points, one seed, a new random batch each, Adam; ours "
        "and torch also clip and average the weights. torch is eager on all cores, eager on one "
        "thread and compiled, and the fastest is compared; nothing else may run beside it: its "
        "threads wait for each other and slow down out of proportion. Rollouts are "
        f"{config.fields} fields at once, ours spread over the cores, and a step is a step of all."
    )
    report.note(f"Load average at the end: {os.getloadavg()[0]:.1f} on {cores} cores.")
    return report


def _against(config: Config, context: RunContext, report: Report, name: str, peak: float) -> None:
    rows = []
    for width in config.widths:
        ours = make_ours(config, width, plain=name == "apebench")
        with ExitStack() as stack:
            timers: dict[str, Timer] = {}
            row: dict[str, Any] = {"width": width, "parameters": parameter_count(ours.params)}
            if python := getattr(config, f"{name}_python"):
                weights = context.folder.path / f"weights_{name}_{width}.npz"
                write_weights(weights, ours.params)
                script = {"torch": "torch_resnet.py", "apebench": "apebench_run.py"}[name]
                peer = stack.enter_context(
                    Peer(python, script, option=f"{name}_python", needs=name)
                )
                said = peer.ask(peer_settings(config, width, weights))
                check_parameters(name, said.pop("parameters"), row["parameters"])
                row["networks differ by"] = check_same(config, ours, peer, name)
                report.versions |= _versions(name, said)
                timers = _timers(config, report, name, width, peer)
            row |= _take_turns(config, context, report, name, width, ours, timers, peak)
        rows.append(row)
    what = "our conditioned dilated ResNet" if name == "torch" else "APEBench's network, Dil"
    for kind in ("training", "rollout"):
        mine = [_of_kind(row, kind) for row in rows]
        report.table(f"{what}: {kind} steps per second", mine)
    if getattr(config, f"{name}_python"):
        _draw(report, name, what, rows)


def _of_kind(row: dict[str, Any], kind: str) -> dict[str, Any]:
    """The columns of a row that are about training or about rollouts, and the common ones."""
    own = {k.removeprefix(f"{kind}, "): v for k, v in row.items() if k.startswith(f"{kind}, ")}
    common = {k: v for k, v in row.items() if not k.startswith(("training, ", "rollout, "))}
    return common | own


def _draw(report: Report, name: str, what: str, rows: list[dict[str, Any]]) -> None:
    """Steps per second of everybody, training beside rollouts."""
    made, axes = figure(1, 2, width=3.6, title=what, titles=("training", "rollout"))
    for ax, kind in zip(axes, ("training, ", "rollout, "), strict=True):
        who = [k.removeprefix(kind) for k in rows[0] if k.startswith(kind)]
        who = [w for w in who if w not in NOT_A_RATE]
        thick = 0.8 / len(who)
        for i, one in enumerate(who):
            at = np.arange(len(rows)) + thick * (i - (len(who) - 1) / 2)
            bars = ax.bar(at, [row.get(kind + one, 0.0) for row in rows], 0.9 * thick, label=one)
            ax.bar_label(bars, fmt="%.3g", fontsize=7)
        ax.set_xticks(range(len(rows)), [f"width {row['width']}" for row in rows])
    axes[0].set_ylabel("steps per second")
    axes[0].legend(fontsize=7)
    report.picture(f"against_{name}", made, "Higher is faster; medians, same network and batch.")


def _versions(name: str, said: Mapping[str, Any]) -> dict[str, str]:
    """What the peer says it is; its jax is not ours."""
    kept = {k: v for k, v in said.items() if k in (name, "jax")}
    return {k if k == name else f"{name}'s {k}": v for k, v in kept.items()}


def _timers(config: Config, report: Report, name: str, width: int, peer: Peer) -> dict[str, Timer]:
    """How to time the peer, after warming it up."""

    question = {"updates": config.updates, "fields": config.fields, "steps": config.steps}
    kinds = ("train", "roll")
    if name == "torch":
        compiling = f"at width {width}" if config.torch_compile else None
        return torch_timers(peer, question, kinds, report, compiling=compiling)
    for kind in kinds:
        peer.ask({"kind": kind, **question})
    return {name: lambda kind: peer.ask({"kind": kind, **question})["seconds"]}


def _take_turns(
    config: Config, context: RunContext, report: Report, name: str, width: int, ours: Ours,
    timers: dict[str, Timer], peak: float,
) -> dict[str, Any]:  # fmt: skip
    """One row, and the claims of one width."""
    first, again = ours.train(), ours.train()
    compiling = timed(ours.roll)
    seconds: dict[str, list[float]] = {}
    for _ in rounds(context, f"{name}, width {width}", config.repeats):
        for kind in ("train", "roll"):
            own = ours.train().run_seconds if kind == "train" else timed(ours.roll)
            seconds.setdefault(f"ours {kind}", []).append(own)
            for who, timer in timers.items():
                seconds.setdefault(f"{who} {kind}", []).append(timer(kind))
    work = {"train": config.updates, "roll": config.steps}
    rates = {k: work[k.split()[-1]] / np.array(v) for k, v in seconds.items()}
    middle = {k: float(np.median(v)) for k, v in rates.items()}
    per = {"train": 3.0 * config.batch * ours.operations, "roll": config.fields * ours.operations}
    row: dict[str, Any] = {}
    for kind, called in (("train", "training"), ("roll", "rollout")):
        row[f"{called}, ours"] = middle[f"ours {kind}"]
        row[f"{called}, % of peak"] = 100.0 * per[kind] * middle[f"ours {kind}"] / peak
        row |= {f"{called}, {who}": middle[f"{who} {kind}"] for who in timers}
        if timers:
            best = max(timers, key=lambda who, kind=kind: middle[f"{who} {kind}"])
            ratio = rates[f"ours {kind}"] / rates[f"{best} {kind}"]
            row[f"{called}, ratio"] = float(np.median(ratio))
            times = 2.0 if name == "torch" else 1.0
            report.claim(
                Claim.at_least(
                    f"{called}, width {width}: {times:g} times {name}", values=ratio,
                    threshold=times, source=SOURCE, statistic="median",
                    expected=f"steps per second against {best}: same network, batch and grid",
                )
            )  # fmt: skip
    return row | {
        "training, compile s": first.compile_seconds,
        "training, second call compiles s": round(again.compile_seconds, 3),
        "rollout, compile s": compiling - config.steps / middle["ours roll"],
    }  # fmt: skip


EXPERIMENT = Experiment(
    name="pde_speed",
    summary="benchmark: emulators' gradient steps and rollouts, beside torch's and APEBench's",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            widths=(8,), blocks=1, dilation_factor=1, points=16, batch=4, trajectories=8,
            frames=4, updates=10, fields=8, steps=5, repeats=2, seeds=(1, 2), seeds_width=8,
            torch_compile=False,
        ),
        "cpu": Config(),
    },
    run=run,
)  # fmt: skip

"""TD3+BC and IQL in `diffusion_speed`: our gradient steps beside d3rlpy's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.registry import AgentConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import to_device
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.claims import Claim
from jaxrl_rollouts.reports.pictures import figure
from jaxrl_rollouts.reports.report import Report

from ..kit.peer import Peer, check_parameters
from ..kit.timing import SOURCE, rounds
from .diffusion_speed_study import AgentSpeed, Config
from .speed_cells import ACTIONS, OBSERVATIONS, random_rows

AGENTS = ("td3_bc", "iql")
GOAL = 5.0  # times d3rlpy


class OurAgents(NamedTuple):
    """Agents of one kind and size; `train` is compiled at its first call for every `seeds`."""

    parameters: int
    train: Callable[[int], loop.Trained]


def agent_config(name: str, config: AgentSpeed, width: int) -> AgentConfig:
    hidden = (width,) * config.layers
    return Td3BcConfig(hidden=hidden) if name == "td3_bc" else IqlConfig(hidden=hidden)


def make_our_agents(name: str, config: AgentSpeed, width: int) -> OurAgents:
    """TD3+BC or IQL on random rows of HalfCheetah's shape; speed does not depend on them."""
    agent = make_model_free(
        agent_config(name, config, width), OBSERVATIONS, ACTIONS, batch_size=config.batch,
        updates_per_iteration=config.updates,
    )  # fmt: skip
    data = to_device(random_rows(config.rows))

    def train(seeds: int) -> loop.Trained:
        keys = jax.random.split(jax.random.key(0), seeds)
        return loop.train(agent.update, agent.init, keys, data, iterations=1, stage="speed")

    one = agent.init(jax.random.key(0), data).agent
    nets = [one.actor.net, one.critic.net, getattr(one, "value", None)]
    return OurAgents(sum(parameter_count(net) for net in nets if net is not None), train)


def agent_peer_settings(name: str, config: AgentSpeed, width: int) -> dict[str, Any]:
    """The first question to the peer of agents."""
    return {
        "kind": "start", "agent": name, "rows": config.rows, "observations": OBSERVATIONS,
        "actions": ACTIONS, "width": width, "layers": config.layers, "batch": config.batch,
        "threads": os.cpu_count(),
    }  # fmt: skip


def agent_rows(
    config: Config, context: RunContext, report: Report, name: str, width: int
) -> list[dict[str, Any]]:
    """One row per number of seeds, and their claims."""
    sizes, cores = config.agents, os.cpu_count() or 1
    ours = make_our_agents(name, sizes, width)
    compiling = {n: ours.train(n).compile_seconds for n in sizes.seeds}
    rates: dict[Any, list[float]] = {}
    with ExitStack() as stack:
        peers = []
        for _ in range(cores if config.torch_python else 0):
            peer = stack.enter_context(
                Peer(config.torch_python, "d3rlpy_agents.py", option="torch_python", needs="d3rlpy")
            )
            said = peer.ask(agent_peer_settings(name, sizes, width))
            report.versions |= {k: said[k] for k in ("d3rlpy", "torch")}
            what = f"{name}'s parameters"
            check_parameters("d3rlpy", said["parameters"], ours.parameters, what)
            peers.append(peer)

        def asked(peer: Peer, threads: int, drawn: bool) -> float:
            question = {"kind": "train", "updates": sizes.updates, "threads": threads}
            return sizes.updates / peer.ask(question | {"drawn": drawn})["seconds"]

        for _ in rounds(context, f"{name}, {sizes.layers} x {width}", config.repeats):
            for n in sizes.seeds:
                rate = n * sizes.updates / ours.train(n).run_seconds
                rates.setdefault(n, []).append(rate)
            if peers:
                rates.setdefault("all cores", []).append(asked(peers[0], cores, True))
                rates.setdefault("1 thread", []).append(asked(peers[0], 1, True))
                rates.setdefault("no draws", []).append(asked(peers[0], 1, False))
                with ThreadPoolExecutor(len(peers)) as pool:
                    together = sum(pool.map(lambda peer: asked(peer, 1, True), peers))
                rates.setdefault("a process per core", []).append(together)
    return [_agent_row(report, config, name, width, n, rates, compiling[n]) for n in sizes.seeds]


def _agent_row(
    report: Report, config: Config, name: str, width: int, seeds: int,
    rates: dict[Any, list[float]], compiling: float,
) -> dict[str, Any]:  # fmt: skip
    found = {k: np.array(v) for k, v in rates.items()}
    row: dict[str, Any] = {
        "agent": name, "nets": f"{config.agents.layers} x {width}", "seeds": seeds,
        "ours": float(np.median(found[seeds])), "compile s": compiling,
    }  # fmt: skip
    if "all cores" not in found:
        return row
    able = ["all cores", "1 thread"] + (["a process per core"] if seeds > 1 else [])
    best = max(able, key=lambda k: float(np.median(found[k])))
    ratio = found[seeds] / found[best]
    kept = {f"d3rlpy, {k}": float(np.median(found[k])) for k in able}
    row |= kept | {
        "d3rlpy, 1 thread, no draws": float(np.median(found["no draws"])),
        "ratio": float(np.median(ratio)),
    }
    many = "1 seed" if seeds == 1 else f"{seeds} seeds"
    report.claim(
        Claim.at_least(
            f"{GOAL:g} times d3rlpy's {name}, {row['nets']}, {many}", values=ratio,
            threshold=GOAL, source=SOURCE, statistic="median",
            expected=f"updates per second against d3rlpy ({best}), same nets and batch",
        )
    )  # fmt: skip
    return row


def draw_against(report: Report, rows: list[dict[str, Any]]) -> None:
    made, (ax,) = figure(1, 1, width=5.2, height=2.8, title="Agents against d3rlpy")
    for agent, nets in dict.fromkeys((row["agent"], row["nets"]) for row in rows):
        own = [row for row in rows if (row["agent"], row["nets"]) == (agent, nets)]
        seeds = [row["seeds"] for row in own]
        ax.plot(seeds, [row["ratio"] for row in own], "o-", label=f"{agent}, {nets}")
    ax.axhline(GOAL, color="black", linestyle=":", label="goal")
    ax.set_xscale("log", base=2)
    ax.set_xticks(seeds, [str(n) for n in seeds])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("seeds")
    ax.set_ylabel("times as fast")
    ax.legend(fontsize=7)
    report.picture("against_d3rlpy", made, "All seeds' gradient steps per second over d3rlpy's.")

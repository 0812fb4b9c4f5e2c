"""Speed of updates, rollouts and seeds, beside d3rlpy's agents and torch's GRU.

Compilation is timed apart. Every figure is the median of `repeats`; ours and the peer's take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.cores import cores
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.method import AgentConfig
from jaxrl_rollouts.offline.recurrent.memory import gru_tape
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import make_world_model
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.rollouts import Members, rollout

from ..catalogue import LISTINGS
from . import timing
from .peer import PEERS, Theirs, Timers, check_interpreter, time_beside
from .timing import Rates

OBSERVATIONS, ACTIONS = 17, 6  # HalfCheetah's sizes
AGENTS: Mapping[str, Any] = {"td3_bc": Td3BcConfig, "iql": IqlConfig}


@dataclass(frozen=True)
class Config:
    """What is timed. `peer_python` is an interpreter with d3rlpy; empty leaves the peer out.

    Attributes:
        widths: widths of hidden layers.
        layers: hidden ones of each network.
        critics: number of critics.
        batch: transitions in a gradient step.
        rows: rows of the dataset.
        updates: gradient steps that are timed.
        repeats: rounds in which each program is timed once.
        seeds: numbers of them that are timed side by side.
        seeds_width: width of the networks whose seeds are timed.
        horizons: lengths of rollouts.
        rollout_rows: rollouts side by side.
        ensemble: the world model that is rolled.
        agents: without critics to be counted, timed beside SAC at the largest width.
        tape: observations that a GRU reads, half as wide as the largest width.
        peer_python: an interpreter with d3rlpy; empty leaves it out.
    """

    widths: tuple[int, ...] = (64, 256)
    layers: int = 2
    critics: tuple[int, ...] = (2, 10)
    batch: int = 256
    rows: int = 50_000
    updates: int = 200
    repeats: int = 5
    seeds: tuple[int, ...] = (1, 2, 4, 8)
    seeds_width: int = 64
    horizons: tuple[int, ...] = (1, 5, 50, 500)
    rollout_rows: int = 5_000
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    agents: tuple[str, ...] = ("td3_bc", "iql")
    tape: int = positive(2048)
    peer_python: str = ""

    def validate(self) -> None:
        check_interpreter("peer_python", self.peer_python, "d3rlpy")
        if min(self.repeats, self.updates, *self.seeds, *self.horizons) < 1:
            raise ConfigError("repeats, updates, seeds, horizons", "0", "all at least 1")


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report, peak = timing.start_report(context, config, {}), timing.matmul_peak()
    sizes = [(width, critics) for width in config.widths for critics in config.critics]
    rows = [update_row(report, config, context, peak, *size) for size in sizes]
    rows += [agent_row(report, config, context, name) for name in config.agents]
    report.table("gradient steps per second", rows)
    report.table("gradients of a GRU per second", [gru_row(report, config, context)])
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The column beside the "
        "rate is the share of that which one update's matrix products use; 100 % cannot be passed."
    )
    title = f"SAC, {config.layers} x {config.seeds_width}"
    train = our_training(our_sac(config, config.seeds_width, 2), config)
    timing.show_seeds(report, context, title, train, config.seeds, repeats=config.repeats)
    report.table("rollout transitions per second", time_rollouts(config))
    timing.note_load(report, "at the end")
    return report


def random_rows(rows: int) -> Transitions:
    """Rows of HalfCheetah's shape; speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, OBSERVATIONS)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    following = (0.9 * observations + 0.1 * np.roll(observations, 1, 0)).astype(np.float32)
    none = np.zeros(rows, bool)
    return Transitions(observations, actions, actions.sum(1), following, none, none)


def our_training(settings: AgentConfig, config: Any) -> Callable[[int], loop.Trained]:
    """Trains so many seeds of an agent on `rows`, `batch` and `updates` of the configuration."""
    sizes = {"batch_size": config.batch, "per_iteration": config.updates}
    learner = make_model_free(settings, OBSERVATIONS, ACTIONS, **sizes)
    return timing.trainer(learner, to_device(random_rows(config.rows)))


def our_sac(config: Config, width: int, critics: int) -> SacConfig:
    """SAC-N."""
    return SacConfig(num_critics=critics, hidden_dims=(width,) * config.layers)


def d3rlpy_settings(config: Config, width: int, critics: int) -> dict[str, Any]:
    """What d3rlpy builds: SAC on random rows of the same shape."""
    shape = {"rows": config.rows, "observations": OBSERVATIONS, "actions": ACTIONS}
    nets = {"width": width, "layers": config.layers, "critics": critics, "batch": config.batch}
    return {"agent": "sac", "updates": config.updates, **shape, **nets}


def beside_d3rlpy(
    report: Report, config: Config, context: RunContext, agent: AgentConfig, given: dict[str, Any]
) -> tuple[dict[str, Any], Rates]:
    """Columns and rates of an agent's updates, ours and d3rlpy's (`given`, its settings)."""
    train = our_training(agent, config)
    columns = timing.compile_columns(lambda: train(1))
    ours: Timers = {("train", "ours"): timing.clocked(config.updates, lambda: train(1).run_seconds)}
    ways = {"d3rlpy": {"threads": cores()}, "d3rlpy, 1 thread": {"threads": 1}}
    how: dict[str, Any] = {"option": "peer_python", "ways": ways}
    work, script = {"train": config.updates}, PEERS / "d3rlpy_agents.py"
    theirs = Theirs(config.peer_python, script, "d3rlpy", given, work, **how)
    label = f"{given['agent']}, {given['layers']} x {given['width']}, {given['critics']} critics"
    timed = time_beside(context, label, config.repeats, ours, theirs)
    timed.tell(report)
    rates = timed.rates.of("train")
    row = {"updates/s": rates.median("ours"), **columns, **rates.cpu_columns()}
    row |= {f"{who} updates/s": rates.median(who) for who in ways if who in rates}
    return row, rates


def update_row(
    report: Report, config: Config, context: RunContext, peak: float, width: int, critics: int
) -> dict[str, Any]:
    """Updates per second of SAC, ours and d3rlpy's with the same nets and batch; the claim."""
    given = d3rlpy_settings(config, width, critics)
    row, rates = beside_d3rlpy(report, config, context, our_sac(config, width, critics), given)
    nets = f"{config.layers} x {width}"
    used = update_operations(config, width, critics) * row["updates/s"] / peak
    row = {"nets": f"SAC, {nets}, {critics} critics", "critics": critics, **row}
    row["% of matmul peak"] = 100.0 * used
    if "d3rlpy" in rates:
        # At the peak of matrix products two layers of 256 reach 5.2 and, of 10 critics, 3.4.
        times = 5.0 if width < 256 else 2.5 if critics == 2 else 2.0
        name = f"{times:g} times d3rlpy's SAC, {nets}, {critics} critics"
        means = "updates per second against {best}, same nets and batch"
        row["ratio"] = timing.claim_times(report, name, rates, "ours", times=times, means=means)
    return row


def agent_row(report: Report, config: Config, context: RunContext, name: str) -> dict[str, Any]:
    """The same of an agent with its own number of critics, at the largest width."""
    width = max(config.widths)
    agent = AGENTS[name](hidden_dims=(width,) * config.layers)
    given = d3rlpy_settings(config, width, 2) | {"agent": name, "options": {"gamma": 0.99}}
    row, rates = beside_d3rlpy(report, config, context, agent, given)
    nets = f"{name}, {config.layers} x {width}"
    if "d3rlpy" in rates:
        claim, means = f"twice d3rlpy's {nets}", "updates per second against {best}"
        row["ratio"] = timing.claim_times(report, claim, rates, "ours", times=2.0, means=means)
    return {"nets": nets} | row


def gru_row(report: Report, config: Config, context: RunContext) -> dict[str, Any]:
    """Gradients per second of a GRU over one tape, ours and torch's of the same widths."""
    width, calls = max(config.widths) // 2, 10
    cell, tape = nn.GRUCell(width), jax.random.normal(jax.random.key(0), (config.tape, width))
    begin, starts = jnp.zeros(width), jnp.zeros(config.tape, bool)
    params = cell.init(jax.random.key(1), begin, tape[0])["params"]

    def total(params: Any, tape: jax.Array) -> jax.Array:
        return jnp.square(gru_tape(params, tape, starts, begin)[0]).sum()

    gradient = jax.jit(jax.grad(total, (0, 1)))
    compiling = timing.timed(lambda: gradient(params, tape))
    every = timing.clocked(
        calls, lambda: sum(timing.timed(lambda: gradient(params, tape)) for _ in range(calls))
    )
    settings = {"width": width, "length": config.tape, "calls": calls}
    ways = {"torch": {"threads": cores()}, "torch, 1 thread": {"threads": 1}}
    how: dict[str, Any] = {"option": "peer_python", "ways": ways}
    work, script = {"train": calls}, PEERS / "torch_gru.py"
    theirs = Theirs(config.peer_python, script, "torch", settings, work, **how)
    timed = time_beside(context, "GRU", config.repeats, {("train", "ours"): every}, theirs)
    timed.tell(report)
    rates = timed.rates.of("train")
    row = {"tape": f"{config.tape} x {width}", "compile s": compiling, **rates.cpu_columns()}
    row |= {who: rates.median(who) for who in rates}
    if "torch" in rates:
        claim, means = "1.2 times torch's GRU", "gradients per second against {best}"
        row["ratio"] = timing.claim_times(report, claim, rates, "ours", times=1.2, means=means)
    return row


def update_operations(config: Config, width: int, critics: int) -> float:
    """Operations in the matrix products of one SAC update, counted from its passes.

    A pass over a batch costs 2 per weight and row; gradients of weights and of inputs one pass
    each. Actor: forward on two batches, backward with both gradients. Critics: forward for the
    actor, its input gradients, the target's forward, forward and both gradients of the loss. The
    first layers' input gradients are counted too, though few of them are needed.
    """
    hidden = (config.layers - 1) * width**2
    actor = OBSERVATIONS * width + hidden + width * 2 * ACTIONS
    critic = (OBSERVATIONS + ACTIONS) * width + hidden + width
    return 2.0 * config.batch * (4 * actor + 6 * critics * critic)


def time_calls(config: Config, work: Callable[[jax.Array], Any]) -> tuple[float, float]:
    """Median seconds of a compiled function of a key, and those its first call took beyond."""
    keys = jax.random.split(jax.random.key(0), config.repeats + 1)
    first, *later = [timing.timed(lambda key=key: work(key)) for key in keys]
    middle = float(np.median(later))
    return middle, first - middle


def time_rollouts(config: Config) -> list[dict[str, Any]]:
    """Transitions per second imagined by the ensemble's elites, a row per horizon."""
    model = make_world_model(config.ensemble, random_rows(2_000))
    states = jax.jit(jax.vmap(model.fitter.init))(jax.random.split(jax.random.key(0), 1))
    world = jax.tree.map(lambda x: x[0], jax.vmap(model.world)(states))
    agent = make_sac(SacConfig(hidden_dims=(config.seeds_width,) * 2), OBSERVATIONS, ACTIONS)
    actor = jax.jit(agent.init)(jax.random.key(1)).actor
    dynamics = learned_dynamics(model.fitter, config.ensemble.elites, termination=never)
    elites = Members(jnp.arange(config.ensemble.elites, dtype=jnp.int32))
    policy: dict[str, Any] = {"policy": agent.policy, "policy_params": actor, "members": elites}

    def row(horizon: int) -> dict[str, Any]:
        count = max(config.rollout_rows // horizon, 10)
        start = jnp.zeros((count, OBSERVATIONS))
        roll = jax.jit(
            lambda key: rollout(dynamics.model, world, start, key, horizon=horizon, **policy).steps
        )
        seconds, compiling = time_calls(config, roll)
        row = {"what": "ensemble, 4 x 200", "rows": count, "horizon": horizon}
        return row | {"transitions/s": count * horizon / seconds, "compile s": compiling}

    return [row(horizon) for horizon in config.horizons]


TINY: dict[str, Any] = {"rows": 2000, "updates": 20, "rollout_rows": 200, "critics": (2,)}
TINY |= {"agents": ("td3_bc",), "tape": 16, "repeats": 2, "seeds": (1, 2), "seeds_width": 32}
PRESETS = {"smoke": Config(widths=(32,), horizons=(1, 5), **TINY), "cpu": Config()}
EXPERIMENT = LISTINGS["speed"].experiment(Config, PRESETS, run)

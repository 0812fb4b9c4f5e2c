"""Cloning, CQL, IQL, TD3+BC and SAC, ours and d3rlpy's, on the same files.

Both get the same rows, networks, rates, batch and gradient steps, and play in the same simulator
from the same start states, seed by seed: d3rlpy's policies are asked for actions by our evaluation.
What each earns is told by gradient step and by second.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, run_grid
from jaxrl_rollouts.compare.peer import Peer, Theirs, check_interpreter
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.registry import AgentConfigs, make_agent
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.study import model_free
from jaxrl_rollouts.offline.study.config import StudyConfig, keys_of
from jaxrl_rollouts.offline.study.model_free import ModelFreeStudyConfig, cadence
from jaxrl_rollouts.offline.study.page import note_environments, note_made
from jaxrl_rollouts.offline.study.source import Setting, setting_of, slug
from jaxrl_rollouts.offline.training import look_keys
from jaxrl_rollouts.record.context import RunContext, poll
from jaxrl_rollouts.record.progress import Progress
from jaxrl_rollouts.reports.report import Report

from ..catalogue import LISTINGS
from . import published
from .beside_others_page import OURS, THEIRS, add_claims, add_claims_alone, draw, rows_of
from .goals import PEERS

AGENTS = ("bc", "td3_bc", "iql", "cql", "sac")
PER_ITERATION = 1000  # gradient steps of ours at most between two places to look at
PEER = PEERS / "d3rlpy_returns.py"


@dataclass(frozen=True)
class Config:
    """What is trained on what, by whom.

    Attributes:
        datasets: names, or files.
        agents: out of bc, td3_bc, iql, cql and sac.
        width: of hidden layers.
        layers: hidden ones of each network.
        batch: transitions in a gradient step.
        updates: gradient steps of every agent.
        evaluations: looks, spread evenly.
        episodes: played at each look, per seed.
        seeds: of every agent.
        seed: of all random numbers.
        peer_python: an interpreter with d3rlpy; empty leaves it out.
    """

    datasets: tuple[str, ...] = ("halfcheetah-medium", "hopper-medium")
    agents: tuple[str, ...] = AGENTS
    width: int = positive(256)
    layers: int = positive(2)
    batch: int = positive(256)
    updates: int = positive(20_000)
    evaluations: int = positive(4)
    episodes: int = positive(10)
    seeds: int = positive(3)
    seed: int = 0
    peer_python: str = ""

    def validate(self) -> None:
        check_interpreter("peer_python", self.peer_python, "d3rlpy")
        for name in self.agents:
            if name not in AGENTS:
                raise ConfigError("agents", name, f"names out of {', '.join(AGENTS)}")


@dataclass(frozen=True)
class Looks:
    """What one agent earned: `[seeds, looks]` returns after so many steps and seconds `[looks]`.

    Attributes:
        steps: gradient steps.
        seconds: spent in gradient steps by all seeds together, evaluation and compilation apart.
        returns: mean over the episodes of a look.
        values: the same, discounted; None of a peer's.
    """

    steps: np.ndarray
    seconds: np.ndarray
    returns: np.ndarray
    values: np.ndarray | None = None


def our_agents(config: Config) -> Any:
    """Every agent with the networks that are compared; all else is its paper's."""
    hidden = (config.width,) * config.layers
    kinds = AgentConfigs()
    changed = {name: replace(getattr(kinds, name), hidden=hidden) for name in config.agents}
    return replace(kinds, **changed)


def their_options(name: str, ours: Any) -> dict[str, Any]:
    """d3rlpy's settings that say the same as `ours`."""
    if name == "bc":
        return {"learning_rate": ours.actor_rate}
    both = {
        "actor_learning_rate": ours.actor_rate,
        "critic_learning_rate": ours.critic_rate,
        "gamma": ours.discount,
        "tau": ours.polyak,
        "n_critics": ours.critics,
    }
    if name == "td3_bc":
        return both | {
            "alpha": ours.alpha,
            "target_smoothing_sigma": ours.noise,
            "target_smoothing_clip": ours.noise_clip,
            "update_actor_interval": ours.delay,
        }
    if name == "iql":
        return both | {
            "expectile": ours.expectile,
            "weight_temp": ours.inverse_temperature,
            "max_weight": ours.weight_clip,
        }
    soft = {
        "temp_learning_rate": ours.temperature_rate,
        "initial_temperature": ours.initial_alpha,
    }
    if name == "sac":
        return both | soft
    return both | soft | {
        "conservative_weight": ours.weight,
        "n_action_samples": ours.actions,
        "soft_q_backup": ours.backup_entropy,
        "initial_alpha": 1.0,
        "alpha_learning_rate": 0.0,  # without the multiplier
    }  # fmt: skip


def looks_of(name: str, config: Config, env: Environment) -> dict[int, int]:
    """Gradient steps after which both agents are looked at, and ours' iteration there."""
    agent = make_agent(getattr(our_agents(config), name), env.observation_size, env.action_size)
    iterations, each = cadence(config.updates, PER_ITERATION, agent.period, config.evaluations)
    return {each * look: look for look in sorted(evenly(iterations, config.evaluations))}


def clocks_of(config: Config) -> dict[str, float | None]:
    """Time constants of each agent's critics after all gradient steps; None without critics."""
    agents = our_agents(config)
    rates = {name: bootstrap_rate(getattr(agents, name)) for name in config.agents}
    return {name: rate and config.updates * rate for name, rate in rates.items()}


def play_keys(config: Config, look: int) -> jax.Array:
    """What our seeds play their episodes with after so many iterations, `[seeds]`."""
    _, key = keys_of(config.seed)
    return jax.random.split(look_keys(key, look)[1], config.seeds)


def train_ours(name: str, setting: Setting, config: Config, context: RunContext) -> Looks:
    """All seeds of our agent side by side."""
    study = StudyConfig(
        seeds=config.seeds,
        seed=config.seed,
        evaluations=config.evaluations,
        episodes=config.episodes,
    )
    agents = ModelFreeStudyConfig(
        our_agents(config),
        config.batch,
        updates=config.updates,
        per_iteration=PER_ITERATION,
    )
    outcome = model_free.train_model_free(name, setting, study, agents, context)
    cell = Cell.of(outcome.trained, updates=outcome.updates)
    steps, returns = cell.curve("return")
    seconds = outcome.trained.run_seconds * steps / steps[-1]
    return Looks(steps, seconds, returns, cell.curve("discounted_return")[1])


def train_theirs(name: str, setting: Setting, config: Config, context: RunContext) -> Looks:
    """Seeds of d3rlpy's agent one after the other, played by our evaluation."""
    looks = looks_of(name, config, setting.env)
    returns = np.zeros((config.seeds, len(looks)))
    seconds = np.zeros(len(looks))
    rows = write_rows(setting.dataset, context.folder.path / f"{slug(setting.dataset.name)}.npz")
    label = f"{slug(setting.dataset.name)}-{name} (d3rlpy)"
    with Progress(
        label, config.seeds * max(looks), unit="updates", enabled=context.progress
    ) as bar:
        for seed in range(config.seeds):
            with Peer(theirs(name, rows, config, seed)) as peer:
                peer.ask({"kind": "start", **peer.theirs.settings})
                spent, done = 0.0, 0
                for number, (until, look) in enumerate(looks.items()):
                    poll(context, f"in {label}")
                    spent += peer.ask({"kind": "train", "updates": until - done})["seconds"]
                    bar.advance(until - done)
                    done = until
                    seconds[number] += spent
                    key = play_keys(config, look)[seed]
                    returns[seed, number] = played(peer, setting.env, key, config.episodes)
    return Looks(np.array(list(looks)), seconds, returns)


def theirs(name: str, rows: Path, config: Config, seed: int) -> Theirs:
    """How d3rlpy's agent is asked for."""
    ours = getattr(our_agents(config), name)
    settings = {
        "agent": name,
        "rows": str(rows),
        "seed": config.seed + seed,
        "width": config.width,
        "layers": config.layers,
        "batch": config.batch,
        "normalise": getattr(ours, "normalise", False),
        "options": their_options(name, ours),
        "threads": len(os.sched_getaffinity(0)),
    }
    return Theirs(config.peer_python, PEER, "d3rlpy", settings, {}, option="peer_python")


def versions_of(python: str) -> dict[str, str]:
    """Of the libraries in an interpreter."""
    code = "import importlib.metadata as m; print(m.version('d3rlpy'), m.version('torch'))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(("d3rlpy", "torch"), said.stdout.split(), strict=True))


def write_rows(dataset: Dataset, path: Path) -> Path:
    """The dataset as d3rlpy takes it."""
    rows = dataset.transitions
    ends = np.asarray(rows.terminations), np.asarray(rows.truncations)
    last = np.zeros(len(ends[0]), bool)
    last[-1] = not ends[0][-1]
    np.savez(
        path,
        observations=np.asarray(rows.observations),
        actions=np.asarray(rows.actions),
        rewards=np.asarray(rows.rewards),
        terminals=ends[0].astype(np.float32),
        timeouts=((ends[1] | last) & ~ends[0]).astype(np.float32),
    )
    return path


def played(peer: Peer, env: Environment, key: jax.Array, episodes: int) -> float:
    """Mean return of a peer's policy in our simulator."""

    def ask(observations: np.ndarray) -> np.ndarray:
        said = peer.ask({"kind": "apply", "observations": np.asarray(observations).tolist()})
        return np.clip(np.asarray(said["said"], np.float32), -1.0, 1.0)

    def act(params: Any, key: jax.Array, observation: jax.Array, memory: Any) -> tuple:
        shape = jax.ShapeDtypeStruct((len(observation), env.action_size), jnp.float32)
        return jax.pure_callback(ask, shape, observation), memory

    return float(evaluate(env, act, (), key, episodes).returns.mean())


def run(config: Config, context: RunContext) -> Report:
    """Everybody on everything, one after the other."""
    report = Report.of(context, config.seeds)
    settings = {name: setting_of(name, config.seed, context) for name in config.datasets}
    who = (OURS, *([THEIRS] if config.peer_python else []))
    trainers: Mapping[str, Callable[..., Looks]] = {OURS: train_ours, THEIRS: train_theirs}

    def train(data: str, agent: str, by: str, stage: str) -> Cell:
        def measure() -> dict[str, np.ndarray]:
            looks = trainers[by](agent, settings[data], config, context)
            arrays = {
                "steps": np.broadcast_to(looks.steps, looks.returns.shape),
                "seconds": np.broadcast_to(looks.seconds, looks.returns.shape),
                "returns": looks.returns,
            }
            return arrays | ({} if looks.values is None else {"values": looks.values})

        return Cell(measure=measure)

    axes = {"dataset": config.datasets, "agent": config.agents, "by": who}
    grid = run_grid(axes, train, context, seeds=config.seeds)
    discount = our_agents(config).bc.discount  # as everybody's
    rows = [rows_of(grid, settings[data], data, discount) for data in settings]
    report.table("returns", [row for part in rows for row in part])
    others = published.rows(config.datasets, config.agents)
    if others:
        report.table("published scores on D4RL's files", others)
    draw(report, grid, settings)
    if THEIRS in who:
        report.versions |= versions_of(config.peer_python)
        add_claims(report, grid, config.datasets)
    else:
        add_claims_alone(report, grid, settings, clocks_of(config))
    note_made(report, [setting.dataset for setting in settings.values()])
    note_environments(report, settings.values())
    report.note(
        "Seconds are those of gradient steps of all seeds, ours side by side and theirs one after "
        f"the other, on {len(os.sched_getaffinity(0))} core(s); load average at the end "
        f"{os.getloadavg()[0]:.1f} at {time.strftime('%H:%M')}."
    )
    return report


EXPERIMENT = LISTINGS["beside_others"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(("hopper-random",), ("bc", "td3_bc"), 16, 1, 32, 20, 2, 1, 2),
        "cpu": Config(agents=("bc", "td3_bc", "iql", "sac")),
        "cpu-long": Config(),
    },
    run=run,
)

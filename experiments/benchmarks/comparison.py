"""BC, CQL, IQL, TD3+BC and SAC beside d3rlpy's on the same files.

Both sides get the same rows, networks, rates, batch and gradient steps. Both are evaluated in the
same simulator from the same start states, seed by seed, after the last step.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.cores import cores
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import Bc
from jaxrl_rollouts.offline.agents.cql import Cql
from jaxrl_rollouts.offline.agents.iql import Iql
from jaxrl_rollouts.offline.agents.sac import Sac
from jaxrl_rollouts.offline.agents.td3_bc import Td3Bc
from jaxrl_rollouts.offline.behaviours.made import PENDULUM, load
from jaxrl_rollouts.offline.data import Dataset, Transitions, episode_returns
from jaxrl_rollouts.offline.data.transitions import reward_scale
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.job import train_method
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.task import keys_of
from jaxrl_rollouts.offline.training import look_keys
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import spread

from ..catalogue import LISTINGS
from .peer import PEERS, Peer, Theirs, check_interpreter

METHODS: Mapping[str, Any] = {
    "bc": Bc(),
    "td3_bc": Td3Bc(),
    "iql": Iql(cosine=False),
    "cql": Cql(normalize_obs=False),  # d3rlpy takes observations as they are
    "sac": Sac(),
}
PEER = PEERS / "d3rlpy_agents.py"
OURS, THEIRS = "ours", "d3rlpy"


@dataclass(frozen=True)
class Config:
    """What is trained on what, by whom.

    Attributes:
        datasets: names, or files.
        agents: out of bc, td3_bc, iql, cql and sac.
        width, layers: sizes of hidden layers.
        batch: transitions in a gradient step.
        updates: gradient steps of every agent.
        per_iteration: this library's updates in one call of the compiled program.
        episodes: episodes of the evaluation, per seed.
        seeds: seeds of every agent.
        seed: random seed.
        peer_python: an interpreter with d3rlpy; empty leaves it out.
    """

    datasets: tuple[str, ...] = ("halfcheetah-medium-mini-v1", "hopper-medium-replay-mini-v1")
    agents: tuple[str, ...] = tuple(METHODS)
    width: int = positive(256)
    layers: int = positive(2)
    batch: int = positive(256)
    updates: int = positive(20_000)
    per_iteration: int = positive(1000)
    episodes: int = positive(10)
    seeds: int = positive(3)
    seed: int = 0
    peer_python: str = ""

    def validate(self) -> None:
        if not self.agents or set(self.agents) - set(METHODS):
            raise ConfigError("agents", self.agents, f"names out of {', '.join(METHODS)}")
        if self.updates % self.per_iteration:
            expected = f"a multiple of per_iteration {self.per_iteration}"
            raise ConfigError("updates", self.updates, expected)
        if self.peer_python:
            check_interpreter("peer_python", self.peer_python, "d3rlpy")


def our_method(name: str, config: Config) -> Any:
    """A method with the networks and lengths that are compared; all else is its paper's."""
    sizes = {"hidden_dims": (config.width,) * config.layers, "batch_size": config.batch}
    return replace(METHODS[name], **sizes, steps=config.updates, per_iteration=config.per_iteration)


_RATES = {"actor_learning_rate": "actor_lr", "critic_learning_rate": "critic_lr"}
_BOTH = {**_RATES, "gamma": "discount", "tau": "tau", "n_critics": "num_critics"}
_SOFT = {**_BOTH, "initial_temperature": "initial_alpha"}
# d3rlpy's settings that say the same as ours, by agent.
SAME: Mapping[str, Mapping[str, str]] = {
    "bc": {"learning_rate": "actor_lr"},
    "td3_bc": {
        **_BOTH,
        "alpha": "alpha",
        "target_smoothing_sigma": "policy_noise",
        "target_smoothing_clip": "noise_clip",
        "update_actor_interval": "policy_freq",
    },
    "iql": {**_BOTH, "expectile": "expectile", "weight_temp": "beta", "max_weight": "exp_adv_max"},
    "sac": _SOFT,
    "cql": {
        **_SOFT,
        "conservative_weight": "weight",
        "n_action_samples": "num_actions",
        "soft_q_backup": "backup_entropy",
    },
}
# Without the multiplier of the conservative weight.
FIXED = {"cql": {"initial_alpha": 1.0, "alpha_learning_rate": 0.0}}


def their_options(name: str, ours: Any) -> dict[str, Any]:
    """d3rlpy's settings that say the same as `ours`."""
    options = {theirs: getattr(ours, mine) for theirs, mine in SAME[name].items()}
    if name in ("sac", "cql"):
        options["temp_learning_rate"] = ours.alpha_lr if ours.learn_alpha else 0.0
    return options | FIXED.get(name, {})


Trained = tuple[np.ndarray, float]  # returns `[seeds]` at the end, and gradient steps a second


def play_keys(config: Config) -> jax.Array:
    """Random numbers of the last evaluation's episodes, `[seeds]`; the same for both sides."""
    last = config.updates // config.per_iteration
    return jax.random.split(look_keys(keys_of(config.seed)[1], last)[1], config.seeds)


def train_ours(
    name: str, data: Dataset, env: Environment, config: Config, context: RunContext
) -> Trained:
    """All seeds of our agent side by side."""
    job = Job(config.seeds, config.seed, 1, config.episodes, context, on_divergence="raise")
    trained = train_method(data, our_method(name, config), job, env).trained
    rate = config.seeds * config.updates / trained.run_seconds
    return trained.history.last("return"), rate


def train_theirs(
    name: str, data: Dataset, env: Environment, config: Config, context: RunContext
) -> Trained:
    """Seeds of d3rlpy's agent one after the other, evaluated by our evaluation."""
    path = context.folder.path / f"{data.name}-{name}.npz"
    rows = write_rows(rows_of(name, data), path)
    returns, seconds = [], 0.0
    for seed, key in enumerate(play_keys(config)):
        with Peer(theirs(name, rows, config, seed)) as peer:
            peer.ask({"kind": "start", **peer.theirs.settings})
            seconds += peer.ask({"kind": "train", "updates": config.updates})["seconds"]
            returns.append(played(peer, env, key, config.episodes))
    return np.array(returns), config.seeds * config.updates / seconds


def theirs(name: str, rows: Path, config: Config, seed: int) -> Theirs:
    """Settings of d3rlpy's agent."""
    ours = our_method(name, config)
    settings = {
        "agent": name,
        "rows": str(rows),
        "seed": config.seed + seed,
        "width": config.width,
        "layers": config.layers,
        "batch": config.batch,
        "normalise": getattr(ours, "normalize_obs", False),
        "options": their_options(name, ours),
        "threads": cores(),
    }
    return Theirs(config.peer_python, PEER, "d3rlpy", settings, {}, option="peer_python")


def versions_of(python: str) -> dict[str, str]:
    """Of the libraries in an interpreter."""
    code = "import importlib.metadata as m; print(m.version('d3rlpy'), m.version('torch'))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(("d3rlpy", "torch"), said.stdout.split(), strict=True))


def rows_of(agent: str, dataset: Dataset) -> Transitions:
    """What both sides train on: the dataset's rows, rewards as the agent's paper has them."""
    return reward_scale(dataset, METHODS[agent].reward).of(dataset.transitions)


def write_rows(rows: Transitions, path: Path) -> Path:
    """The rows as d3rlpy takes them."""
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
    """Everyone on every dataset, one after the other."""
    report = Report.of(context, config.seeds)
    sets = {name: load(name, config.seed) for name in config.datasets}
    sides = (OURS, *([THEIRS] if config.peer_python else []))
    trainers: Mapping[str, Callable[..., Trained]] = {OURS: train_ours, THEIRS: train_theirs}

    def train(dataset: str, agent: str, by: str, stage: str) -> Cell:
        def measure() -> dict[str, np.ndarray]:
            data = sets[dataset]
            returns, rate = trainers[by](agent, data, make(data.environment), config, context)
            return {"returns": returns, "rate": np.full(config.seeds, rate)}

        return Cell(measure=measure)

    axes = {"dataset": config.datasets, "agent": config.agents, "by": sides}
    grid = run_grid(axes, train, context, seeds=config.seeds)
    for name, data in sets.items():
        behaved = float(episode_returns(data.transitions).mean())
        rows: list[dict[str, Any]] = [{"agent": "data", OURS: behaved}]
        for agent in config.agents:
            cells = {by: grid[name, agent, by] for by in sides}
            speeds = {f"{by} updates/s": float(x["rate"][0]) for by, x in cells.items()}
            rows.append({"agent": agent, **{by: x["returns"] for by, x in cells.items()}, **speeds})
        report.table(f"returns on {name}", rows)
        report.note(f"Data {name}: sha256 {data.sha256}.")
    if THEIRS in sides:
        report.versions |= versions_of(config.peer_python)
        add_claims(report, grid, config)
    report.note(f"Ours trains seeds side by side, d3rlpy one after the other; {cores()} core(s).")
    return report


def add_claims(report: Report, grid: Grid, config: Config) -> None:
    """Ranges of returns overlap, whichever is higher."""
    claim = claims(report, LISTINGS["comparison"].source)
    for data in config.datasets:
        for agent in config.agents:
            (a, b), (x, y) = (spread(grid[data, agent, by]["returns"]) for by in (OURS, THEIRS))
            means = "the lower of the upper ends minus the higher of the lower ends"
            name = f"{agent}: returns on {data} overlap"
            claim(name, [min(b, y) - max(a, x)], at_least=0, means=means)


EXPERIMENT = LISTINGS["comparison"].experiment(
    config_type=Config,
    presets={
        "smoke": Config(
            (PENDULUM,),
            ("bc", "td3_bc"),
            width=16,
            layers=1,
            batch=32,
            updates=20,
            per_iteration=10,
            episodes=1,
            seeds=2,
        ),
        "cpu": Config(agents=("bc", "td3_bc", "iql", "sac")),
    },
    run=run,
)

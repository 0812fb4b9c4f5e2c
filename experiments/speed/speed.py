"""How fast: updates, rollouts, seeds, and d3rlpy's SAC beside ours in the same run.

The peer lives in an environment of its own (its dependencies pin old ones):

    python -m venv peer && peer/bin/pip install torch==2.13.0 d3rlpy
    jaxrl-rollouts run speed --peer-python peer/bin/python

Compilation is timed apart. Every figure is the median of `repeats`; ours and the peer's take turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.claims import Claim
from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.experiment import Experiment, RunContext
from jaxrl_rollouts.experiments.speed.peer_process import Peer, check_interpreter
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.environments.base import as_model
from jaxrl_rollouts.offline.model_free import make_model_free
from jaxrl_rollouts.offline.sac import Sac, SacConfig, make_sac
from jaxrl_rollouts.offline.terminations import never
from jaxrl_rollouts.offline.world_model import learned_dynamics, make_world_model
from jaxrl_rollouts.pictures import figure
from jaxrl_rollouts.report import Report
from jaxrl_rollouts.rollout import Members, rollout

SOURCE = "the project's goals"
OBSERVATIONS, ACTIONS = 17, 6  # HalfCheetah's sizes


@dataclass(frozen=True)
class Config:
    """What is timed. `peer_python` is an interpreter with d3rlpy; empty leaves the peer out."""

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
    environments: tuple[str, ...] = (
        "pendulum", "gymnax/Pendulum-v1", "brax/inverted_pendulum", "mujoco/HalfCheetah-v4"
    )  # fmt: skip
    environment_copies: int = 4096
    environment_steps: int = 100
    host_copies: int = 16
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    peer_python: str = ""

    def validate(self) -> None:
        check_interpreter("peer_python", self.peer_python, "d3rlpy")
        if min(self.repeats, self.updates, *self.seeds, *self.horizons) < 1:
            raise ConfigError("repeats, updates, seeds, horizons", "0", "all at least 1")


def random_rows(rows: int) -> Transitions:
    """Rows of HalfCheetah's shape; speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, OBSERVATIONS)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    following = (0.9 * observations + 0.1 * np.roll(observations, 1, 0)).astype(np.float32)
    none = np.zeros(rows, bool)
    return Transitions(observations, actions, actions.sum(1), following, none, none)


def timed(work: Callable[[], Any]) -> float:
    """Seconds until the result is there."""
    begin = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begin


def sac_speed(config: Config, width: int, critics: int, seeds: int) -> Callable[[], loop.Trained]:
    """A function that trains SAC-N for `config.updates` steps; compiled at its first call."""
    agent = make_model_free(
        SacConfig(critics=critics, diversity=0.0, hidden=(width,) * config.layers),
        OBSERVATIONS, ACTIONS, batch_size=config.batch, updates_per_iteration=config.updates,
    )  # fmt: skip
    data = to_device(random_rows(config.rows))
    state = jax.jit(jax.vmap(agent.init))(jax.random.split(jax.random.key(0), seeds))
    return lambda: loop.train(agent.update, state, data, iterations=1, stage="speed")


def peer_speed(config: Config, width: int, critics: int) -> dict[str, Any]:
    """d3rlpy's SAC with the same nets and batch, in its own process."""
    settings = {
        "rows": config.rows, "observations": OBSERVATIONS, "actions": ACTIONS, "width": width,
        "layers": config.layers, "critics": critics, "batch": config.batch,
        "updates": config.updates, "threads": os.cpu_count(),
    }  # fmt: skip
    with Peer(config.peer_python, "d3rlpy_sac.py", option="peer_python", needs="d3rlpy") as peer:
        return peer.ask(settings)


def matmul_peak(size: int = 2048, repeats: int = 5) -> float:
    """Floating-point operations per second of one large float32 product: what there is to use."""
    square = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    timed(lambda: product(square, square))
    return 2.0 * size**3 / min(timed(lambda: product(square, square)) for _ in range(repeats))


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


def run(config: Config, context: RunContext) -> Report:
    """All tables."""
    report = Report.of(context, 1)
    report.note(f"Load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    _updates(config, report)
    seeds_side_by_side(
        report, {n: sac_speed(config, config.seeds_width, 2, n) for n in config.seeds},
        config.repeats, title=f"SAC, {config.layers} x {config.seeds_width}",
    )  # fmt: skip
    _rollouts(config, report)
    _environments(config, report)
    report.note(f"Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    return report


def _updates(config: Config, report: Report) -> None:
    rows, ratios = [], []
    peak = matmul_peak()
    for width in config.widths:
        for critics in config.critics:
            train = sac_speed(config, width, critics, 1)
            first, again = train(), train()
            ours: list[float] = []
            peers: list[dict[str, Any]] = []
            for _ in range(config.repeats):
                ours.append(config.updates / train().run_seconds)
                if config.peer_python:
                    peers.append(peer_speed(config, width, critics))
            row = {
                "nets": f"{config.layers} x {width}", "critics": critics,
                "updates/s": float(np.median(ours)), "compile s": first.compile_seconds,
                "second call compiles s": round(again.compile_seconds, 3),
                "% of matmul peak": 100.0 * update_operations(config, width, critics)
                * float(np.median(ours)) / peak,
            }  # fmt: skip
            if peers:
                theirs = np.array([p["updates_per_second"] for p in peers])
                row |= {
                    f"d3rlpy {peers[0]['d3rlpy']} updates/s": float(np.median(theirs)),
                    "ratio": float(np.median(np.array(ours) / theirs)),
                }
                ratios.append((row["nets"], critics, np.array(ours) / theirs))
                report.versions |= {"d3rlpy": peers[0]["d3rlpy"], "torch": peers[0]["torch"]}
            rows.append(row)
    report.table("gradient steps per second", rows)
    report.note(
        f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here. The column beside the "
        "rate is the share of that which one update's matrix products use; 100 % cannot be passed."
    )
    for nets, critics, values in ratios:
        report.claim(
            Claim.at_least(
                f"5 times d3rlpy's SAC, {nets}, {critics} critics", values=values, threshold=5.0,
                source=SOURCE, expected="updates per second against d3rlpy, same nets and batch",
                statistic="median",
            )
        )  # fmt: skip


def seeds_side_by_side(
    report: Report, trains: Mapping[int, Callable[[], loop.Trained]], repeats: int, *, title: str
) -> None:
    """Table, claim and picture of the time to train several seeds against that of the first.

    Args:
        report: where they go.
        trains: number of seeds -> a function that trains them, compiled at its first call.
        repeats: of which medians are shown.
        title: what is trained.
    """
    for train in trains.values():
        train()
    seconds = np.array([[train().run_seconds for train in trains.values()] for _ in range(repeats)])
    relative = np.median(seconds / seconds[:, :1], 0)
    report.table(
        "seeds side by side",
        [
            {"seeds": n, "seconds": float(middle), "x one seed": float(times)}
            for n, middle, times in zip(trains, np.median(seconds, 0), relative, strict=True)
        ],
    )
    report.claim(
        Claim.at_most(
            f"{max(trains)} seeds in 4 times the time of one",
            values=seconds[:, -1] / seconds[:, 0], threshold=4.0, source=SOURCE,
            expected="seeds as a vmapped axis, spread over the cores", statistic="median",
        )
    )  # fmt: skip
    made, (ax,) = figure(1, 1, width=4.2, title=title)
    ax.plot(list(trains), relative, "o-", label="measured")
    ax.plot(list(trains), list(trains), ":", color="black", label="one after the other")
    ax.set_xlabel("seeds")
    ax.set_ylabel("time, in times of one seed")
    ax.legend()
    report.picture("seeds", made, "Time to train several seeds in one program.")


def _rollouts(config: Config, report: Report) -> None:
    model = make_world_model(config.ensemble, random_rows(2_000))
    states = jax.jit(jax.vmap(model.fitter.init))(jax.random.split(jax.random.key(0), 1))
    world = jax.tree.map(lambda x: x[0], jax.vmap(model.world)(states))
    agent = make_sac(SacConfig(hidden=(config.seeds_width,) * 2), OBSERVATIONS, ACTIONS)
    actor = jax.jit(agent.init)(jax.random.key(1)).actor
    dynamics = learned_dynamics(model.fitter, config.ensemble.elites, termination=never)
    elites = Members(jnp.arange(config.ensemble.elites, dtype=jnp.int32))
    rows = []
    for horizon in config.horizons:
        count = max(config.rollout_rows // horizon, 10)
        start = jnp.zeros((count, OBSERVATIONS))

        @jax.jit
        def roll(start: jax.Array, key: jax.Array, horizon: int = horizon) -> Any:
            return rollout(
                dynamics.model, world, start, key, horizon=horizon, policy=agent.policy,
                policy_params=actor, members=elites,
            ).steps  # fmt: skip

        keys = jax.random.split(jax.random.key(0), config.repeats + 1)
        first, *later = [timed(lambda k=k, s=start, r=roll: r(s, k)) for k in keys]
        middle = float(np.median(later))
        rows.append(
            {"what": "ensemble, 4 x 200", "rows": count, "horizon": horizon,
             "transitions/s": count * horizon / middle, "compile s": first - middle}
        )  # fmt: skip
    report.table("rollout transitions per second", rows)


def _environments(config: Config, report: Report) -> None:
    rows = []
    for name in config.environments:
        try:
            env = make(name)
        except MissingExtraError as error:
            report.note(f"{name} was left out: {error}")
            continue
        agent = make_sac(SacConfig(hidden=(64, 64)), env.observation_size, env.action_size)
        actor = jax.jit(agent.init)(jax.random.key(2)).actor
        copies = config.host_copies if env.host else config.environment_copies
        steps = min(config.environment_steps, env.max_episode_steps)

        @jax.jit
        def play(
            key: jax.Array, env: Environment = env, agent: Sac = agent, actor: Any = actor,
            copies: int = copies, steps: int = steps,
        ) -> Any:  # fmt: skip
            start_key, roll_key = jax.random.split(key)
            played = rollout(
                as_model(env), None, env.reset(start_key, copies), roll_key, horizon=steps,
                policy=agent.policy, policy_params=actor, stop_at_termination=env.host,
            )  # fmt: skip
            # All of it is returned: what nobody asks for, XLA does not compute.
            return played.valid.sum(), played.steps

        keys = jax.random.split(jax.random.key(0), config.repeats + 1)
        first, *later = [timed(lambda k=k, p=play: p(k)) for k in keys]
        played = float(play(keys[0])[0])
        middle = float(np.median(later))
        rows.append(
            {"environment": name, "copies": copies, "steps/s": played / middle,
             "compile s": first - middle}
        )  # fmt: skip
    report.table("true environments, steps per second with a policy", rows)


EXPERIMENT = Experiment(
    name="speed",
    summary="benchmark: updates/s (and d3rlpy's), seeds side by side, rollout transitions/s",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            widths=(32,), critics=(2,), rows=2000, updates=20, repeats=2, seeds=(1, 2),
            seeds_width=32, horizons=(1, 5), rollout_rows=200, environments=("pendulum",),
            environment_copies=64,
        ),
        "cpu": Config(),
    },
    run=run,
)  # fmt: skip

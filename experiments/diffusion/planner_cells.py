"""What `planner` trains and measures: one planner per seed, and every way to draw its plans.

A planner learns its diffusion model and its one-call student together, so that all samplers below
are of the same weights: the model itself in 255 network calls and in few, and the student in one to
four. Beside it behaviour cloning and TD3+BC on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.compare.timing import timed
from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.diffusion import JumpConfig, SamplerConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.bc import BcConfig
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.planner import PlannerConfig, make_planner
from jaxrl_rollouts.offline.agents.planner_acting import actions_between, plans
from jaxrl_rollouts.offline.agents.planner_parts import PlannerActor, planner_parts
from jaxrl_rollouts.offline.agents.registry import rows_for
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.behaviours.made import PENDULUM
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.evaluation import evaluate_seeds
from jaxrl_rollouts.offline.study.source import Setting, setting_of, slug
from jaxrl_rollouts.offline.synthetic.paths import step_error
from jaxrl_rollouts.offline.training import train_learner, train_on_rows
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

MANY, ONE = "model, 255 calls", "student, 1 call"
# How plans are drawn, by name: the model's sampler, or the jumps of the student, who goes on from
# fresh noise after the first one: it was taught to jump to the data only.
DRAWS: Mapping[str, SamplerConfig | JumpConfig] = {
    MANY: SamplerConfig(128),
    "model, 255 calls, no churn": SamplerConfig(128, churn=0.0),
    "model, 7 calls (Heun)": SamplerConfig(4, churn=0.0),
    "model, 4 calls (DPM++)": SamplerConfig(4, method="dpmpp_2m"),
    "model, 2 calls (DPM++)": SamplerConfig(2, method="dpmpp_2m"),
    "student, 4 calls": JumpConfig(4, renoise=1.0),
    "student, 2 calls": JumpConfig(2, renoise=1.0),
    ONE: JumpConfig(1),
}
BASELINES = ("bc", "td3_bc")


@dataclass(frozen=True)
class Config:
    """Datasets, the planner, what it is beside, how it is played.

    Attributes:
        datasets: names; those made on the spot are `study.MADE`.
        seeds, seed: agents trained side by side.
        planner: its networks; how plans are drawn is every one of `DRAWS`.
        updates, batch_size, per_iteration: of its training.
        bc, td3_bc: what it is beside.
        agent_updates: of either, in batches of 256.
        episodes: of the evaluation, per seed, by dataset.
        plans: drawn at once from states of the data, timed and checked in the simulator.
    """

    datasets: tuple[str, ...] = (PENDULUM, "halfcheetah-medium")
    seeds: int = positive(5)
    seed: int = 0
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    updates: int = positive(200_000)
    batch_size: int = positive(128)
    per_iteration: int = positive(500)
    bc: BcConfig = field(default_factory=BcConfig)
    td3_bc: Td3BcConfig = field(default_factory=Td3BcConfig)
    agent_updates: int = positive(200_000)
    episodes: tuple[int, ...] = (20, 5)
    plans: int = positive(256)

    def validate(self) -> None:
        if not self.datasets or len(self.episodes) != len(self.datasets):
            found = (self.datasets, self.episodes)
            raise ConfigError("datasets, episodes", found, "at least one, equally many of each")
        if self.planner.by != "student":
            raise ConfigError("planner.by", self.planner.by, "student: both are compared")
        for name in ("updates", "agent_updates"):
            if getattr(self, name) % self.per_iteration:
                expected = f"a multiple of per_iteration ({self.per_iteration})"
                raise ConfigError(name, getattr(self, name), expected)


def drawing(config: PlannerConfig, draw: str) -> PlannerConfig:
    """The planner that draws its plans so."""
    how = DRAWS[draw]
    if isinstance(how, JumpConfig):
        return replace(config, by="student", jumps=how)
    return replace(config, by="teacher", sampler=how)


def run_dataset(
    name: str, episodes: int, config: Config, context: RunContext | None
) -> tuple[Setting, Cell, Grid]:
    """Train on one dataset; the planner's training, and a cell of every arm."""
    setting = setting_of(name, config.seed, context)
    env, data = setting.env, setting.dataset.with_successors
    train_key, agent_key, play_key, look_key = jax.random.split(jax.random.key(config.seed), 4)
    sizes = {"batch_size": config.batch_size, "updates_per_iteration": config.per_iteration}
    learner = make_model_free(config.planner, env.observation_size, env.action_size, **sizes)
    trained = train_learner(
        learner,
        to_device(rows_for(config.planner, data)),
        train_key,
        seeds=config.seeds,
        iterations=config.updates // config.per_iteration,
        stage=f"{slug(name)}-planner",
        context=context,
    )
    actors = trained.state.agent.actor
    jax.clear_caches()

    def cell(arm: str, *, stage: str) -> Cell:
        if arm in BASELINES:
            agent = getattr(config, arm)
            beside = train_on_rows(
                agent,
                to_device(rows_for(agent, data)),
                env,
                (agent_key, play_key),
                updates_per_iteration=config.per_iteration,
                seeds=config.seeds,
                iterations=config.agent_updates // config.per_iteration,
                episodes=episodes,
                stage=stage,
                context=context,
            )
            rate = bootstrap_rate(agent)
            return Cell.of(beside, updates=config.per_iteration, rate=rate)
        chosen = drawing(config.planner, arm)
        return Cell(measure=lambda: measure(chosen, actors, setting, episodes, config, look_key))

    arms = (*BASELINES, *DRAWS)
    grid = run_grid({"arm": arms}, cell, context, seeds=config.seeds, stage=slug(name))
    return setting, Cell.of(trained, updates=config.per_iteration), grid


def measure(
    config: PlannerConfig,
    actors: PlannerActor,
    setting: Setting,
    episodes: int,
    study: Config,
    key: jax.Array,
) -> dict[str, Any]:
    """What planners `[seeds]` earn that draw plans so, how fast, and how true plans are.

    Returns:
        `return` `[seeds]`; `seconds` of all seeds' `plans`, the least of three; and, in the data's
        variances, squared errors in the simulator of a plan's `first` step and of `all`, `[seeds]`.
    """
    env, data = setting.env, setting.dataset.with_successors
    play_key, row_key, draw_key, look_key = jax.random.split(key, 4)
    parts = planner_parts(config, env.observation_size, env.action_size)
    agent = make_planner(config, env.observation_size, env.action_size)
    memory = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (study.seeds, *x.shape)), agent.memory(episodes)
    )
    played = evaluate_seeds(env, agent.greedy, actors, play_key, episodes, memory=memory)
    rows = np.asarray(jax.random.randint(row_key, (study.plans,), 0, len(data.rewards)))
    now = jnp.repeat(jnp.asarray(data.observations[rows])[:, None], config.history, 1)

    @jax.jit
    def draw(actors: PlannerActor, keys: jax.Array) -> jax.Array:
        return jax.vmap(lambda actor, key: plans(parts, actor, key, now))(actors, keys)

    keys = jax.random.split(draw_key, study.seeds)
    drawn = jax.block_until_ready(draw(actors, keys))
    seconds = min(timed(lambda: draw(actors, keys)) for _ in range(3))
    paths = jax.jit(jax.vmap(lambda actor, plan: plan_paths(config, parts, actor, plan)))
    errors = np.stack(
        [
            step_error(env, jax.tree.map(lambda x, i=i: x[i], paths(actors, drawn)), data, look_key)
            for i in range(study.seeds)
        ]
    )
    return {
        "return": np.asarray(played.returns).mean(1),
        "seconds": np.full(study.seeds, seconds),
        "first": errors[:, :, 0].mean(1),
        "all": errors.mean((1, 2)),
    }


def plan_paths(
    config: PlannerConfig, parts: PyTree, actor: PlannerActor, plan: jax.Array
) -> Transitions:
    """Plans `[B, L, S]` from the present on, with the actions that should lead along them."""
    states = plan[:, config.history - 1 :]
    flat = states[:, :-1].reshape(-1, states.shape[-1]), states[:, 1:].reshape(-1, states.shape[-1])
    actions = actions_between(parts, actor, *flat)
    nothing = jnp.zeros(states[:, :-1, 0].shape)
    return Transitions(
        states[:, :-1],
        actions.reshape(*nothing.shape, -1),
        nothing,
        states[:, 1:],
        nothing > 0,
        nothing > 0,
    )

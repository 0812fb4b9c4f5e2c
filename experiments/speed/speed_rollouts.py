"""Transitions per second: in an ensemble over the horizon, and in true environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import MissingExtraError
from jaxrl_rollouts.offline.agents.agent import Agent
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.environments import Environment, make
from jaxrl_rollouts.offline.environments.base import as_model
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import make_world_model
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.rollout import Members, rollout

from ..kit.timing import timed
from .speed_cells import ACTIONS, OBSERVATIONS, Config, random_rows


def time_rollouts(config: Config, report: Report) -> None:
    """Imagined, by the ensemble's elites."""
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


def time_environments(config: Config, report: Report) -> None:
    """Played by a policy; what is not installed is left out and said."""
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
            key: jax.Array, env: Environment = env, agent: Agent = agent, actor: Any = actor,
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

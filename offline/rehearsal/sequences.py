"""Sequences of three tasks with generated data, of scripted or uniform actions.

On the plane and the pendulum the dynamics are shared and only rewards differ, a simplification. The
runners differ in their dynamics: the second's motor pushes the other way, the third's pole is long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.rollouts import StepResult

from ..behaviours.mixed import pendulum_mixed
from ..collect import collect, random_policy
from ..data import Dataset, Transitions
from ..environments import pendulum, runner
from ..environments.base import Environment, EnvironmentState, disturbed
from ..environments.pendulum import PENDULUM
from ..environments.plane import PLANE
from ..environments.runner import RUNNER, Build

Reward = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Tasks = list[tuple[Dataset, Environment]]

# Within the reach of random walks.
GOALS = {"east": (4.0, 0.0), "northwest": (-2.0, 3.5), "southwest": (-2.0, -3.5)}
# Angles at which gravity can be held: upright, and leaning either way from hanging down.
ANGLES = {"upright": 0.0, "left": 2.8, "right": -2.8}
GAINS = (0.2, 3.0, 1.0)  # of speed, angle and angular speed
BUILDS = {
    "plain": Build(),
    "rewired": Build(motor=-1.0),
    "long": Build(half_length=1.0, pole=0.2),
}


def rewarded(env: Environment, name: str, paid: Reward) -> Environment:
    """An environment with another reward, a known function of a transition."""

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        after, out = env.step(key, state, action)
        found = paid(env.observe(state), action, env.observe(after))
        return after, out._replace(reward=found)

    return env._replace(name=name, step=step, reward=paid)


def near(goal: tuple[float, float], before: Any, action: Any, after: jax.Array) -> jax.Array:
    """`exp(-|s' - g|^2 / 8)`."""
    return jnp.exp(-jnp.square(after - jnp.array(goal)).sum(-1) / 8.0)


def balancing(params: Any, key: jax.Array, observation: jax.Array, memory: Any) -> tuple:
    """Linear feedback that keeps the runner's pole upright, with noise.

    Each episode of a batch has its own speed to run at.
    """
    aimed = jax.random.uniform(params["key"], observation.shape[:1], minval=-0.5, maxval=1.0)
    push = observation @ jnp.array(GAINS) - GAINS[0] * aimed
    return disturbed(key, params["motor"] * push, 0.3, 0.1)[:, None], memory


def _made(
    env: Environment,
    paid_for: Callable[[Any], Reward],
    aims: Mapping[str, Any],
    logs: Mapping[str, Any] | None = None,
) -> Callable[[int, int], Tasks]:
    """Tasks of one environment by name; from uniform actions where `logs` has no maker of rows."""

    def make(steps: int, seed: int) -> Tasks:
        tasks = []
        for number, (name, aim) in enumerate(aims.items()):
            paid = paid_for(aim)
            key = jax.random.fold_in(as_key(seed, "seed"), number)
            if logs and name in logs:
                found = logs[name](key, steps)
            else:
                found = collect(env, random_policy(env.action_size), None, key, steps=steps)
            earned = np.asarray(paid(*map(jnp.asarray, (found[0], found[1], found[3]))))
            task = rewarded(env, f"{env.name}-{name}", paid)
            tasks.append((_dataset(task.name, found._replace(rewards=earned)), task))
        return tasks

    return make


def _runners(steps: int, seed: int) -> Tasks:
    tasks = []
    for number, (name, build) in enumerate(BUILDS.items()):
        env = RUNNER._replace(
            name=f"runner-{name}", step=functools.partial(runner.step, build=build)
        )
        key, speed_key = jax.random.split(jax.random.fold_in(as_key(seed, "seed"), number))
        played = {"motor": jnp.float32(build.motor), "key": speed_key}
        tasks.append((_dataset(env.name, collect(env, balancing, played, key, steps=steps)), env))
    return tasks


def _dataset(name: str, rows: Transitions) -> Dataset:
    return Dataset(name, rows, None, Path("(made on the spot)"), "")


# By name: `(rows of each task, seed) -> tasks`.
SEQUENCES: Mapping[str, Callable[[int, int], Tasks]] = {
    "plane-goals": _made(PLANE, lambda goal: functools.partial(near, goal), GOALS),
    "pendulum-angles": _made(
        PENDULUM,
        lambda angle: functools.partial(pendulum.reward, upright=angle),
        ANGLES,
        {"upright": pendulum_mixed},
    ),
    "runner-builds": _runners,
}

"""Where a model and its critics can be trusted: error growth, calibration, values at the edge."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.rollout import Members, rollout

from .data import Transitions, episodes
from .sac import Sac, SacState
from .world_model import Dynamics, World, predict

PyTree = Any


class CriticView(NamedTuple):
    """What critics say about a set of states under the policy's mean action; scalars.

    Attributes:
        mean: mean over critics and states.
        spread: standard deviation over critics, mean over states.
        pessimism: how far the minimum over critics lies below their mean, mean over states.
    """

    mean: jax.Array
    spread: jax.Array
    pessimism: jax.Array


def critic_view(agent: Sac, state: SacState, observations: jax.Array) -> CriticView:
    """Critics' mean, spread and pessimism on `[B, S]` states (one seed; vmap over seeds)."""
    actions, _ = agent.greedy(state.actor, jax.random.key(0), observations, ())
    q = agent.q(state.critic, observations, actions)
    return CriticView(q.mean(), q.std(0).mean(), (q.mean(0) - q.min(0)).mean())


@partial(jax.jit, static_argnames="agent")
def start_values(agent: Sac, states: SacState, observations: jax.Array) -> jax.Array:
    """Value the critics promise from `[B, S]` states, per seed of `states`: `[seeds]`."""
    return jax.vmap(lambda s: critic_view(agent, s, observations).mean)(states)


class Windows(NamedTuple):
    """Stretches of logged episodes, time-major: `[T + 1, B, S]` and `[T, B, A]`."""

    observations: jax.Array
    actions: jax.Array


def windows(transitions: Transitions, length: int, count: int, *, seed: int = 0) -> Windows:
    """Draw `count` stretches of `length` steps that stay inside an episode.

    Raises:
        ConfigError: every episode is shorter than `length`.
    """
    parts = episodes(transitions)
    starts = np.concatenate(
        [np.arange(a, b - length + 1) for a, b in zip(parts.starts, parts.ends, strict=True)]
    ).astype(np.int64)
    if not len(starts):
        longest = int(parts.lengths.max(initial=0))
        raise ConfigError("length", length, f"at most the longest episode, {longest} steps")
    chosen = np.random.default_rng(seed).choice(starts, count)
    rows = chosen + np.arange(length)[:, None]
    observations, following, actions = (
        np.asarray(x)[rows]
        for x in (transitions.observations, transitions.next_observations, transitions.actions)
    )
    path = np.concatenate([observations[:1], following])
    return Windows(jnp.asarray(path), jnp.asarray(actions))


@partial(jax.jit, static_argnames="dynamics")
def open_loop_error(dynamics: Dynamics, world: World, logged: Windows, key: jax.Array) -> jax.Array:
    """Error of open-loop rollouts along logged actions, per step and trajectory: `[T, B]`.

    The root mean square over observation entries, each in units of the dataset's standard
    deviation. One member per trajectory, noise sampled, terminations ignored (NEUBAY, appendix).
    """

    def replay(
        actions: jax.Array, key: jax.Array, observation: jax.Array, time: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return actions[time[0]], time + 1

    horizon, batch = logged.actions.shape[:2]
    rolled = rollout(
        dynamics.model, world, logged.observations[0], key, horizon=horizon, policy=replay,
        policy_params=logged.actions, memory=jnp.zeros((batch,), jnp.int32),
        members=Members(jnp.arange(dynamics.members, dtype=jnp.int32), per="trajectory"),
        stop_at_termination=False, record=lambda step: step.next_observations,
    )  # fmt: skip
    scale = world.inputs.std[: logged.observations.shape[-1]]
    gap = (rolled.steps - logged.observations[1:]) / scale
    return jnp.sqrt(jnp.square(gap).mean(-1))


@partial(jax.jit, static_argnames=("fitter", "levels"))
def calibration(
    fitter: Fitter, world: World, transitions: Transitions, levels: tuple[float, ...]
) -> jax.Array:
    """Share of outcomes inside the central interval of each level: `[levels]`.

    Counted over elites, rows and outputs (change and reward). A calibrated model gives the
    levels back; less means overconfident.
    """
    said = predict(fitter, world, transitions.observations, transitions.actions)
    change = transitions.next_observations - transitions.observations
    target = jnp.concatenate([change, transitions.rewards[:, None]], -1)
    inside = jax.scipy.special.erf(jnp.abs(target - said.mean) / said.std / jnp.sqrt(2.0))
    return jnp.stack([(inside <= level).mean() for level in levels])

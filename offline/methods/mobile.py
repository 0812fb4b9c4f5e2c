"""MOBILE (Sun et al. 2023): Bellman targets are lowered where the members disagree about them.

Each elite samples next states of a row; the target critics value them; the standard deviation over
elites of those Bellman estimates is the penalty. It, too, vanishes with the model's error.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

from jaxrl_rollouts.ensemble import bellman_spread
from jaxrl_rollouts.errors import ConfigError

from ..agents.sac import Sac, SacConfig, SacState
from ..data import Transitions
from ..worlds.dynamics import Dynamics
from .base import base
from .scheme import Method, TargetPenalty


@functools.lru_cache(maxsize=32)
def bellman_inconsistency(penalty: float, samples: int) -> TargetPenalty:
    """Penalty function: `penalty` times the spread over elites of next-state values.

    Args:
        penalty: beta in the paper, 0.5 to 2.
        samples: next states per elite and row, averaged before the spread is taken; the paper
            uses 10.
    """

    def inconsistency(
        agent: Sac, dynamics: Dynamics, state: SacState, world: Any, key: jax.Array,
        batch: Transitions,
    ) -> jax.Array:  # fmt: skip
        def once(key: jax.Array) -> jax.Array:
            model_key, action_key = jax.random.split(key)
            said = dynamics.imagine(world, model_key, batch.observations, batch.actions)
            actions, _ = agent.draw(state.actor, action_key, said.next_observations)
            rows = [x.reshape(-1, x.shape[-1]) for x in (said.next_observations, actions)]
            value = agent.q(state.target_critic, *rows).min(0)
            return value.reshape(said.rewards.shape)

        estimates = jax.vmap(once)(jax.random.split(key, samples)).mean(0)
        return jax.lax.stop_gradient(penalty * bellman_spread(estimates))

    return inconsistency


def mobile(agent: SacConfig, *, penalty: float = 1.0, samples: int = 10) -> Method:
    """Base with the Bellman-inconsistency penalty on imagined rows.

    Raises:
        ConfigError: a negative penalty or no samples.
    """
    if penalty < 0 or samples < 1:
        raise ConfigError("penalty, samples", (penalty, samples), "at least 0 and at least 1")
    return base(agent)._replace(
        name="mobile", target_penalty=bellman_inconsistency(penalty, samples)
    )

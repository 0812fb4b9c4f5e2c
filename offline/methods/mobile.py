"""MOBILE (Sun et al. 2023): Bellman targets are lowered where the members disagree about them.

Each elite samples next states of a row; the target critics value them; the standard deviation over
elites of those Bellman estimates is the penalty. It, too, vanishes with the model's error.

As in the authors' code, targets do not count the entropy and the spread is over `E - 1`. Three more
of its choices are the agent's or the task's, and settings here: rates and networks
(`published.py`), targets of at least 0 and elites whose draws are their own. One is not kept: there
the critics move before the policy, here after it, as in RAVL's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax

from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.ensemble import bellman_spread
from jaxrl_rollouts.errors import ConfigError

from ..agents.agent import Agent
from ..agents.given import Settings
from ..agents.sac import SacConfig, SacState
from ..data import Transitions
from ..worlds.dynamics import Dynamics, Noise
from .base import base
from .scheme import BellmanPenalty, Method


def inconsistency(
    samples: int,
    noise: Noise,
    agent: Agent,
    dynamics: Dynamics,
    state: SacState,
    world: Any,
    key: jax.Array,
    batch: Transitions,
) -> jax.Array:
    """`std_e mean_j min_i Q'_i(s'_ej, a'_ej)` over elites e, `[B]`; section 4.

    Args:
        samples: next states per elite and row (index j), averaged before the spread is taken.
        noise: do elites draw their `own` actions, or from numbers `common` to all? Their next
            states are as `dynamics` draw them.
        agent, state: whose target critics value them, at its own actions.
        dynamics, world: that imagine them.
        key: consumed.
        batch: `[B]` rows.
    """

    def act(key: jax.Array, observations: jax.Array) -> jax.Array:
        assert agent.sample is not None
        return agent.sample(state.actor, key, observations)[0]

    def once(key: jax.Array) -> jax.Array:
        model_key, action_key = jax.random.split(key)
        imagined = dynamics.imagine(world, model_key, batch.observations, batch.actions)
        of_elites = jax.vmap(act, (None, 0)) if noise == "common" else act
        actions = of_elites(action_key, imagined.next_observations)
        rows = [x.reshape(-1, x.shape[-1]) for x in (imagined.next_observations, actions)]
        value = agent.q(state.target_critic, *rows).min(0)
        return value.reshape(imagined.rewards.shape)

    estimates = jax.vmap(once)(jax.random.split(key, samples)).mean(0)
    return jax.lax.stop_gradient(bellman_spread(estimates))


@functools.lru_cache(maxsize=32)
def bellman_inconsistency(samples: int, noise: Noise) -> BellmanPenalty:
    """`inconsistency` with so many samples; equal arguments give the same function."""
    return functools.partial(inconsistency, samples, noise)


def mobile(
    agent: SacConfig,
    *,
    penalty: float = 1.0,
    samples: int = 10,
    noise: Noise = "own",
    backup_entropy: bool = False,
    min_target: float | None = None,
) -> Method:
    """Base with `penalty` times the inconsistency off imagined rows' targets.

    The authors' code takes a penalty (beta) of 0.1 to 5, by dataset. The other arguments are those
    of `Mobile`.

    Raises:
        ConfigError: a negative penalty or no samples.
    """
    if penalty < 0:
        raise ConfigError("penalty", penalty, "at least 0")
    if samples < 1:
        raise ConfigError("samples", samples, "at least 1")
    agent = replace(agent, backup_entropy=backup_entropy, min_target=min_target)
    return base(agent)._replace(
        name="mobile",
        coefficient=penalty,
        noise=noise,
        bellman_penalty=bellman_inconsistency(samples, noise),
    )


@dataclass(frozen=True)
class Mobile(Settings):
    """Settings of MOBILE.

    Attributes:
        penalty: beta: how much the members' disagreement takes from a Bellman target.
        samples: next states per elite and row.
        noise: of those samples: every elite draws its `own` (the authors' code), or all share
            one draw (`common`), so that few samples measure their disagreement and nothing else.
        backup_entropy: count the entropy in Bellman targets; not in the authors' code.
        min_target: Bellman targets are not let below it; 0 in the authors' code, whose tasks
            have positive returns. None lets them be.
    """

    penalty: float = number(1.0, least=0)
    samples: int = positive(10)
    noise: Noise = "own"
    backup_entropy: bool = False
    min_target: float | None = None

    def method(self, agent: SacConfig) -> Method:
        return mobile(
            agent,
            penalty=self.penalty,
            samples=self.samples,
            noise=self.noise,
            backup_entropy=self.backup_entropy,
            min_target=self.min_target,
        )

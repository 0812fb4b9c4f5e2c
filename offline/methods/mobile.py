"""MOBILE (Sun et al. 2023): Bellman targets are lowered where the members disagree about them.

Each elite samples next states of a row; the target critics value them; the standard deviation over
elites of those Bellman estimates is the penalty. It vanishes with the model's error.

As in the authors' code, targets do not count the entropy, are at least `agent.min_target`, and the
spread is over `E - 1`. One choice differs: there the critics move before the policy, here after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, coefficient, positive
from jaxrl_rollouts.ensemble import bellman_spread
from jaxrl_rollouts.errors import ConfigError

from ..agents import AGENTS
from ..agents.sac import SacConfig, SacState
from ..data import Dataset, Transitions
from ..method import Agent, AgentConfig
from ..worlds.dynamics import EliteSamples, Noise, Rolled
from ..worlds.fit import WorldModelConfig
from .model_based import Given, Learned, Learning, ModelBased


def mobile_agent() -> SacConfig:
    """SAC as MOBILE's authors have it."""
    return SacConfig(
        hidden_dims=(256, 256),
        actor_lr=1e-4,
        alpha_lr=1e-4,
        cosine=True,
        backup_entropy=False,
        max_alpha=1.0,
        min_target=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class OnTargets(ModelBased):
    """Methods that value next states of every elite; the agent is `sac` or `edac`.

    Attributes:
        num_samples: next states per elite and row, averaged before the elites are compared.
        sample_noise: noise of those samples: every elite has its `own` (the authors' code), or all
            share one sample (`common`), so that few samples measure their disagreement and nothing
            else.
    """

    num_samples: int = positive(10)
    sample_noise: Noise = "own"

    def validate(self) -> None:
        if not isinstance(self.agent, SacConfig):
            found = type(self.agent).__name__
            raise ConfigError("agent", found, "sac or edac, whose targets take a penalty")

    def sampling(self) -> Noise:
        return self.sample_noise


@dataclass(frozen=True, kw_only=True)
class Mobile(OnTargets):
    """MOBILE's settings.

    Attributes:
        penalty: beta: weight of the members' disagreement in a Bellman target (0.1 to 5).
    """

    name: ClassVar[str] = "mobile"
    world: WorldModelConfig = WorldModelConfig(targets="raw")
    agent: AgentConfig = chosen(AGENTS, mobile_agent)
    penalty: float = coefficient(1.0, least=0)

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise `ConfigError` where no reward of the dataset is above `min_target` for ever."""
        assert isinstance(self.agent, SacConfig)
        least = self.agent.min_target
        if least is None:
            return
        most = float(dataset.transitions.rewards.max()) / (1 - self.agent.discount)
        if most <= least:
            expected = (
                f"less than {most:,.4g}, the discounted sum of {dataset.name}'s largest reward"
            )
            hint = "None leaves targets as they are; else every target would be cut there"
            raise ConfigError("agent.min_target", least, expected, hint)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """SAC's step with `beta inconsistency` off the targets of imagined rows, equation 10."""
        key = jax.random.fold_in(given.key, 1)
        apart = self.inconsistency(given.agent, state.agent, key, given.imagined, given.world)
        return lowered(state, given, self.penalty * apart)

    def inconsistency(
        self, agent: Agent, state: SacState, key: jax.Array, batch: Transitions, world: Rolled
    ) -> jax.Array:
        """`std_e mean_j min_i Q'_i(s'_ej, a'_ej)` over elites e, `[B]`; section 4.

        Args:
            agent, state: whose target critics value next states, at its own actions.
            key: consumed.
            batch: `[B]` rows.
            world: that imagines the next states.
        """

        def once(key: jax.Array) -> jax.Array:
            return imagined_values(agent, state, key, batch, world, self.sample_noise)[1]

        estimates = jax.vmap(once)(jax.random.split(key, self.num_samples)).mean(0)
        return jax.lax.stop_gradient(bellman_spread(estimates))


def lowered(state: Learning, given: Given, penalty: jax.Array) -> Learned:
    """SAC's step with a penalty, `[B]`, off the targets of imagined rows."""
    penalty = jnp.concatenate([jnp.zeros(len(given.real.rewards)), penalty])
    moved, metrics = given.agent.update(state.agent, given.key, given.batch, penalty)
    return state._replace(agent=moved), metrics


def imagined_values(
    agent: Agent, state: SacState, key: jax.Array, batch: Transitions, world: Rolled, noise: Noise
) -> tuple[EliteSamples, jax.Array]:
    """A next state of every elite and `min_i Q'_i` there, `[E, B]`; arguments as of
    `Mobile.inconsistency`, and the `noise` of the elites' samples."""

    def act(key: jax.Array, observations: jax.Array) -> jax.Array:
        assert agent.sample is not None
        return agent.sample(state.actor, key, observations)[0]

    model_key, action_key = jax.random.split(key)
    imagined = world.sample_elites(model_key, batch.observations, batch.actions)
    # One action key for all elites where only their predictions should differ.
    of_elites = jax.vmap(act, (None, 0)) if noise == "common" else act
    actions = of_elites(action_key, imagined.next_observations)
    rows = [x.reshape(-1, x.shape[-1]) for x in (imagined.next_observations, actions)]
    value = agent.q(state.target_critic, *rows).min(0)
    return imagined, value.reshape(imagined.rewards.shape)

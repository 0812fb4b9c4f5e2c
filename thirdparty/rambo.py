"""RAMBO (Rigter et al. 2022, arXiv:2204.12581), as another package would bring it.

The world model is moved towards one in which the policy is worth less, while it fits the data.
"""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import coefficient, positive, step_size
from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.offline.agents.agent import Agent
from jaxrl_rollouts.offline.data import Transitions, sample_batch
from jaxrl_rollouts.offline.methods.model_based import (
    Imagination,
    Learning,
    ModelBased,
    Rolled,
)


class Adversary(NamedTuple):
    """The world model of a seed, and what its optimiser remembers."""

    world: Any
    moments: optax.OptState


@dataclass(frozen=True, kw_only=True)
class Rambo(ModelBased):
    """RAMBO's settings.

    Attributes:
        adversary: lambda, the weight of what the adversary gains beside the likelihood.
        adversary_rate: learning rate (Adam).
        adversary_steps: of the world model, before every epoch.
    """

    name: ClassVar[str] = "rambo"
    adversary: float = coefficient(3e-4, least=0)
    adversary_rate: float = step_size(3e-4)
    adversary_steps: int = positive(1000)

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.adversary_rate)

    def begin(self, agent: Agent, key: jax.Array, data: Imagination) -> Adversary:
        return Adversary(data.world, self.optimiser().init(data.world.elites))

    def rolled(self, state: Learning, world: Any) -> Any:
        return state.extra.world

    def before(
        self, agent: Agent, state: Learning, key: jax.Array, real: Transitions, world: Rolled
    ) -> Learning:
        """Steps of the world model against the policy, algorithm 1."""

        def step(adversary: Adversary, key: jax.Array) -> tuple[Adversary, None]:
            loss = functools.partial(self.loss, agent, state.agent, world.dynamics, real, key)
            elites, moments, _, _ = descend(
                self.optimiser(), loss, adversary.world.elites, adversary.moments, adversary.world
            )
            return Adversary(adversary.world._replace(elites=elites), moments), None

        keys = jax.random.split(key, self.adversary_steps)
        return state._replace(extra=jax.lax.scan(step, state.extra, keys)[0])

    def loss(
        self, agent: Agent, sac: Any, dynamics: Any, rows: Transitions, key: jax.Array,
        elites: Any, world: Any,
    ) -> tuple[jax.Array, None]:  # fmt: skip
        """`lambda E[(r + gamma V(s') - Q(s, a)) log p(s', r | s, a)] - E_D[log p]`; eqs. 6-8."""
        row_key, act_key, draw_key, next_key = jax.random.split(key, 4)
        real, model = sample_batch(rows, row_key, self.batch_size), world._replace(elites=elites)
        seen = real.observations
        assert agent.sample is not None, "a policy with a density"
        actions, _ = agent.sample(sac.actor, act_key, seen)
        guess = dynamics.predict(model, seen, actions)
        drawn = jax.lax.stop_gradient(guess.sample(draw_key))  # [E, B, S + 1]
        following, rewards = seen + drawn[..., :-1], drawn[..., -1]
        flat = following.reshape(-1, following.shape[-1])
        after, _ = agent.sample(sac.actor, next_key, flat)
        value = agent.q(sac.critic, flat, after).min(0).reshape(rewards.shape)
        gain = rewards + self.discount * value - agent.q(sac.critic, seen, actions).min(0)
        change = jnp.concatenate([real.next_observations - seen, real.rewards[:, None]], -1)
        told = log_prob(dynamics.predict(model, seen, real.actions), change).mean()
        harm = (jax.lax.stop_gradient(gain) * log_prob(guess, drawn)).mean()
        return self.adversary * harm - told, None


def log_prob(normal: Gaussian, x: jax.Array) -> jax.Array:
    """Up to a constant, `[E, B]`."""
    return (-0.5 * jnp.square((x - normal.mean) / normal.std) - jnp.log(normal.std)).sum(-1)

"""RAMBO (Rigter et al. 2022, arXiv:2204.12581): a zero-sum game of policy and world model.

Before every epoch the model takes gradient steps towards transitions of low advantage, while it
still fits the data. With `adversary` 0 the model stays as it was fitted, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import chosen, coefficient, fraction, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS
from ..agents.sac import SacConfig
from ..data import Transitions, sample_batch
from ..method import Agent, AgentConfig
from ..worlds.dynamics import Rolled
from .model_based import Imagination, Learning, ModelBased


class Adversary(NamedTuple):
    """The world model of a seed, and its optimiser's moments."""

    world: Any
    moments: optax.OptState


def rambo_agent() -> SacConfig:
    """SAC as RAMBO's authors have it."""
    return SacConfig(hidden_dims=(256, 256), actor_lr=1e-4)


@dataclass(frozen=True, kw_only=True)
class Rambo(ModelBased):
    """RAMBO's settings; its agent is `sac` or `edac`.

    Attributes:
        adversary: lambda, weight of the advantage beside the likelihood; 0 leaves the model alone.
        adversary_lr: learning rate of the model (Adam).
        adversary_steps: gradient steps of the model before every epoch.
    """

    name: ClassVar[str] = "rambo"
    agent: AgentConfig = chosen(AGENTS, rambo_agent)
    steps: int = positive(2_000_000)
    real_ratio: float = fraction(0.5)
    adversary: float = coefficient(3e-4, least=0)
    adversary_lr: float = step_size(3e-4)
    adversary_steps: int = positive(1000)

    def validate(self) -> None:
        if not isinstance(self.agent, SacConfig):
            found = type(self.agent).__name__
            raise ConfigError("agent", found, "sac or edac, whose policy has a density")

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.adversary_lr)

    def begin(self, agent: Agent, key: jax.Array, data: Imagination) -> Adversary:
        return Adversary(data.world, self.optimiser().init(data.world.elites))

    def rolled(self, state: Learning, world: PyTree) -> PyTree:
        return state.extra.world

    def before(
        self, agent: Agent, state: Learning, key: jax.Array, real: Transitions, world: Rolled
    ) -> Learning:
        """Gradient steps of the world model against the policy, algorithm 1."""

        def step(adversary: Adversary, key: jax.Array) -> tuple[Adversary, None]:
            now = world._replace(world=adversary.world)
            elites, moments, _, _ = gradient_step(
                self.optimiser(),
                self.model_loss,
                adversary.world.elites,
                adversary.moments,
                agent,
                state.agent,
                key,
                real,
                now,
            )
            return Adversary(adversary.world._replace(elites=elites), moments), None

        keys = jax.random.split(key, self.adversary_steps)
        moved, _ = jax.lax.scan(step, state.extra, keys)
        moves = self.adversary > 0
        extra = jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, state.extra)
        return state._replace(extra=extra)

    def model_loss(
        self,
        elites: PyTree,
        agent: Agent,
        sac: Any,
        key: jax.Array,
        rows: Transitions,
        world: Rolled,
    ) -> tuple[jax.Array, None]:
        """`lambda mean (A log p_mix(s', r | s, a)) - mean_D log p`; equations 6 to 8.

        `A = r + gamma (1 - d) min Q(s', pi(s')) - min Q(s, a)` is standardised over the batch;
        neither it nor the drawn `(s', r)` has a gradient. `p_mix` is the mean over elites.
        """
        row_key, path_key, draw_key = jax.random.split(key, 3)
        model = world.world._replace(elites=elites)
        real = sample_batch(rows, row_key, self.batch_size)
        seen, actions = self.visited(agent, sac, path_key, real.observations, world)
        mixture = predicted(world, model, seen, actions)
        drawn, advantage = self.advantage(agent, sac, draw_key, seen, actions, world)
        harm = advantage * jax.nn.logsumexp(log_prob(mixture, drawn), axis=0)
        change = real.next_observations - real.observations
        change = jnp.concatenate([change, real.rewards[:, None]], -1)
        fit = log_prob(predicted(world, model, real.observations, real.actions), change).mean()
        return self.adversary * harm.mean() - fit, None

    def visited(
        self, agent: Agent, sac: Any, key: jax.Array, starts: jax.Array, world: Rolled
    ) -> tuple[jax.Array, jax.Array]:
        """States and actions of the policy in the model, `[B, S]` and `[B, A]`: of each rollout
        from a start one step, ends notwithstanding."""
        roll_key, time_key = jax.random.split(key)
        observations, actions = world.rollout(
            starts,
            roll_key,
            horizon=self.rollouts.length,
            policy=agent.policy,
            policy_params=sac.actor,
            stop_at_termination=False,
            record=lambda step: (step.observations, step.actions),
        ).steps
        time = jax.random.randint(time_key, (len(starts),), 0, self.rollouts.length)
        at = time, jnp.arange(len(starts))
        return jax.lax.stop_gradient(observations[at]), jax.lax.stop_gradient(actions[at])

    def advantage(
        self,
        agent: Agent,
        sac: Any,
        key: jax.Array,
        seen: jax.Array,
        actions: jax.Array,
        world: Rolled,
    ) -> tuple[jax.Array, jax.Array]:
        """Drawn changes and rewards `[B, S + 1]`, and their standardised advantages `[B]`."""
        model_key, member_key, act_key = jax.random.split(key, 3)
        every = world.sample_elites(model_key, seen, actions)
        member = jax.random.randint(member_key, (len(seen),), 0, len(every.rewards))
        own = member, jnp.arange(len(seen))
        following, rewards = every.next_observations[own], every.rewards[own]
        after, _ = agent.greedy(sac.actor, act_key, following, ())
        alive = 1.0 - every.terminations[own].astype(jnp.float32)
        value = agent.q(sac.critic, following, after).min(0)
        gain = rewards + self.agent.discount * alive * value
        gain = gain - agent.q(sac.critic, seen, actions).min(0)
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        drawn = jnp.concatenate([following - seen, rewards[:, None]], -1)
        return jax.lax.stop_gradient(drawn), jax.lax.stop_gradient(gain)


def predicted(world: Rolled, model: Any, seen: jax.Array, actions: jax.Array) -> Gaussian:
    """Every elite's normal over change and reward, `[E, B, S + 1]`."""
    assert world.dynamics.predict is not None, "dynamics with a density"
    return world.dynamics.predict(model, seen, actions)


def log_prob(normal: Gaussian, x: jax.Array) -> jax.Array:
    """Of `x [B, S + 1]` under every elite, up to a constant, `[E, B]`."""
    return (-0.5 * jnp.square((x - normal.mean) / normal.std) - jnp.log(normal.std)).sum(-1)

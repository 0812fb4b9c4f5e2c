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
from jaxrl_rollouts.rollouts import Step
from jaxrl_rollouts.trees import PyTree, row

from ..agents import AGENTS
from ..agents.critics import bootstrapped
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
        """Gradient steps of the world model against the policy, algorithm 1: one for every step of
        rollouts that begin in states of the dataset and go on after an end."""
        nets = state.agent
        begins = jnp.arange(self.adversary_steps) % self.rollouts.length == 0

        def step(
            carry: tuple[Adversary, jax.Array], given: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[Adversary, jax.Array], None]:
            (adversary, seen), (key, begin) = carry, given
            start_key, roll_key, act_key, row_key = jax.random.split(key, 4)
            now = world._replace(world=adversary.world)
            seen = jnp.where(begin, self.starts(start_key, real, self.batch_size), seen)
            trajectory = now.rollout(
                seen,
                roll_key,
                horizon=1,
                policy=agent.policy,
                policy_params=nets.actor,
                stop_at_termination=False,
            )
            taken = row(trajectory.steps, 0)
            gain = self.advantage(agent, nets, act_key, taken)
            batch = sample_batch(real, row_key, self.batch_size)
            parts = batch, taken, gain, now
            elites, moments, _, _ = gradient_step(
                self.optimiser(), self.model_loss, now.world.elites, adversary.moments, *parts
            )
            moved = Adversary(now.world._replace(elites=elites), moments)
            return (moved, taken.next_observations), None

        keys = jax.random.split(key, self.adversary_steps)
        nowhere = jnp.zeros((self.batch_size, *real.observations.shape[1:]))
        (moved, _), _ = jax.lax.scan(step, (state.extra, nowhere), (keys, begins))
        moves = self.adversary > 0
        extra = jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, state.extra)
        return state._replace(extra=extra)

    def model_loss(
        self, elites: PyTree, real: Transitions, taken: Step, gain: jax.Array, world: Rolled
    ) -> tuple[jax.Array, None]:
        """`lambda mean (A log p_mix(s', r | s, a)) - mean_D log p`; equations 6 to 8.

        `p_mix` is the mean over elites, of imagined steps `taken` `[B]`; `gain` `[B]` is A.
        """
        assert world.dynamics.predict is not None, "dynamics with a density"
        # One pass for both parts.
        seen, actions, after, rewards = (
            jnp.concatenate([getattr(rows, name) for rows in (taken, real)])
            for name in ("observations", "actions", "next_observations", "rewards")
        )
        normal = world.dynamics.predict(world.world._replace(elites=elites), seen, actions)
        density = log_prob(normal, jnp.concatenate([after - seen, rewards[:, None]], -1))
        harm = gain * jax.nn.logsumexp(density[:, : len(gain)], axis=0)
        return self.adversary * harm.mean() - density[:, len(gain) :].mean(), None

    def advantage(self, agent: Agent, sac: Any, key: jax.Array, taken: Step) -> jax.Array:
        """`A = r + gamma (1 - d) min Q(s', pi(s')) - min Q(s, a)`, standardised over the batch."""
        after, _ = agent.greedy(sac.actor, key, taken.next_observations, ())
        following = agent.q(sac.critic, taken.next_observations, after).min(0)
        gain = bootstrapped(taken, self.agent.discount, following)
        gain = gain - agent.q(sac.critic, taken.observations, taken.actions).min(0)
        return (gain - gain.mean()) / (gain.std() + 1e-6)


def log_prob(normal: Gaussian, x: jax.Array) -> jax.Array:
    """Of `x [B, S + 1]` under every elite, up to a constant, `[E, B]`."""
    return (-0.5 * jnp.square((x - normal.mean) / normal.std) - jnp.log(normal.std)).sum(-1)

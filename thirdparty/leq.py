"""LEQ's targets (Park & Lee 2025, arXiv:2407.00699), as another package would bring them: lower
expectiles of lambda-returns along whole imagined trajectories, which the buffer keeps as they are.

The policy's gradient is SAC's here, where the paper's goes through the lambda-returns.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import coefficient, fraction
from jaxrl_rollouts.offline.agents import soft
from jaxrl_rollouts.offline.agents.agent import Agent
from jaxrl_rollouts.offline.agents.iql import expectile_loss
from jaxrl_rollouts.offline.agents.sac import bellman_target
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.methods.model_based import Learning, ModelBased, Rolled
from jaxrl_rollouts.rollouts import Step, Trajectory


@dataclass(frozen=True, kw_only=True)
class Leq(ModelBased):
    """LEQ's settings.

    Attributes:
        expectile: tau, below one half: how pessimistic values of imagined steps are.
        decay: lambda of the returns.
        model_weight: beta, of the loss on imagined trajectories beside that on the data.
    """

    name: ClassVar[str] = "leq"
    expectile: float = coefficient(0.1, above=0, below=1)
    decay: float = coefficient(0.95, least=0, most=1)
    model_weight: float = coefficient(0.25, least=0, most=1)
    real_fraction: float = fraction(0.5)

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[Step, jax.Array]:
        """Trajectories `[B, T, ...]` as entries of the buffer."""
        steps = trajectory.steps._replace(valid=trajectory.valid)
        whole = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
        return whole, jnp.ones(whole.rewards.shape[:1], bool)

    def learn(
        self,
        agent: Agent,
        state: Learning,
        key: jax.Array,
        real: Transitions,
        imagined: Step,
        world: Rolled,
        **moves: bool,
    ) -> tuple[Learning, dict[str, jax.Array]]:
        nets, sac = agent.nets, state.agent
        actor_key, real_key, next_key = jax.random.split(key, 3)
        sac, acted = soft.actor_step(nets, sac, actor_key, real)
        target = bellman_target(nets, sac, real_key, real)
        following = imagined.next_observations.reshape(-1, real.observations.shape[-1])
        value = soft.soft_value(nets, sac, next_key, following).reshape(imagined.rewards.shape)
        returns = lambda_returns(imagined, value, self.discount, self.decay)
        more = imagined, jax.lax.stop_gradient(returns), self
        sac, learned = soft.critic_step(nets, sac, critic_loss, real, target, *more)
        return state._replace(agent=sac), {**acted, **learned}


def lambda_returns(steps: Step, value: jax.Array, discount: float, decay: Any) -> jax.Array:
    """`R_t = r_t + gamma ((1 - lambda) V(s_{t+1}) + lambda R_{t+1})`, `[B, T]`."""

    def back(after: jax.Array, now: tuple) -> tuple[jax.Array, jax.Array]:
        reward, value, ended, cut = now
        mixed = jnp.where(cut, value, (1 - decay) * value + decay * after)
        found = reward + discount * jnp.where(ended, 0.0, mixed)
        return found, found

    over = (steps.rewards, value, steps.terminations, steps.truncations)
    backwards = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1)[::-1], over)
    return jnp.swapaxes(jax.lax.scan(back, value[:, -1], backwards)[1][::-1], 0, 1)


def critic_loss(
    critic: Any, nets: Any, real: Transitions, target: jax.Array, steps: Step,
    returns: jax.Array, leq: Leq,
) -> tuple[jax.Array, dict[str, jax.Array]]:  # fmt: skip
    """`(1 - beta) sum_i mean (Q_i - target)^2 + beta sum_i E_tau(returns - Q_i)`; equations 5-7."""
    values = soft.q(nets, critic, real.observations, real.actions)
    fit = jnp.square(values - target).mean(1).sum()
    rows = (x.reshape(-1, x.shape[-1]) for x in (steps.observations, steps.actions))
    gap = returns.reshape(-1) - soft.q(nets, critic, *rows)
    low = expectile_loss(gap, leq.expectile).mean(1, where=steps.valid.reshape(-1)).sum()
    loss = (1 - leq.model_weight) * fit + leq.model_weight * low
    return loss, {"critic_loss": fit / len(values), "expectile_loss": low, "q_mean": values.mean()}

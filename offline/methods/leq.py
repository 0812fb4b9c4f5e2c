"""LEQ (Park and Lee 2025, arXiv:2407.00699): lower expectiles of lambda-returns in the model.

Every gradient step rolls the policy `horizon` steps from states of earlier rollouts. The critic
regresses the lambda-returns of all steps by a lower expectile, in the place of an ensemble or a
penalty; the policy ascends the same returns through the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import chosen, coefficient, fraction, positive
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.ensemble import safe_min
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS
from ..agents.critics import bootstrapped
from ..agents.iql import expectile_loss
from ..agents.leq import LeqConfig
from ..data.transitions import RewardView
from ..method import Agent, AgentConfig, Scaled
from ..worlds.fit import WorldModelConfig
from .model_based import Given, Learned, Learning, ModelBased


class Path(NamedTuple):
    """Imagined steps and the state after them.

    Attributes:
        observations, actions: `[H + 1, B, ...]`.
        rewards, terminations: `[H, B]`.
        alive: `[H + 1, B]` bool, no episode ended before.
    """

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    terminations: jax.Array
    alive: jax.Array


@dataclass(frozen=True, kw_only=True)
class Leq(ModelBased):
    """LEQ's settings. Rollouts extend the dataset's states; their rewards are not used.

    Attributes:
        expectile: tau, of the returns; below one half it is pessimistic.
        decay: lambda of the returns.
        model_weight: beta, of the imagined steps in the critic's loss.
        horizon: H, imagined steps of a gradient step.
    """

    name: ClassVar[str] = "leq"
    agent: AgentConfig = chosen(AGENTS, LeqConfig)
    world: WorldModelConfig = WorldModelConfig(targets="raw")
    steps: int = positive(1_000_000)
    batch_size: int = positive(512)
    real_ratio: float = fraction(0.5)
    reward: RewardView = "iql"
    expectile: float = coefficient(0.1, above=0, below=1)
    decay: float = coefficient(0.95, above=0, most=1)
    model_weight: float = coefficient(0.25, least=0, most=1)
    horizon: int = positive(10)

    def validate(self) -> None:
        if not isinstance(self.agent, LeqConfig):
            expected = "leq: a deterministic policy and critics"
            raise ConfigError("agent", type(self.agent).__name__, expected)
        if not 0 < self.real_ratio < 1:
            raise ConfigError("real_ratio", self.real_ratio, "between 0 and 1: it needs both parts")

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """Both networks, each with the other from before the step, in rollouts of their own."""
        agent, td3, scaler = given.agent, state.agent, state.agent.actor.scaler
        nets = agent.nets
        actor_key, critic_key = jax.random.split(given.key)
        still = jnp.zeros((self.horizon + 1, *given.imagined.actions.shape))
        path, pull = self.ascent(td3, given, actor_key, still)
        actor, opt_actor, _, _ = gradient_step(
            nets.learn_actor, actor_loss, td3.actor.net, td3.opt_actor, agent, scaler, path, pull
        )
        path = self.path(td3, given, critic_key, still)
        critic, opt_critic, fit, metrics = gradient_step(
            nets.learn_critic, self.critic_loss, td3.critic.net, td3.opt_critic, td3, given, path
        )
        td3 = td3._replace(
            actor=Scaled(actor, scaler),
            critic=Scaled(critic, scaler),
            target_actor=actor,
            target_critic=optax.incremental_update(critic, td3.target_critic, nets.config.tau),
            opt_actor=opt_actor,
            opt_critic=opt_critic,
        )
        return state._replace(agent=td3), {"critic_loss": fit, **metrics}

    def path(self, td3: Any, given: Given, key: jax.Array, shifts: jax.Array) -> Path:
        """The mean policy in the model from the imagined rows' states, its actions moved by
        `shifts` `[H + 1, B, A]`."""
        starts, greedy = given.imagined.observations, given.agent.greedy
        rows = jnp.arange(len(starts))

        def act(actor: Any, key: jax.Array, seen: jax.Array, time: jax.Array) -> tuple:
            return greedy(actor, key, seen, ())[0] + shifts[time, rows], time + 1

        found = given.world.rollout(
            starts,
            key,
            self.rollouts.member,
            horizon=self.horizon,
            policy=act,
            policy_params=td3.actor,
            memory=jnp.zeros(len(starts), jnp.int32),
        )
        steps = found.steps
        last = steps.next_observations[-1]
        action = greedy(td3.actor, key, last, ())[0] + shifts[-1]
        alive = found.valid[-1] & ~steps.terminations[-1]
        return Path(
            jnp.concatenate([steps.observations, last[None]]),
            jnp.concatenate([steps.actions, action[None]]),
            steps.rewards,
            steps.terminations,
            jnp.concatenate([found.valid, alive[None]]),
        )

    def ascent(
        self, td3: Any, given: Given, key: jax.Array, still: jax.Array
    ) -> tuple[Path, jax.Array]:
        """A path, and `w_t dY_t / da_t` of it, `[H + 1, B, A]`; zero after an end.

        `w_t` is tau where the return is above the value, else 1 - tau; 1/2 at the last step. Every
        derivative is in that of `Y_0`: an action after t is in `Y_0` by `Y_t` alone, whose share
        is the product of `gamma lambda W_{i + 1} / W_i` over i < t.
        """

        def first(shifts: jax.Array) -> tuple[jax.Array, tuple]:
            path = self.path(td3, given, key, shifts)
            values = safe_min(given.agent.q(td3.critic, path.observations, path.actions))
            returns = lambda_returns(values, path, self.agent.discount, self.decay)
            return returns[0].sum(), (path, values, returns)

        slope, (path, values, returns) = jax.grad(first, has_aux=True)(still)
        weights = return_weights(self.horizon, self.decay)
        shares = jnp.cumprod(self.agent.discount * self.decay * weights[1:] / weights[:-1])
        shares = jnp.concatenate([jnp.ones(1), shares])[:, None]
        asymmetric = jnp.where(returns > values, self.expectile, 1.0 - self.expectile)
        asymmetric = asymmetric.at[-1].set(0.5) * path.alive / shares
        return jax.lax.stop_gradient((path, slope * asymmetric[..., None]))

    def critic_loss(
        self, net: PyTree, td3: Any, given: Given, path: Path
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """`(1 - beta) mean (Q - y)^2 / 2 + beta mean_t gamma^t alive_t E_tau(Y_t - Q_t)`, and the
        squared distance from the slow critics, weighted alike; the sum over critics.

        `y = r + gamma (1 - d) Q(s', pi(s'))`. Neither it nor `Y_t` has slow critics.
        """
        agent, real, gamma = given.agent, given.real, self.agent.discount
        scaler = td3.critic.scaler
        slow = Scaled(td3.target_critic, scaler)
        after, _ = agent.greedy(td3.actor, jax.random.key(0), real.next_observations, ())
        following = agent.q(td3.critic, real.next_observations, after).min(0)
        target = bootstrapped(real, gamma, following)
        returns = agent.q(td3.critic, path.observations, path.actions).min(0)
        returns = lambda_returns(returns, path, gamma, self.decay)[:-1]
        fading = gamma ** jnp.arange(self.horizon)[:, None] * path.alive[:-1]
        logged = real.observations, real.actions
        seen = path.observations[:-1], path.actions[:-1]
        value, rolled = (agent.q(Scaled(net, scaler), *x) for x in (logged, seen))
        fit = 0.5 * jnp.square(value - target).mean(1)
        low = (fading * expectile_loss(returns - rolled, self.expectile)).mean((1, 2))
        near = jnp.square(value - agent.q(slow, *logged)).mean(1)
        near_rolled = (fading * jnp.square(rolled - agent.q(slow, *seen))).mean((1, 2))
        beta = self.model_weight
        loss = (1 - beta) * (fit + near) + beta * (low + near_rolled)
        return loss.sum(), {
            "expectile_loss": low.mean(),
            "lambda_return": returns.mean(),
            "q_mean": value.mean(),
            "target_mean": target.mean(),
        }


def return_weights(horizon: int, decay: jax.Array | float) -> jax.Array:
    """`W_i = 1 + lambda W_{i + 1}`, `W_H = 1`: `[H + 1]`."""
    return jnp.cumsum(jnp.asarray(decay) ** jnp.arange(horizon + 1))[::-1]


def lambda_returns(
    values: jax.Array, path: Path, discount: float, decay: jax.Array | float
) -> jax.Array:
    """`Y_i = (Q_i + lambda W_{i + 1} (r_i + gamma (1 - d_i) Y_{i + 1})) / W_i`, `Y_H = Q_H`.

    That is the mean of the returns of 0 to H - i steps, Q_i among them, weighted by lambda^k.

    Args:
        values: `[H + 1, B]`, of the path's actions.
        path: for its rewards and ends.
        discount, decay: gamma and lambda.
    """
    weights = return_weights(len(values) - 1, decay)

    def back(after: jax.Array, now: tuple) -> tuple[jax.Array, jax.Array]:
        value, reward, ended, own, later = now
        ahead = reward + discount * jnp.where(ended, 0.0, after)
        found = (value + decay * later * ahead) / own
        return found, found

    over = values[:-1], path.rewards, path.terminations, weights[:-1], weights[1:]
    found = jax.lax.scan(back, values[-1], over, reverse=True)[1]
    return jnp.concatenate([found, values[-1:]])


def actor_loss(
    net: PyTree, agent: Agent, scaler: Any, path: Path, pull: jax.Array
) -> tuple[jax.Array, None]:
    """`-mean_b sum_t <w_t dY_t / da_t, pi(s_t)>`; states and derivatives stay."""
    actions, _ = agent.greedy(Scaled(net, scaler), jax.random.key(0), path.observations, ())
    return -(pull * actions).sum((0, 2)).mean(), None

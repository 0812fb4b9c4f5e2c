"""Implicit Q-learning (Kostrikov et al. 2022, arXiv:2110.06169): no action outside the data.

A state value is an upper expectile of the critics at the data's own actions, critics bootstrap
from it, and the policy imitates the data weighted by the exponential of their advantage.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, coefficient, number, step_size
from jaxrl_rollouts.descent import falling, gradient_step
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..data.transitions import RewardView
from ..method import Agent, Scaled, bound
from .actors import inputs
from .critics import ValueConfig, bootstrapped, critic_step, q
from .model_free import ModelFree

LOG_STD_RANGE = (-5.0, 2.0)
# `(value, nets, normalised observations [B, S], lowest [B]) -> (loss, None)`, as `value_loss` here.
ValueLoss = Callable[[PyTree, Any, jax.Array, jax.Array], tuple[jax.Array, None]]


@dataclass(frozen=True)
class IqlConfig(ValueConfig):
    """Hyper-parameters; defaults are the paper's for locomotion.

    Attributes:
        dropout_rate: share of the actor's hidden units, each layer's after its activation, that are
            0 while it learns (0.1 on Adroit and Kitchen).
        expectile: tau (0.9 on AntMaze).
        beta: beta: how strongly advantages weigh the imitation (10 on AntMaze).
        exp_adv_max: greatest weight.
        value_lr: learning rate of the state value (Adam).
        cosine: the actor's rate falls to zero along a cosine over the training.
    """

    dropout_rate: float = number(0.0, least=0, below=1)
    expectile: float = coefficient(0.7, above=0, below=1)
    beta: float = coefficient(3.0, least=0)
    exp_adv_max: float = number(100.0, above=0)
    value_lr: float = step_size(3e-4)
    cosine: bool = True

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_iql(self, observation_size, action_size, steps if self.cosine else None)


class IqlState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: Scaled
    critic: Scaled
    value: PyTree
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_value: optax.OptState


class TanhMean(nn.Module):
    """Mean in (-1, 1) by an MLP; a standard deviation that does not depend on the state.

    With a key as the second input each hidden unit `h` is `h / (1 - p)` with probability `1 - p`,
    else 0, for the dropout rate `p`; one mask for each row.
    """

    hidden_dims: tuple[int, ...]
    actions: int
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self, observations: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        activation, rate = nn.relu, self.dropout_rate
        if key is not None and rate:
            keys = iter(jax.random.split(key, len(self.hidden_dims)))

            def activation(x: jax.Array) -> jax.Array:
                kept = draws.uniform(next(keys), x.shape) >= rate
                return jnp.where(kept, nn.relu(x) / (1.0 - rate), 0.0)

        mean = jnp.tanh(MLP(self.hidden_dims, (self.actions,), activation)(observations))
        log_std = self.param("log_std", nn.initializers.zeros, (self.actions,))
        return mean, jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE))


def expectile_loss(difference: jax.Array, expectile: float) -> jax.Array:
    """`|tau - 1(u < 0)| u^2`, elementwise."""
    return jnp.where(difference < 0, 1.0 - expectile, expectile) * jnp.square(difference)


def normal_log_prob(actions: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Of `[..., A]` actions under a normal that is not squashed, `[...]`."""
    scaled = jnp.square((actions - mean) / std)
    return (-0.5 * scaled - jnp.log(std) - 0.5 * math.log(2.0 * math.pi)).sum(-1)


class IqlNets(NamedTuple):
    """Networks and optimisers of one configuration."""

    config: IqlConfig
    observation_size: int
    actor: Network
    value: Network
    critics: Ensemble
    learn_actor: optax.GradientTransformation
    learn_value: optax.GradientTransformation
    learn_critic: optax.GradientTransformation
    value_loss: ValueLoss


@functools.lru_cache(maxsize=32)
def make_iql(
    config: IqlConfig,
    observation_size: int,
    action_size: int,
    steps: int | None = None,
    value_loss: ValueLoss | None = None,
) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    Args:
        value_loss: in place of this module's, of the same arguments and results.
    """
    check(config)
    s, a = inputs(observation_size, action_size)
    norm = config.critic_norm
    values = MLP(config.hidden_dims, (1,), layer_norm=norm, norm_after=norm)
    nets = IqlNets(
        config,
        observation_size,
        from_linen(TanhMean(config.hidden_dims, action_size, config.dropout_rate), s),
        from_linen(values, s),
        ensemble(from_linen(values, s, a), config.num_critics),
        optax.adam(falling(config.actor_lr, steps)),
        optax.adam(config.value_lr),
        optax.adam(config.critic_lr),
        value_loss or expectile_value_loss,
    )
    acts = bound(nets, init=init, update=update, policy=policy, greedy=greedy, q=q)
    return Agent(**acts, **bound(nets, gaussian=gaussian), normalise=config.normalize_obs)


def init(nets: IqlNets, key: jax.Array, scaler: Scaler | None = None) -> IqlState:
    """A fresh state that sees observations through `scaler`."""
    actor_key, critic_key, value_key = jax.random.split(key, 3)
    actor, critic = nets.actor.init(actor_key), nets.critics.init(critic_key)
    value = nets.value.init(value_key)
    scaler = scaler or identity_scaler(nets.observation_size)
    return IqlState(
        Scaled(actor, scaler),
        Scaled(critic, scaler),
        value,
        critic,
        nets.learn_actor.init(actor),
        nets.learn_critic.init(critic),
        nets.learn_value.init(value),
    )


def gaussian(nets: IqlNets, actor: Scaled, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of the policy, `[..., A]` and `[A]`."""
    return nets.actor.apply(actor.net, actor.scaler.normalise(observations))


def policy(
    nets: IqlNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """A sample of the normal, clipped to the action space."""
    mean, std = gaussian(nets, actor, observation)
    return jnp.clip(mean + std * draws.normal(key, mean.shape), -1.0, 1.0), memory


def greedy(
    nets: IqlNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The mean."""
    del key
    return gaussian(nets, actor, observation)[0], memory


def state_value(nets: Any, value: PyTree, normalised: jax.Array) -> jax.Array:
    """V of normalised observations, `[B]`."""
    return nets.value.apply(value, normalised)[..., 0]


def value_loss(
    value: PyTree, nets: Any, normalised: jax.Array, lowest: jax.Array
) -> tuple[jax.Array, None]:
    """`mean L_tau(min_i Q'_i(s, a) - V(s))`, an upper expectile; equation 5."""
    difference = lowest - state_value(nets, value, normalised)
    return expectile_loss(difference, nets.config.expectile).mean(), None


expectile_value_loss = value_loss  # `make_iql` has an argument of that name


def imitation_weight(config: IqlConfig, advantage: jax.Array) -> jax.Array:
    """`exp(beta advantage)`, at most `exp_adv_max`; equation 7."""
    # The exponent is bounded rather than the weight: exp could be infinite before the clip.
    return jnp.exp(jnp.minimum(config.beta * advantage, math.log(config.exp_adv_max)))


def actor_loss(
    actor: PyTree,
    nets: IqlNets,
    key: jax.Array,
    normalised: jax.Array,
    actions: jax.Array,
    weight: jax.Array,
) -> tuple[jax.Array, None]:
    """`-mean weight log pi(a | s)` over the data's actions; equation 7. `key` is of the dropout."""
    head = nets.actor.apply(actor, normalised, key)
    return -(weight * normal_log_prob(actions, *head)).mean(), None


def bellman_target(nets: Any, value: PyTree, normalised: jax.Array, batch: Any) -> jax.Array:
    """`r + gamma (1 - d) V(s')`, `[B]`; equation 6. `normalised` are the next observations."""
    return bootstrapped(batch, nets.config.discount, state_value(nets, value, normalised))


def update(
    nets: IqlNets, state: IqlState, key: jax.Array, batch: Any
) -> tuple[IqlState, dict[str, jax.Array]]:
    """One gradient step: the value, then actor and critics with the new value (the authors' order).

    CORL's actor and critics see the value from before the step, so that its losses differ by that.
    The key is of the actor's dropout.
    """
    config, scaler, actions = nets.config, state.actor.scaler, batch.actions
    now, after = (scaler.normalise(x) for x in (batch.observations, batch.next_observations))
    slow = Scaled(state.target_critic, scaler)
    lowest = q(nets, slow, batch.observations, actions).min(0)
    value, opt_value, value_fit, _ = gradient_step(
        nets.learn_value, nets.value_loss, state.value, state.opt_value, nets, now, lowest
    )
    advantage = lowest - state_value(nets, value, now)
    weight = imitation_weight(config, advantage)
    batched = nets, key, now, actions, weight
    moved, opt_actor, actor_fit, _ = gradient_step(
        nets.learn_actor, actor_loss, state.actor.net, state.opt_actor, *batched
    )
    target = bellman_target(nets, value, after, batch)
    critic, opt_critic, learned = critic_step(nets, state, batch, target)
    metrics = {
        **learned,
        "value_loss": value_fit,
        "actor_loss": actor_fit,
        "advantage": advantage.mean(),
        "weight": weight.mean(),
    }
    state = IqlState(
        Scaled(moved, scaler),
        Scaled(critic, scaler),
        value,
        optax.incremental_update(critic, state.target_critic, config.tau),
        opt_actor,
        opt_critic,
        opt_value,
    )
    return state, metrics


@dataclass(frozen=True, kw_only=True)
class Iql(IqlConfig, ModelFree):
    """Implicit Q-learning on the rows of a dataset."""

    name: ClassVar[str] = "iql"
    reward: RewardView = "iql"

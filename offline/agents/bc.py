"""Behaviour cloning: a deterministic policy, by mean squared error on the data's actions.

The network is TD3+BC's actor, so this is that agent without its critics. The likelihood of a
tanh-squashed normal is the other usual loss; it is infinite at the bounds of the action space,
where many of D4RL's actions lie. There is no critic, so nothing is said of the policy's value.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, layers, number, step_size
from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from .agent import Agent, AgentSpec, Scaled
from .given import Settings


@dataclass(frozen=True)
class BcConfig(Settings):
    """Hyper-parameters; those of TD3+BC's actor.

    Attributes:
        hidden: widths of the policy.
        normalise: observations by their statistics in the dataset.
        actor_rate: learning rate.
        discount: of the value that reports measure; cloning itself has none.
    """

    hidden: tuple[int, ...] = layers((256, 256))
    normalise: bool = True
    actor_rate: float = step_size(3e-4)
    discount: float = number(0.99, least=0, below=1)


class BcState(NamedTuple):
    """Everything the agent learns."""

    actor: Scaled
    opt_actor: optax.OptState


class BcNets(NamedTuple):
    """Network and optimiser of one configuration."""

    observation_size: int
    actor: Network
    learn: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def make_bc(config: BcConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    actor = from_linen(MLP(config.hidden, (action_size,)), s)
    nets = BcNets(observation_size, actor, optax.adam(config.actor_rate))
    act = functools.partial(greedy, nets)
    return Agent(
        functools.partial(init, nets),
        functools.partial(update, nets),
        act,
        act,
        None,
        gaussian=functools.partial(gaussian, nets),
        normalise=config.normalise,
    )


def init(nets: BcNets, key: jax.Array, scaler: Scaler | None = None) -> BcState:
    """A fresh state that sees observations through `scaler`."""
    actor = nets.actor.init(key)
    scaler = scaler or identity_scaler(nets.observation_size)
    return BcState(Scaled(actor, scaler), nets.learn.init(actor))


def action(nets: BcNets, actor: Scaled, observations: jax.Array) -> jax.Array:
    """The policy, `[..., A]`."""
    return jnp.tanh(nets.actor.apply(actor.net, actor.scaler.normalise(observations)))


def greedy(
    nets: BcNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The policy: deterministic in training as in evaluation."""
    del key
    return action(nets, actor, observation), memory


def gaussian(nets: BcNets, actor: Scaled, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unit variance around the action, of which the squared error is the log-likelihood."""
    mean = action(nets, actor, observations)
    return mean, jnp.ones_like(mean)


def actor_loss(
    net: PyTree, nets: BcNets, scaler: Scaler, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`mean (pi(s) - a)^2` over rows and action dimensions."""
    actions = action(nets, Scaled(net, scaler), batch.observations)
    return jnp.square(actions - batch.actions).mean(), {}


def update(
    nets: BcNets, state: BcState, key: jax.Array, batch: Any
) -> tuple[BcState, dict[str, jax.Array]]:
    """One gradient step; nothing is drawn."""
    del key
    scaler = state.actor.scaler
    net, opt_actor, loss, _ = descend(
        nets.learn, actor_loss, state.actor.net, state.opt_actor, nets, scaler, batch
    )
    return BcState(Scaled(net, scaler), opt_actor), {"actor_loss": loss}


AGENT = AgentSpec(BcConfig, make_bc)

"""Behaviour cloning: a deterministic policy by mean squared error, or a flow by flow matching.

The network is TD3+BC's actor, so this is that agent without its critics. The likelihood of a
tanh-squashed normal is the other usual loss; it is infinite at the bounds of the action space,
where many of D4RL's actions lie. There is no critic, so the policy's value is not estimated.

Where the data do several things in one state their mean may be none of them. With `flow_steps` the
policy is a flow instead: a velocity learned by `flow_loss` (Lipman et al. 2023, arXiv:2210.02747)
carries normal noise to the data's actions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled, bound
from .actors import inputs
from .flow_actor import field, follow, make_field
from .model_free import ModelFree
from .td3 import action, gaussian, greedy


@dataclass(frozen=True)
class BcConfig:
    """Hyper-parameters; those of TD3+BC's actor.

    Attributes:
        hidden_dims: widths of the policy.
        normalize_obs: observations by their statistics in the dataset.
        actor_lr: learning rate.
        discount: discount of the reported value; cloning itself has none.
        flow_steps: Euler steps of a flow policy. None: no flow.
    """

    hidden_dims: tuple[int, ...] = layers((256, 256))
    normalize_obs: bool = True
    actor_lr: float = step_size(3e-4)
    discount: float = number(0.99, least=0, below=1)
    flow_steps: int | None = positive(None)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_bc(self, observation_size, action_size)


class BcState(NamedTuple):
    """Everything the agent learns."""

    actor: Scaled
    opt_actor: optax.OptState


class BcNets(NamedTuple):
    """Network and optimiser of one configuration."""

    observation_size: int
    actor: Network
    learn: optax.GradientTransformation
    action_size: int = 0  # these two of a flow
    steps: int = 0


@functools.lru_cache(maxsize=32)
def make_bc(config: BcConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions."""
    check(config)
    if config.flow_steps is not None:
        return _make_flow(config, observation_size, action_size)
    (s,) = inputs(observation_size)
    actor = from_linen(MLP(config.hidden_dims, (action_size,)), s)
    nets = BcNets(observation_size, actor, optax.adam(config.actor_lr))
    own = {"init": init, "update": update, "gaussian": gaussian}
    return Agent(**bound(nets, **own, policy=greedy, greedy=greedy), normalise=config.normalize_obs)


def _make_flow(config: BcConfig, observation_size: int, action_size: int) -> Agent:
    """It has no normal density, so nothing can be guided by it."""
    assert config.flow_steps is not None
    velocity = make_field(config.hidden_dims, observation_size, action_size)
    learn = optax.adam(config.actor_lr)
    nets = BcNets(observation_size, velocity, learn, action_size, config.flow_steps)
    own = {"init": init, "update": flow_update}
    acts = bound(nets, **own, policy=flow_policy, greedy=flow_greedy)
    return Agent(**acts, normalise=config.normalize_obs)


def init(nets: BcNets, key: jax.Array, scaler: Scaler | None = None) -> BcState:
    """A fresh state that sees observations through `scaler`."""
    actor = nets.actor.init(key)
    scaler = scaler or identity_scaler(nets.observation_size)
    return BcState(Scaled(actor, scaler), nets.learn.init(actor))


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
    net, opt_actor, loss, _ = gradient_step(
        nets.learn, actor_loss, state.actor.net, state.opt_actor, nets, scaler, batch
    )
    return BcState(Scaled(net, scaler), opt_actor), {"actor_loss": loss}


def carried(nets: BcNets, actor: Scaled, observations: jax.Array, start: jax.Array) -> jax.Array:
    """Where the flow takes noise `[..., A]` by Euler steps, within the bounds of actions."""
    seen = actor.scaler.normalise(observations)
    velocity = functools.partial(field, nets.actor, actor.net, seen)
    taken = follow(velocity, start, jnp.zeros((nets.steps, *start.shape)))
    return jnp.clip(taken[-1], -1.0, 1.0)


def flow_policy(
    nets: BcNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Actions as the data's are distributed."""
    start = draws.normal(key, (*observation.shape[:-1], nets.action_size))
    return carried(nets, actor, observation, start), memory


def flow_greedy(
    nets: BcNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Where the flow takes the mean of its noise."""
    del key
    start = jnp.zeros((*observation.shape[:-1], nets.action_size))
    return carried(nets, actor, observation, start), memory


def flow_loss(
    net: PyTree, nets: BcNets, scaler: Scaler, key: jax.Array, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`mean |v(s, (1 - t) a_0 + t a, t) - (a - a_0)|^2` with `a_0 ~ N(0, I)` and t uniform."""
    start_key, time_key = jax.random.split(key)
    start = draws.normal(start_key, batch.actions.shape)
    time = draws.uniform(time_key, batch.actions.shape[:-1])
    at = start + time[..., None] * (batch.actions - start)
    found = field(nets.actor, net, scaler.normalise(batch.observations), at, time)
    return jnp.square(found - (batch.actions - start)).mean(), {}


def flow_update(
    nets: BcNets, state: BcState, key: jax.Array, batch: Any
) -> tuple[BcState, dict[str, jax.Array]]:
    """One gradient step."""
    scaler = state.actor.scaler
    net, opt_actor, loss, _ = gradient_step(
        nets.learn, flow_loss, state.actor.net, state.opt_actor, nets, scaler, key, batch
    )
    return BcState(Scaled(net, scaler), opt_actor), {"actor_loss": loss}


@dataclass(frozen=True, kw_only=True)
class Bc(BcConfig, ModelFree):
    """Behaviour cloning on the rows of a dataset."""

    name: ClassVar[str] = "bc"

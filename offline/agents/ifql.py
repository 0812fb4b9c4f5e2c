"""IFQL (Park et al. 2025, arXiv:2502.02538): IQL's values, and the best of a cloned flow's actions.

A flow clones the data's actions. An agent acts by the one of several draws whose least critic is
highest, as IDQL does with a diffusion model (Hansen-Estruch et al. 2023, arXiv:2304.10573).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, coefficient, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.networks import Network, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled, bound
from . import bc
from .actors import inputs
from .critics import critic_step, q
from .fql import ClonedFlowConfig
from .iql import bellman_target, value_loss
from .model_free import ModelFree


@dataclass(frozen=True)
class IfqlConfig(ClonedFlowConfig):
    """Hyper-parameters; defaults are those of the authors' code.

    Attributes:
        expectile: tau, of the state value.
        candidates: actions of the flow that the critics choose from.
        value_lr: learning rate of the state value (Adam).
    """

    expectile: float = coefficient(0.9, above=0, below=1)
    candidates: int = positive(32)
    value_lr: float = step_size(3e-4)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_ifql(self, observation_size, action_size)


class Choosing(NamedTuple):
    """What acts: the flow, and the critics that choose among its actions."""

    flow: PyTree
    critic: PyTree
    scaler: Scaler


class IfqlState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: Choosing
    value: PyTree
    target_critic: PyTree
    opt_flow: optax.OptState
    opt_critic: optax.OptState
    opt_value: optax.OptState

    @property
    def critic(self) -> Scaled:
        """The critics, which act too."""
        return Scaled(self.actor.critic, self.actor.scaler)


class IfqlNets(NamedTuple):
    """Networks and optimisers of one configuration; `flow` is behaviour cloning's."""

    config: IfqlConfig
    flow: bc.BcNets
    value: Network
    critics: Ensemble
    learn_value: optax.GradientTransformation
    learn_critic: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def make_ifql(config: IfqlConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    s, a = inputs(observation_size, action_size)
    flow, head = config.cloned(observation_size, action_size)
    nets = IfqlNets(
        config,
        flow,
        from_linen(head, s),
        ensemble(from_linen(head, s, a), config.num_critics),
        optax.adam(config.value_lr),
        optax.adam(config.critic_lr),
    )
    acts = bound(nets, init=init, update=update, policy=policy, greedy=policy, q=q)
    return Agent(**acts, normalise=config.normalize_obs, nets=nets)


def init(nets: IfqlNets, key: jax.Array, scaler: Scaler | None = None) -> IfqlState:
    """A fresh state that sees observations through `scaler`."""
    flow_key, value_key, critic_key = jax.random.split(key, 3)
    flow, value = nets.flow.actor.init(flow_key), nets.value.init(value_key)
    critic = nets.critics.init(critic_key)
    scaler = scaler or identity_scaler(nets.flow.observation_size)
    moments = nets.flow.learn.init(flow), nets.learn_critic.init(critic)
    acting = Choosing(flow, critic, scaler)
    return IfqlState(acting, value, critic, *moments, nets.learn_value.init(value))


def policy(
    nets: IfqlNets, actor: Choosing, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """`argmax_a min_i Q_i(s, a)` over `candidates` samples of the flow, also in evaluation."""
    count = nets.config.candidates
    noise = draws.normal(key, (count, *observation.shape[:-1], nets.flow.action_size))
    seen = jnp.broadcast_to(observation, (count, *observation.shape))
    actions = bc.carried(nets.flow, Scaled(actor.flow, actor.scaler), seen, noise)
    best = q(nets, Scaled(actor.critic, actor.scaler), seen, actions).min(0).argmax(0)
    return jnp.take_along_axis(actions, best[None, ..., None], 0)[0], memory


def update(
    nets: IfqlNets, state: IfqlState, key: jax.Array, batch: Any
) -> tuple[IfqlState, dict[str, jax.Array]]:
    """One gradient step of value, critics and flow, each with the others from before it."""
    config, scaler = nets.config, state.actor.scaler
    now, after = (scaler.normalise(x) for x in (batch.observations, batch.next_observations))
    slow = Scaled(state.target_critic, scaler)
    lowest = q(nets, slow, batch.observations, batch.actions).min(0)
    value, opt_value, value_fit, _ = gradient_step(
        nets.learn_value, value_loss, state.value, state.opt_value, nets, now, lowest
    )
    # With the value from before the step.
    target = bellman_target(nets, state.value, after, batch)
    critic, opt_critic, learned = critic_step(nets, state, batch, target)
    cloning = bc.BcState(Scaled(state.actor.flow, scaler), state.opt_flow)
    cloned, more = bc.flow_update(nets.flow, cloning, key, batch)
    metrics = {**learned, "value_loss": value_fit, "flow_loss": more["actor_loss"]}
    state = IfqlState(
        Choosing(cloned.actor.net, critic, scaler),
        value,
        optax.incremental_update(critic, state.target_critic, config.tau),
        cloned.opt_actor,
        opt_critic,
        opt_value,
    )
    return state, metrics


@dataclass(frozen=True, kw_only=True)
class Ifql(IfqlConfig, ModelFree):
    """IFQL on the rows of a dataset."""

    name: ClassVar[str] = "ifql"

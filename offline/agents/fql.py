"""Flow Q-learning (Park et al. 2025, arXiv:2502.02538): a flow imitates, a one-step policy learns.

A flow clones the data's actions (flow matching). The policy `mu(s, z)` maps noise to an action in
one step: it is distilled from the flow at the same noise and ascends the critics, so no gradient
goes through the flow's Euler steps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, coefficient, layers, positive
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.ensemble import Ensemble, ensemble
from jaxrl_rollouts.networks import MLP, Network, from_linen
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled, bound
from . import bc
from .actors import inputs
from .critics import ValueConfig, bootstrapped, critic_step, q
from .flow_actor import make_field
from .model_free import ModelFree


@dataclass(frozen=True)
class ClonedFlowConfig(ValueConfig):
    """What FQL and IFQL share; the flow learns at the actor's rate.

    Attributes:
        flow_steps: Euler steps of the flow.
    """

    hidden_dims: tuple[int, ...] = layers((512, 512, 512, 512))
    critic_norm: bool = True
    flow_steps: int = positive(10)

    def cloned(self, observation_size: int, action_size: int) -> tuple[bc.BcNets, MLP]:
        """The flow, and the network of a value."""
        norm, sizes = self.critic_norm, (observation_size, action_size)
        field = make_field(self.hidden_dims, *sizes, activation=nn.gelu)
        head = MLP(self.hidden_dims, (1,), activation=nn.gelu, layer_norm=norm, norm_after=norm)
        learn = optax.adam(self.actor_lr)
        return bc.BcNets(observation_size, field, learn, action_size, self.flow_steps), head


@dataclass(frozen=True)
class FqlConfig(ClonedFlowConfig):
    """Hyper-parameters; defaults are those of the authors' code.

    Attributes:
        alpha: weight of the distillation beside the value (3 to 1000 on AntMaze and OGBench).
        aggregate: over the critics, in the Bellman target.
        normalise_q: divide the policy's value by its mean magnitude over the batch, so that `alpha`
            does not depend on the scale of rewards.
    """

    alpha: float = coefficient(10.0, least=0)
    aggregate: Literal["mean", "min"] = "mean"
    normalise_q: bool = False

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_fql(self, observation_size, action_size)


class FqlState(NamedTuple):
    """Everything the agent learns; `actor` is the one-step policy, critics' leaves `[N, ...]`."""

    actor: Scaled
    flow: PyTree
    critic: Scaled
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_flow: optax.OptState
    opt_critic: optax.OptState


class FqlNets(NamedTuple):
    """Networks and optimisers of one configuration; `flow` is behaviour cloning's."""

    config: FqlConfig
    actor: Network
    flow: bc.BcNets
    critics: Ensemble
    learn_actor: optax.GradientTransformation
    learn_critic: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def make_fql(config: FqlConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    s, a = inputs(observation_size, action_size)
    flow, critic = config.cloned(observation_size, action_size)
    nets = FqlNets(
        config,
        from_linen(MLP(config.hidden_dims, (action_size,), activation=nn.gelu), s, a),
        flow,
        ensemble(from_linen(critic, s, a), config.num_critics),
        flow.learn,
        optax.adam(config.critic_lr),
    )
    acts = bound(nets, init=init, update=update, policy=policy, greedy=policy, q=q)
    return Agent(**acts, normalise=config.normalize_obs, nets=nets)


def init(nets: FqlNets, key: jax.Array, scaler: Scaler | None = None) -> FqlState:
    """A fresh state that sees observations through `scaler`."""
    keys = jax.random.split(key, 3)
    parts = nets.actor, nets.flow.actor, nets.critics
    actor, flow, critic = (net.init(k) for net, k in zip(parts, keys, strict=True))
    scaler = scaler or identity_scaler(nets.flow.observation_size)
    return FqlState(
        Scaled(actor, scaler),
        flow,
        Scaled(critic, scaler),
        critic,
        nets.learn_actor.init(actor),
        nets.flow.learn.init(flow),
        nets.learn_critic.init(critic),
    )


def one_step(nets: FqlNets, actor: Scaled, observations: jax.Array, noise: jax.Array) -> jax.Array:
    """`mu(s, z)`, `[..., A]`, not cut to the bounds of actions."""
    return nets.actor.apply(actor.net, actor.scaler.normalise(observations), noise)


def policy(
    nets: FqlNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """An action at random noise, in evaluation as in training: at its mean it may be no mode's."""
    noise = draws.normal(key, (*observation.shape[:-1], nets.flow.action_size))
    return jnp.clip(one_step(nets, actor, observation, noise), -1.0, 1.0), memory


def bellman_target(nets: FqlNets, state: FqlState, key: jax.Array, batch: Any) -> jax.Array:
    """`r + gamma (1 - d) mean_i Q'_i(s', mu(s', z))`, `[B]`, or the minimum; section 4."""
    scaler, after = state.actor.scaler, batch.next_observations
    following, _ = policy(nets, state.actor, key, after, ())
    values = q(nets, Scaled(state.target_critic, scaler), after, following)
    value = values.mean(0) if nets.config.aggregate == "mean" else values.min(0)
    return bootstrapped(batch, nets.config.discount, value)


def actor_loss(
    net: PyTree, nets: FqlNets, state: FqlState, key: jax.Array, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`alpha mean |mu(s, z) - F(s, z)|^2 - mean_i Q_i(s, mu(s, z))`; algorithm 1.

    F is where the flow takes the same noise z. The first mean is over rows and action dimensions.
    """
    config, scaler, seen = nets.config, state.actor.scaler, batch.observations
    noise = draws.normal(key, batch.actions.shape)
    cloned = bc.carried(nets.flow, Scaled(state.flow, scaler), seen, noise)
    actions = one_step(nets, Scaled(net, scaler), seen, noise)
    distance = jnp.square(actions - cloned).mean()
    value = q(nets, state.critic, seen, jnp.clip(actions, -1.0, 1.0)).mean(0)
    weight = 1.0
    if config.normalise_q:
        weight = 1.0 / (jax.lax.stop_gradient(jnp.abs(value).mean()) + 1e-7)
    return config.alpha * distance - weight * value.mean(), {"distillation": distance}


def update(
    nets: FqlNets, state: FqlState, key: jax.Array, batch: Any
) -> tuple[FqlState, dict[str, jax.Array]]:
    """One gradient step of critics, flow and policy, each with the others from before it."""
    next_key, flow_key, actor_key = jax.random.split(key, 3)
    scaler = state.actor.scaler
    target = bellman_target(nets, state, next_key, batch)
    critic, opt_critic, learned = critic_step(nets, state, batch, target)
    cloning = bc.BcState(Scaled(state.flow, scaler), state.opt_flow)
    cloned, more = bc.flow_update(nets.flow, cloning, flow_key, batch)
    moved, opt_actor, loss, parts = gradient_step(
        nets.learn_actor,
        actor_loss,
        state.actor.net,
        state.opt_actor,
        nets,
        state,
        actor_key,
        batch,
    )
    metrics = {**learned, "flow_loss": more["actor_loss"], "actor_loss": loss, **parts}
    state = FqlState(
        Scaled(moved, scaler),
        cloned.actor.net,
        Scaled(critic, scaler),
        optax.incremental_update(critic, state.target_critic, nets.config.tau),
        opt_actor,
        cloned.opt_actor,
        opt_critic,
    )
    return state, metrics


@dataclass(frozen=True, kw_only=True)
class Fql(FqlConfig, ModelFree):
    """Flow Q-learning on the rows of a dataset."""

    name: ClassVar[str] = "fql"

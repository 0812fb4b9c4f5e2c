"""What agents with a soft value share, SAC, EDAC and CQL: networks, temperature, policy, target.

A soft value counts the policy's entropy, weighted by a learned temperature alpha (Haarnoja et al.
2018, arXiv:1812.05905).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import layers, number, positive, step_size
from jaxrl_rollouts.descent import falling, gradient_step
from jaxrl_rollouts.ensemble import Ensemble, each_member, ensemble
from jaxrl_rollouts.networks import MLP, Network, from_linen, uniform
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from .actors import INSIDE, Actor, ActorConfig, gaussian_actor, inputs
from .actors import log_prob as log_density
from .flow_actor import make_flow_actor

BACKUP_ACTIONS = 10  # drawn next actions of `max_q_backup`


@dataclass(frozen=True)
class SoftConfig:
    """Hyper-parameters of every agent with a soft value: SAC, EDAC and CQL.

    Attributes:
        num_critics: number of critics; their minimum is bootstrapped from.
        hidden_dims: widths of all networks.
        discount: gamma, the discount factor per step.
        tau: update rate of the target networks (Polyak averaging).
        actor_lr, critic_lr, alpha_lr: learning rates (Adam).
        initial_alpha: initial weight of the entropy; it is learned.
        target_entropy: target of the policy's entropy. None: minus the number of action
            dimensions.
        max_alpha: upper bound of the entropy's weight (1 in OfflineRL-Kit), against divergence
            together with the values. None: no bound.
        cosine: cosine decay of the actor's learning rate to 0 over the training (MOBILE).
        backup_entropy: bootstrap from the soft value, which includes the next action's entropy.
        max_q_backup: bootstrap from each critic's maximum over ten sampled next actions, then the
            minimum over critics, without entropy (CQL's code on AntMaze, MOBILE's on pen).
        learn_alpha: learn the entropy's weight; else it is `initial_alpha`.
        critic_norm: layer normalisation in the critics, before each activation (RLPD).
        target_critics: number of critics, sampled at every step, over which the Bellman target
            takes the minimum; the policy then maximises the mean of all (REDQ, and RLPD with 2 of
            10). None: the minimum of all for both.
    """

    num_critics: int = positive(2)
    hidden_dims: tuple[int, ...] = layers((256, 256, 256))
    discount: float = number(0.99, least=0, below=1)
    tau: float = number(0.005, above=0, most=1)
    actor_lr: float = step_size(3e-4)
    critic_lr: float = step_size(3e-4)
    alpha_lr: float = step_size(3e-4)
    initial_alpha: float = number(1.0, above=0)
    target_entropy: float | None = None
    max_alpha: float | None = number(None, above=0)
    cosine: bool = False
    backup_entropy: bool = True
    max_q_backup: bool = False
    learn_alpha: bool = True
    critic_norm: bool = False
    target_critics: int | None = positive(None)


class SoftNets(NamedTuple):
    """Networks and optimisers of one configuration."""

    config: Any  # a SacConfig or a CqlConfig
    target_entropy: float
    actor: Actor
    critic: Network
    critics: Ensemble
    learn_actor: optax.GradientTransformation
    learn_critic: optax.GradientTransformation
    learn_alpha: optax.GradientTransformation


def make_nets(
    config: SoftConfig,
    observation_size: int,
    action_size: int,
    actor_config: ActorConfig,
    steps: int | None = None,
    critic_hidden_dims: tuple[int, ...] | None = None,
) -> SoftNets:
    """Networks with EDAC's initial weights (biases 0.1, small heads); flows have their own.

    `critic_hidden_dims` are widths of the critics; None takes `config.hidden_dims`.
    """
    s, a = inputs(observation_size, action_size)
    bias = jax.nn.initializers.constant(0.1)

    def mlp(hidden: tuple[int, ...], outputs: tuple[int, ...], bound: float) -> MLP:
        head = uniform(bound)
        norm = config.critic_norm and outputs == (1,)
        inits = {"bias_init": bias, "head_init": head, "head_bias_init": head}
        return MLP(hidden, outputs, layer_norm=norm, **inits)

    critic = from_linen(mlp(critic_hidden_dims or config.hidden_dims, (1,), 3e-3), s, a)
    if actor_config.kind == "gaussian":
        network = from_linen(mlp(config.hidden_dims, (action_size, action_size), 1e-3), s)
        actor = gaussian_actor(network, action_size, actor_config.density)
    else:
        actor = make_flow_actor(actor_config, config.hidden_dims, observation_size, action_size)
    wanted = config.target_entropy
    return SoftNets(
        config,
        actor.entropy if wanted is None else wanted,
        actor,
        critic,
        ensemble(critic, config.num_critics),
        optax.adam(falling(config.actor_lr, steps)),
        optax.adam(config.critic_lr),
        optax.adam(config.alpha_lr) if config.learn_alpha else optax.set_to_zero(),
    )


def initial_state(nets: SoftNets, key: jax.Array) -> dict[str, Any]:
    """What a fresh state holds, by the names of its fields; critics' leaves are `[N, ...]`."""
    actor_key, critic_key = jax.random.split(key)
    actor, critic = nets.actor.init(actor_key), nets.critics.init(critic_key)
    log_alpha = jnp.log(jnp.float32(nets.config.initial_alpha))
    return {
        "actor": actor,
        "critic": critic,
        "target_critic": critic,
        "log_alpha": log_alpha,
        "opt_actor": nets.learn_actor.init(actor),
        "opt_critic": nets.learn_critic.init(critic),
        "opt_alpha": nets.learn_alpha.init(log_alpha),
    }


def temperature(nets: SoftNets, log_alpha: jax.Array) -> jax.Array:
    """The entropy's weight, within its bound."""
    alpha, most = jnp.exp(log_alpha), nets.config.max_alpha
    return alpha if most is None else jnp.minimum(alpha, most)


def temperature_step(nets: SoftNets, state: Any, log_prob: jax.Array) -> tuple:
    """Of `log alpha` against `-mean (log pi + target entropy)`: its step, and new moments."""
    gradient = -jax.lax.stop_gradient(log_prob + nets.target_entropy).mean()
    return nets.learn_alpha.update(gradient, state.opt_alpha, state.log_alpha)


def heads(nets: SoftNets, actor: PyTree, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log standard deviation before the tanh of a normal policy, `[B, A]` each."""
    assert nets.actor.heads is not None, "a flow has none"
    return nets.actor.heads(actor, observations)


def sample(
    nets: SoftNets, actor: PyTree, key: jax.Array, observations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions `[B, A]` of the policy and their log-densities `[B]` (of a flow: of the paths)."""
    return nets.actor.sample(actor, key, observations)


def density(
    nets: SoftNets, actor: PyTree, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Log-densities `[B]` of actions of a normal policy; those at a bound count as just inside."""
    inside = jnp.clip(actions, -INSIDE, INSIDE)
    return log_density(inside, *heads(nets, actor, observations), "exact")


def q(nets: SoftNets, critic: PyTree, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Every critic's value, `[N, B]`."""
    return nets.critics.apply_all(critic, observations, actions)[..., 0]


def q_and_slopes(
    nets: SoftNets, critic: PyTree, observations: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Every critic's value, `[N, B]`, and its gradient in the action, `[N, B, A]`."""
    return each_member(lambda one: value_and_slope(nets.critic, one, observations, actions), critic)


def value_and_slope(
    network: Network, critic: PyTree, observations: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One critic's value, `[B]`, and its gradient in the action, `[B, A]`."""
    value, pull = jax.vjp(lambda a: network.apply(critic, observations, a)[..., 0], actions)
    return value, pull(jnp.ones_like(value))[0]


def min_q(nets: SoftNets, critic: PyTree, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """`min_i Q_i(s, a)`, `[B]`; its gradient is that of the first least critic, in `actions`.

    Only functions of the actions are evaluated again for the gradient: the slopes are known.
    """
    still = jax.lax.stop_gradient(actions)
    values, slopes = q_and_slopes(nets, critic, observations, still)
    first = values.argmin(0)[None]
    value = jnp.take_along_axis(values, first, 0)[0]
    slope = jnp.take_along_axis(slopes, first[..., None], 0)[0]
    return value + (slope * (actions - still)).sum(-1)


def climbed(
    nets: SoftNets, critic: PyTree, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """What the policy climbs, `[B]`: the least critic's value, with `target_critics` the mean."""
    if nets.config.target_critics is None:
        return min_q(nets, critic, observations, actions)
    return q(nets, critic, observations, actions).mean(0)


def policy(
    nets: SoftNets, actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The stochastic policy."""
    return sample(nets, actor, key, observation)[0], memory


def greedy(
    nets: SoftNets, actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Tanh of the mean; of a flow where it takes the mean of its noise."""
    del key
    return nets.actor.greedy(actor, observation), memory


def soft_value(nets: SoftNets, state: Any, key: jax.Array, observations: jax.Array) -> jax.Array:
    """`min_i Q'_i(s, a) - alpha log pi(a | s)` with `a ~ pi`, `[B]`, of the target critics, or of
    `target_critics` of them.

    Without `backup_entropy` the logarithm is left out; with `max_q_backup` the value is
    `min_i max_k Q'_i(s, a_k)` over `BACKUP_ACTIONS` draws (Kumar et al. 2020, appendix F).
    """
    if nets.config.max_q_backup:
        keys = jax.random.split(key, BACKUP_ACTIONS)
        tried = jax.vmap(lambda k: sample(nets, state.actor, k, observations)[0])(keys)
        values = jax.vmap(lambda a: q(nets, state.target_critic, observations, a))(tried)
        return values.max(0).min(0)
    actions, log_prob = sample(nets, state.actor, key, observations)
    values = q(nets, state.target_critic, observations, actions)
    if nets.config.target_critics is not None:
        asked = jax.random.permutation(jax.random.fold_in(key, 1), len(values))
        values = values[asked[: nets.config.target_critics]]
    value = values.min(0)
    if nets.config.backup_entropy:
        value = value - temperature(nets, state.log_alpha) * log_prob
    return value


# Steps that agents and methods compose; states have the fields of `initial_state`.


def actor_loss(
    actor: PyTree, nets: SoftNets, state: Any, key: jax.Array, batch: Transitions
) -> tuple[jax.Array, jax.Array]:
    """`mean (alpha log pi(a | s) - min_i Q_i(s, a))` with `a ~ pi`, and the log-densities `[B]`.

    With `target_critics` it is the mean over i.
    """
    actions, log_prob = sample(nets, actor, key, batch.observations)
    value = climbed(nets, state.critic, batch.observations, actions)
    # The temperature moves first (as in RAVL's code), on this batch's entropy.
    log_alpha = state.log_alpha + temperature_step(nets, state, log_prob)[0]
    return (temperature(nets, log_alpha) * log_prob - value).mean(), log_prob


def actor_step(
    nets: SoftNets, state: Any, key: jax.Array, batch: Transitions, loss: Any = actor_loss
) -> tuple[Any, dict[str, jax.Array]]:
    """A gradient step of temperature and policy.

    Of the metrics `actor_gradient` is the norm of the policy's gradient, which steep flows blow up.
    """
    (_, log_prob), slope = jax.value_and_grad(loss, has_aux=True)(
        state.actor, nets, state, key, batch
    )
    move, opt_actor = nets.learn_actor.update(slope, state.opt_actor, state.actor)
    step, opt_alpha = temperature_step(nets, state, log_prob)
    moved = state._replace(
        actor=optax.apply_updates(state.actor, move),
        log_alpha=state.log_alpha + step,
        opt_actor=opt_actor,
        opt_alpha=opt_alpha,
    )
    metrics = {"entropy": -log_prob.mean(), "alpha": temperature(nets, moved.log_alpha)}
    return moved, metrics | {"actor_gradient": optax.tree.norm(slope)}


def critic_step(
    nets: SoftNets, state: Any, loss: Any, batch: Transitions, target: jax.Array, *more: Any
) -> tuple[Any, dict[str, jax.Array]]:
    """A gradient step of the critics, and a step of their targets.

    Args:
        loss: `(critic, nets, batch, target, *more) -> (loss, metrics)`.
    """
    critic, opt_critic, _, metrics = gradient_step(
        nets.learn_critic, loss, state.critic, state.opt_critic, nets, batch, target, *more
    )
    # Targets follow the critics of this very step, as in SAC's code.
    slow = optax.incremental_update(critic, state.target_critic, nets.config.tau)
    state = state._replace(critic=critic, target_critic=slow, opt_critic=opt_critic)
    return state, {**metrics, "target_mean": target.mean()}

"""SAC with N critics: SAC-N for `diversity` 0, EDAC above (An et al. 2021, algorithm 1).

Plain SAC has two. The agent is a bundle of pure functions; its state is a pytree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, layers, number, positive, step_size
from jaxrl_rollouts.descent import descend
from jaxrl_rollouts.ensemble import Ensemble, ensemble, least
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import MLP, Network, from_linen, uniform
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from .actors import Actor, ActorConfig, gaussian_actor
from .agent import Agent, AgentSpec
from .flow_actor import make_flow_actor
from .given import Settings

NextValue = Callable[[jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True)
class SoftConfig(Settings):
    """Hyper-parameters of every agent with a soft value: SAC, EDAC and CQL.

    Attributes:
        critics: how many; their minimum is bootstrapped from.
        hidden: widths of all networks.
        discount: gamma: what a reward one step later counts.
        polyak: how much of the networks goes into their targets at every update.
        actor_rate, critic_rate, temperature_rate: learning rates (Adam).
        initial_alpha: the entropy's weight at the start; it is learned.
        target_entropy: what the policy's entropy is driven to; None is minus the number of action
            dimensions, of a flow that of its path at the noise `actor.log_std`.
        max_alpha: the entropy's weight is cut there (1 in OfflineRL-Kit), so that it cannot run
            away with exploding values. None: no bound.
        cosine_steps: gradient steps over which the actor's rate falls to 0 along a cosine
            (MOBILE). None keeps the rate.
        backup_entropy: bootstrap from the soft value, which counts the entropy of the next action.
    """

    critics: int = positive(2)
    hidden: tuple[int, ...] = layers((256, 256, 256))
    discount: float = number(0.99, least=0, below=1)
    polyak: float = number(0.005, above=0, most=1)
    actor_rate: float = step_size(3e-4)
    critic_rate: float = step_size(3e-4)
    temperature_rate: float = step_size(3e-4)
    initial_alpha: float = number(1.0, above=0)
    target_entropy: float | None = None
    max_alpha: float | None = number(None, above=0)
    cosine_steps: int | None = positive(None)
    backup_entropy: bool = True


@dataclass(frozen=True)
class SacConfig(SoftConfig):
    """SAC-N; by default plain SAC with two critics.

    Attributes:
        diversity: eta: of EDAC's term, which keeps the critics' action gradients apart.
        least_target: Bellman targets are not let below it (0 in MOBILE's code, for tasks whose
            returns are positive). None lets them be.
        actor: what its policy is: a tanh-squashed normal, or a flow.
    """

    diversity: float = number(0.0, least=0)
    least_target: float | None = None
    actor: ActorConfig = ActorConfig()

    def validate(self) -> None:
        if self.diversity > 0 and self.critics < 2:
            raise ConfigError("diversity", self.diversity, "0, or more with at least 2 critics")


@dataclass(frozen=True)
class EdacConfig(SacConfig):
    """EDAC (and RAVL's critics): N 10, eta 1."""

    critics: int = positive(10)
    diversity: float = number(1.0, least=0)


class SacState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`."""

    actor: PyTree
    critic: PyTree
    target_critic: PyTree
    log_alpha: jax.Array
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_alpha: optax.OptState


class SacNets(NamedTuple):
    """Networks and optimisers of one configuration."""

    config: Any  # a SacConfig, or CQL's
    target_entropy: float
    actor: Actor
    critic: Network
    critics: Ensemble
    learn_actor: optax.GradientTransformation
    learn_critic: optax.GradientTransformation
    learn_alpha: optax.GradientTransformation


def diversity_loss(gradients: jax.Array) -> jax.Array:
    """EDAC's term: mean over rows of the sum over critic pairs of cos(grad_a Q_i, grad_a Q_j),
    over N - 1.

    Args:
        gradients: `[N, B, A]` action gradients. The sum over pairs i != j is taken as
            |sum g|^2 - sum |g|^2, so it costs O(N).
    """
    squared = jnp.square(gradients).sum(-1, keepdims=True)
    # A critic that ignores the action has gradient zero, where the norm has no derivative.
    flat = squared == 0
    unit = jnp.where(flat, 0.0, gradients / (jnp.sqrt(jnp.where(flat, 1.0, squared)) + 1e-10))
    pairs = jnp.square(unit.sum(0)).sum(-1) - jnp.square(unit).sum((0, -1))
    return pairs.mean() / (gradients.shape[0] - 1)


@functools.lru_cache(maxsize=32)
def make_sac(config: SacConfig, observation_size: int, action_size: int) -> Agent:
    """Bind the functions of this module. Equal arguments give the same functions.

    `update` takes besides the batch `penalty` (`[B]` or 0), subtracted from the Bellman target, and
    `next_value`, see `bellman_target`.

    Raises:
        ConfigError: a setting is out of range.
    """
    check(config)
    nets = make_nets(config, observation_size, action_size)
    functions: Any = (init, update, policy, greedy, q)
    return Agent(
        *(functools.partial(function, nets) for function in functions),
        sample=functools.partial(sample, nets),
    )


def make_nets(config: SoftConfig, observation_size: int, action_size: int) -> SacNets:
    """Networks with EDAC's initial weights (biases 0.1, small heads); flows have their own."""
    s = jax.ShapeDtypeStruct((1, observation_size), jnp.float32)
    a = jax.ShapeDtypeStruct((1, action_size), jnp.float32)
    bias = jax.nn.initializers.constant(0.1)

    def mlp(outputs: tuple[int, ...], bound: float) -> MLP:
        head = uniform(bound)
        return MLP(config.hidden, outputs, bias_init=bias, head_init=head, head_bias_init=head)

    critic = from_linen(mlp((1,), 3e-3), s, a)
    if isinstance(config, SacConfig) and config.actor.kind != "gaussian":
        actor = make_flow_actor(config.actor, config.hidden, observation_size, action_size)
    else:
        network = from_linen(mlp((action_size, action_size), 1e-3), s)
        actor = gaussian_actor(network, action_size)
    wanted, rate = config.target_entropy, config.actor_rate
    if config.cosine_steps is not None:
        rate = optax.cosine_decay_schedule(rate, config.cosine_steps)
    return SacNets(
        config,
        actor.entropy if wanted is None else wanted,
        actor,
        critic,
        ensemble(critic, config.critics),
        optax.adam(rate),
        optax.adam(config.critic_rate),
        optax.adam(config.temperature_rate),
    )


def init(nets: SacNets, key: jax.Array, scaler: Scaler | None = None) -> SacState:
    """A fresh state; SAC sees observations as they are."""
    del scaler
    actor_key, critic_key = jax.random.split(key)
    actor, critic = nets.actor.init(actor_key), nets.critics.init(critic_key)
    log_alpha = jnp.log(jnp.float32(nets.config.initial_alpha))
    return SacState(
        actor,
        critic,
        critic,
        log_alpha,
        nets.learn_actor.init(actor),
        nets.learn_critic.init(critic),
        nets.learn_alpha.init(log_alpha),
    )


def temperature(nets: SacNets, log_alpha: jax.Array) -> jax.Array:
    """The entropy's weight, within its bound."""
    alpha, most = jnp.exp(log_alpha), nets.config.max_alpha
    return alpha if most is None else jnp.minimum(alpha, most)


def heads(nets: SacNets, actor: PyTree, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log standard deviation before the tanh of a normal policy, `[B, A]` each."""
    assert nets.actor.heads is not None, "a flow has none"
    return nets.actor.heads(actor, observations)


def sample(
    nets: SacNets, actor: PyTree, key: jax.Array, observations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions `[B, A]` of the policy and their log-densities `[B]` (of a flow: of the paths)."""
    return nets.actor.sample(actor, key, observations)


def q(nets: SacNets, critic: PyTree, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Every critic's value, `[N, B]`."""
    return nets.critics.apply_all(critic, observations, actions)[..., 0]


def policy(
    nets: SacNets, actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The stochastic policy."""
    return sample(nets, actor, key, observation)[0], memory


def greedy(
    nets: SacNets, actor: PyTree, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Tanh of the mean; of a flow where it takes the mean of its noise."""
    del key
    return nets.actor.greedy(actor, observation), memory


def bellman_target(
    nets: SacNets,
    state: SacState,
    key: jax.Array,
    batch: Transitions,
    penalty: jax.Array | float = 0.0,
    next_value: NextValue | None = None,
) -> jax.Array:
    """`r - penalty + gamma (1 - d) (min_i Q'_i(s', a') - alpha log pi(a' | s'))`, `[B]`.

    SAC-N, An et al. 2021, equation 2; the minimum is over all critics. Without `backup_entropy`
    the logarithm is left out, and with a `least_target` the whole is cut from below.

    Args:
        nets: of the agent.
        state: its policy, target critics and temperature are used.
        key: for the next actions; consumed.
        batch: `[B]` rows.
        penalty: `[B]` or a number.
        next_value: `(next_observations [B, S], value [B]) -> [B]` replaces the soft value that is
            bootstrapped from; None trusts the critics.
    """
    actions, log_prob = sample(nets, state.actor, key, batch.next_observations)
    soft = q(nets, state.target_critic, batch.next_observations, actions).min(0)
    if nets.config.backup_entropy:
        soft = soft - temperature(nets, state.log_alpha) * log_prob
    if next_value is not None:
        soft = next_value(batch.next_observations, soft)
    alive = 1.0 - batch.terminations.astype(jnp.float32)
    target = batch.rewards - penalty + nets.config.discount * alive * soft
    if nets.config.least_target is not None:
        target = jnp.maximum(target, nets.config.least_target)
    return jax.lax.stop_gradient(target)


def critic_loss(
    critic: PyTree, nets: SacNets, batch: Transitions, target: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """`sum_i mean (Q_i(s, a) - target)^2 + eta diversity`; EDAC, An et al. 2021, algorithm 1.

    Returns:
        The loss, with every critic's values `[N, B]` and the mean squared error of one critic.
    """
    config = nets.config
    if config.diversity == 0:
        values, spread = q(nets, critic, batch.observations, batch.actions), jnp.zeros(())
    else:
        # One action per critic, so that each critic's own action gradient comes from one pass.
        each = jax.vmap(nets.critic.apply, in_axes=(0, None, 0))
        actions = jnp.broadcast_to(batch.actions, (config.critics, *batch.actions.shape))
        values, pull = jax.vjp(lambda a: each(critic, batch.observations, a)[..., 0], actions)
        spread = diversity_loss(pull(jnp.ones_like(values))[0])
    fit = jnp.square(values - target).mean(1).sum()
    return fit + config.diversity * spread, (values, fit / config.critics)


def actor_loss(
    actor: PyTree, nets: SacNets, state: SacState, key: jax.Array, batch: Transitions
) -> tuple[jax.Array, jax.Array]:
    """`mean (alpha log pi(a | s) - min_i Q_i(s, a))` with `a ~ pi`, and the log-densities `[B]`."""
    actions, log_prob = sample(nets, actor, key, batch.observations)
    value = least(q(nets, state.critic, batch.observations, actions))
    # The temperature moves first (as in RAVL's code), on this batch's entropy.
    log_alpha = state.log_alpha + temperature_step(nets, state, log_prob)[0]
    return (temperature(nets, log_alpha) * log_prob - value).mean(), log_prob


def temperature_step(nets: SacNets, state: Any, log_prob: jax.Array) -> tuple:
    """Of `log alpha` against `-mean (log pi + target entropy)`: its step, and new moments."""
    gradient = -jax.lax.stop_gradient(log_prob + nets.target_entropy).mean()
    return nets.learn_alpha.update(gradient, state.opt_alpha, state.log_alpha)


def update(
    nets: SacNets,
    state: SacState,
    key: jax.Array,
    batch: Transitions,
    penalty: jax.Array | float = 0.0,
    next_value: NextValue | None = None,
) -> tuple[SacState, dict[str, jax.Array]]:
    """One gradient step of temperature, policy and critics, in this order.

    Of the metrics `actor_gradient` is the norm of the policy's gradient, which steep flows blow up.
    """
    actor_key, target_key = jax.random.split(key)
    (_, log_prob), slope = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, nets, state, actor_key, batch
    )
    move, opt_actor = nets.learn_actor.update(slope, state.opt_actor, state.actor)
    actor = optax.apply_updates(state.actor, move)
    step, opt_alpha = temperature_step(nets, state, log_prob)
    log_alpha = state.log_alpha + step
    moved = state._replace(actor=actor, log_alpha=log_alpha)
    target = bellman_target(nets, moved, target_key, batch, penalty, next_value)
    critic, opt_critic, _, (values, fit) = descend(
        nets.learn_critic, critic_loss, state.critic, state.opt_critic, nets, batch, target
    )
    target_critic = optax.incremental_update(critic, state.target_critic, nets.config.polyak)
    metrics = {
        "critic_loss": fit,
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
        "target_mean": target.mean(),
        "entropy": -log_prob.mean(),
        "alpha": temperature(nets, log_alpha),
        "actor_gradient": optax.tree.norm(slope),
    }
    state = SacState(actor, critic, target_critic, log_alpha, opt_actor, opt_critic, opt_alpha)
    return state, metrics


AGENT = AgentSpec(SacConfig, make_sac)
EDAC = AgentSpec(EdacConfig, make_sac)

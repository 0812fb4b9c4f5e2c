"""CQL(H) on SAC (Kumar et al. 2020, arXiv:2006.04779): critics that are low where no data are.

Besides the Bellman error, equation 4 pushes a soft maximum of Q over all actions down and Q at the
data's actions up. The soft maximum is estimated with uniform actions and the policy's own, each
corrected by its density (appendix F). Two habits of the authors' code are kept, since their weights
are meant for them: the squared error has no factor 1/2, and the soft maximum is a sum over the
drawn actions and not their mean, which shifts it by a constant. The multiplier and the clip of the
gap are CORL's, whose numbers the recipes have.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, coefficient, layers, number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.scaler import Scaler, identity_scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions
from ..method import Agent, Scaled, bound
from . import soft
from .actors import ActorConfig, log_prob, sample_and_log_prob
from .critics import bootstrapped
from .model_free import ModelFree
from .references import referenced_data
from .soft import SoftConfig, SoftNets, temperature_step

LIMIT = 0.999  # actions beyond it have no finite likelihood under the squashed policy
LARGEST = 1e6  # of the Lagrange multiplier
SEEN = ("observations", "next_observations")


@dataclass(frozen=True)
class CqlConfig(SoftConfig):
    """Hyper-parameters; defaults are the paper's for locomotion, without the multiplier.

    Attributes:
        critic_hidden_dims: widths of the critics; None: those of `hidden_dims`.
        normalize_obs: observations by their statistics in the dataset.
        weight: alpha in equation 4: of the conservative term (5 or 10 in the paper).
        num_actions: actions sampled per row from each of three: uniform, policy at s and at s'.
        target_gap: tau in equation 30: the multiplier of the conservative term is learned so that
            the gap stays near it (0.8 on AntMaze). None: no multiplier.
        clip_diff_min: lower bound of a row's gap; no gradient below it (-200 on AntMaze).
            None: no bound.
        bc_steps: gradient steps in which the policy imitates the data's actions first
            (40,000 in the authors' code).
        calibrated: Cal-QL (Nakamoto et al. 2023, arXiv:2303.05479): the policy's actions are pushed
            down to the data's return to go and no further.
    """

    actor_lr: float = step_size(3e-5)
    alpha_lr: float = step_size(3e-5)
    critic_hidden_dims: tuple[int, ...] | None = layers(None)
    normalize_obs: bool = True
    weight: float = coefficient(10.0, least=0)
    num_actions: int = positive(10)
    target_gap: float | None = number(None, least=0)
    clip_diff_min: float | None = None
    backup_entropy: bool = False
    bc_steps: int = number(0, least=0)
    calibrated: bool = False

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_cql(self, observation_size, action_size, steps if self.cosine else None)


class CqlState(NamedTuple):
    """Everything the agent learns; critics' leaves are `[N, ...]`. `steps` counts updates."""

    actor: Scaled
    critic: Scaled
    target_critic: PyTree
    log_alpha: jax.Array
    log_multiplier: jax.Array
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    opt_alpha: optax.OptState
    opt_multiplier: optax.OptState
    steps: jax.Array


@functools.lru_cache(maxsize=32)
def make_cql(
    config: CqlConfig, observation_size: int, action_size: int, steps: int | None = None
) -> Agent:
    """Bind the functions of this module and `soft`. Equal arguments give the same functions."""
    check(config)
    sizes = observation_size, action_size
    nets = soft.make_nets(config, *sizes, ActorConfig(), steps, config.critic_hidden_dims)
    acts = {"policy": policy, "greedy": greedy, "q": q, "sample": sample, "density": density}
    begin = functools.partial(init, nets, observation_size)
    functions = bound(nets, update=update, **acts)
    return Agent(begin, **functions, normalise=config.normalize_obs, nets=nets)


def init(
    nets: SoftNets, observation_size: int, key: jax.Array, scaler: Scaler | None = None
) -> CqlState:
    """SAC's fresh state and a multiplier of 1, which sees observations through `scaler`."""
    zero, fresh = jnp.zeros(()), soft.initial_state(nets, key)
    scaler = scaler or identity_scaler(observation_size)
    seen: dict[str, Any] = {n: Scaled(fresh[n], scaler) for n in ("actor", "critic")}
    return CqlState(
        **fresh | seen,
        log_multiplier=zero,
        opt_multiplier=nets.learn_critic.init(zero),
        steps=jnp.int32(0),
    )


def policy(
    nets: SoftNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """The stochastic policy."""
    return soft.policy(nets, actor.net, key, actor.scaler.normalise(observation), memory)


def greedy(
    nets: SoftNets, actor: Scaled, key: jax.Array, observation: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Tanh of the mean."""
    return soft.greedy(nets, actor.net, key, actor.scaler.normalise(observation), memory)


def sample(
    nets: SoftNets, actor: Scaled, key: jax.Array, observations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions `[B, A]` of the policy and their log-densities `[B]`."""
    return soft.sample(nets, actor.net, key, actor.scaler.normalise(observations))


def density(
    nets: SoftNets, actor: Scaled, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Log-densities `[B]` of given actions."""
    return soft.density(nets, actor.net, actor.scaler.normalise(observations), actions)


def q(nets: SoftNets, critic: Scaled, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Every critic's value, `[N, B]`."""
    return soft.q(nets, critic.net, critic.scaler.normalise(observations), actions)


def bellman_target(
    nets: SoftNets, state: CqlState, key: jax.Array, batch: Transitions
) -> jax.Array:
    """`r + gamma (1 - d) min_i Q'_i(s', a')`, `[B]`; less `alpha log pi(a' | s')` if so wanted."""
    value = soft.soft_value(nets, state, key, batch.next_observations)
    return bootstrapped(batch, nets.config.discount, value)


def candidates(
    nets: SoftNets, actor: PyTree, key: jax.Array, batch: Transitions, count: int
) -> tuple[jax.Array, jax.Array]:
    """Actions `[3 K, B, A]` to push down and their log-densities `[3 K, B]`, for a `count` K.

    K each are uniform, from the policy at s and from the policy at s'; all are tried at s.
    """
    uniform_key, *keys = jax.random.split(key, 3)
    shape = (count, *batch.actions.shape)
    actions = [draws.uniform(uniform_key, shape, low=-1.0, high=1.0)]
    densities = [jnp.full(shape[:2], -shape[-1] * math.log(2.0))]
    for here, seen in zip(keys, (batch.observations, batch.next_observations), strict=True):
        mean, log_std = (jnp.broadcast_to(x, shape) for x in soft.heads(nets, actor, seen))
        drawn, density = sample_and_log_prob(here, mean, log_std)
        actions.append(drawn)
        densities.append(density)
    return jnp.concatenate(actions), jnp.concatenate(densities)


def conservative_gap(
    nets: SoftNets, critic: PyTree, batch: Transitions, values: jax.Array, drawn: tuple
) -> jax.Array:
    """`mean max(log sum_k exp(Q_i(s, a_k) - log mu(a_k)) - Q_i(s, a), clip_diff_min)`, `[N]`.

    Equation 4's term in parentheses, of every critic.

    Args:
        batch: `[B]` rows.
        values: `[N, B]` of the data's actions.
    """
    reference = _reference(batch) if nets.config.calibrated else None
    gap = soft_maximum(nets, critic, batch, drawn, reference) - values
    least = nets.config.clip_diff_min
    return (gap if least is None else jnp.maximum(gap, least)).mean(1)


def soft_maximum(
    nets: SoftNets,
    critic: PyTree,
    batch: Transitions,
    drawn: tuple,
    reference: jax.Array | None = None,
) -> jax.Array:
    """`log sum_k exp(Q_i(s, a_k) - log mu(a_k))` of every critic, `[N, B]`.

    Args:
        drawn: actions of `candidates`.
        reference: `[B]`, below which Q of the policy's own actions counts as it (Cal-QL).
    """
    actions, densities = drawn
    count, rows, size = actions.shape
    # One product over all pairs is quicker on a CPU than a vmap over actions.
    seen = jnp.tile(batch.observations, (count, 1))
    tried = soft.q(nets, critic, seen, actions.reshape(-1, size)).reshape(-1, count, rows)
    if reference is not None:
        own = count // 3  # uniform ones, which are pushed down freely
        tried = tried.at[:, own:].max(reference)
    return jax.nn.logsumexp(tried - densities, axis=1)


def _reference(batch: Any) -> jax.Array:
    """Returns to go `[B]`, Cal-QL's lower bound."""
    if not hasattr(batch, "returns"):
        raise ConfigError("calibrated", True, "False for rows without returns to go")
    return batch.returns


def critic_loss(
    critic: PyTree,
    nets: SoftNets,
    batch: Transitions,
    target: jax.Array,
    drawn: tuple,
    multiplier: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`sum_i mean (Q_i(s, a) - target)^2 + multiplier weight gap_i`; equations 4 and 30.

    Equation 30's `- multiplier tau` is left out: it is constant in the critics.
    """
    values = soft.q(nets, critic, batch.observations, batch.actions)
    fit = jnp.square(values - target).mean(1).sum()
    gap = conservative_gap(nets, critic, batch, values, drawn)
    loss = fit + (multiplier * nets.config.weight * gap).sum()
    return loss, {
        "critic_loss": fit / values.shape[0],
        "q_mean": values.mean(),
        "q_spread": values.std(0).mean(),
        "conservative_gap": gap.mean(),
    }


def actor_loss(
    actor: PyTree, nets: SoftNets, state: CqlState, key: jax.Array, batch: Transitions
) -> tuple[jax.Array, jax.Array]:
    """SAC's `mean (alpha log pi(a' | s) - min_i Q_i(s, a'))` with `a' ~ pi`.

    In the first `bc_steps` steps `log pi(a | s)` of the data's actions stands for the value.

    Returns:
        The loss, and the log-densities `[B]` of the drawn actions.
    """
    actions, density = soft.sample(nets, actor, key, batch.observations)
    value = soft.climbed(nets, state.critic, batch.observations, actions)
    if nets.config.bc_steps:
        inside = jnp.clip(batch.actions, -LIMIT, LIMIT)
        imitation = log_prob(inside, *soft.heads(nets, actor, batch.observations))
        value = jnp.where(state.steps < nets.config.bc_steps, imitation, value)
    log_alpha = state.log_alpha + temperature_step(nets, state, density)[0]
    return (soft.temperature(nets, log_alpha) * density - value).mean(), density


def multiplier_loss(log_multiplier: jax.Array, excess: jax.Array) -> tuple[jax.Array, None]:
    """`-multiplier excess` with `excess = weight (mean_i gap_i - tau)`; equation 30's maximum."""
    return -jnp.minimum(jnp.exp(log_multiplier), LARGEST) * excess, None


def update(
    nets: SoftNets, state: CqlState, key: jax.Array, batch: Transitions
) -> tuple[CqlState, dict[str, jax.Array]]:
    """One gradient step of temperature and policy, then of critics and multiplier."""
    scaler = state.actor.scaler
    seen = {name: scaler.normalise(getattr(batch, name)) for name in SEEN}
    bare = state._replace(actor=state.actor.net, critic=state.critic.net)
    moved, metrics = _update(nets, bare, key, batch._replace(**seen))
    scaled = Scaled(moved.actor, scaler), Scaled(moved.critic, scaler)
    return moved._replace(actor=scaled[0], critic=scaled[1]), metrics


def _update(
    nets: SoftNets, state: CqlState, key: jax.Array, batch: Transitions
) -> tuple[CqlState, dict[str, jax.Array]]:
    """`update` with normalised observations; the state has bare networks."""
    config = nets.config
    actor_key, target_key, draw_key = jax.random.split(key, 3)
    moved, acted = soft.actor_step(nets, state, actor_key, batch, actor_loss)
    target = bellman_target(nets, moved, target_key, batch)
    drawn = candidates(nets, moved.actor, draw_key, batch, config.num_actions)
    multiplier = jnp.minimum(jnp.exp(state.log_multiplier), LARGEST)
    moved, learned = soft.critic_step(
        nets, moved, critic_loss, batch, target, jax.lax.stop_gradient(drawn), multiplier
    )
    moved, metrics = moved._replace(steps=state.steps + 1), learned | acted
    if config.target_gap is None:
        return moved, metrics
    log_multiplier, opt_multiplier, _, _ = gradient_step(
        nets.learn_critic,
        multiplier_loss,
        state.log_multiplier,
        state.opt_multiplier,
        config.weight * (metrics["conservative_gap"] - config.target_gap),
    )
    moved = moved._replace(log_multiplier=log_multiplier, opt_multiplier=opt_multiplier)
    return moved, metrics | {"multiplier": multiplier}


@dataclass(frozen=True, kw_only=True)
class Cql(CqlConfig, ModelFree):
    """Conservative Q-learning on the rows of a dataset."""

    name: ClassVar[str] = "cql"
    weight: float = coefficient(10.0, least=0)

    def rows(self, transitions: Transitions) -> Any:
        """With returns to go, where critics are calibrated by them."""
        return referenced_data(transitions, self.discount) if self.calibrated else transitions

    def for_synthetic_rows(self) -> Self:
        """Without calibration, which needs whole episodes."""
        return replace(self, calibrated=False)

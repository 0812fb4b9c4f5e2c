"""ReBRAC (Tarasov et al. 2023, arXiv:2305.09836): TD3+BC revisited.

Penalties of actor and critic are separate numbers, critics have layer normalisation, networks are
deeper and batches larger. The critic's penalty compares the target policy's next action with the
one in the data, so batches need it: `with_next_actions`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import coefficient, layers, number, positive, step_size
from jaxrl_rollouts.ensemble import safe_min
from jaxrl_rollouts.errors import ConfigError

from ..data import Transitions
from ..method import Agent
from .model_free import ModelFree
from .td3 import Td3Config, make_td3


@dataclass(frozen=True)
class RebracConfig(Td3Config):
    """TD3's with ReBRAC's defaults, and the two penalties.

    Attributes:
        actor_bc_coef: weight of the squared distance to the data's action, summed over dimensions
            (beta_1; tuned per dataset in the paper, 0.001 to 1).
        critic_bc_coef: weight of the next action's distance in the target (beta_2; 0 to 0.5 there).
    """

    hidden_dims: tuple[int, ...] = layers((256, 256, 256))
    critic_norm: bool = True
    edac_init: bool = True
    normalize_obs: bool = False
    actor_lr: float = step_size(1e-3)
    critic_lr: float = step_size(1e-3)
    actor_bc_coef: float = coefficient(0.01, least=0)
    critic_bc_coef: float = number(0.01, least=0)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_rebrac(self, observation_size, action_size)

    def rows(self, transitions: Transitions) -> Any:
        """With next actions where they are penalised."""
        return with_next_actions(transitions) if self.critic_bc_coef > 0 else transitions

    def for_synthetic_rows(self) -> Self:
        """Without the critic's penalty, which needs the next action."""
        return replace(self, critic_bc_coef=0.0)


class NextActionTransitions(NamedTuple):
    """`Transitions` and the action that followed; `next_known` (`[N]` bool) where there is one."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminations: Any
    truncations: Any
    next_actions: Any
    next_known: Any


def with_next_actions(transitions: Transitions) -> NextActionTransitions:
    """Rows with the following row's action, which is unknown on the last row of an episode."""
    actions = np.asarray(transitions.actions)
    ended = np.asarray(transitions.terminations) | np.asarray(transitions.truncations)
    known = ~ended
    known[-1:] = False
    following = np.where(known[:, None], np.roll(actions, -1, axis=0), 0.0).astype(actions.dtype)
    return NextActionTransitions(*transitions, following, known)


def actor_loss(
    config: RebracConfig, values: jax.Array, actions: jax.Array, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`mean (beta_1 w |pi(s) - a|^2 - min_i Q_i(s, pi(s)) / mean |min_i Q_i|)`; section 3.

    Args:
        values: `[N, B]` of every critic at the policy's actions.
        actions: `[B, A]`, the policy's.
        batch: rows; of TD3-AWR with a `weight` w, `[B]`, which is 1 for ReBRAC.
    """
    lowest, weight = safe_min(values), getattr(batch, "weight", None)
    scale = 1.0 / (jax.lax.stop_gradient(jnp.abs(lowest).mean()) + 1e-7)
    distance = jnp.square(actions - batch.actions).sum(-1)
    imitation = (distance if weight is None else weight * distance).mean()
    loss = config.actor_bc_coef * imitation - scale * lowest.mean()
    metrics = {} if weight is None else {"weight": weight.mean()}
    return loss, {"imitation": imitation, **metrics}


def target_penalty(config: RebracConfig, following: jax.Array, batch: Any) -> jax.Array | float:
    """`beta_2 |a' - a'_data|^2`, taken off `min_i Q'_i(s', a')`; 0 where no action followed."""
    if config.critic_bc_coef == 0:
        return 0.0
    if not hasattr(batch, "next_actions"):
        raise ConfigError(
            "critic_bc_coef",
            config.critic_bc_coef,
            "0 for data without next actions",
            "pass the dataset through with_next_actions",
        )
    distance = jnp.square(following - batch.next_actions).sum(-1)
    return config.critic_bc_coef * jnp.where(batch.next_known, distance, 0.0)


@functools.lru_cache(maxsize=32)
def make_rebrac(config: RebracConfig, observation_size: int, action_size: int) -> Agent:
    """TD3 with both penalties. Equal arguments give the same functions."""
    return make_td3(config, observation_size, action_size, actor_loss, target_penalty)


@dataclass(frozen=True, kw_only=True)
class Rebrac(RebracConfig, ModelFree):
    """ReBRAC on the rows of a dataset."""

    name: ClassVar[str] = "rebrac"
    batch_size: int = positive(1024)

"""TD3+BC (Fujimoto & Gu 2021, arXiv:2106.06860): TD3 whose actor also imitates the data."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import coefficient

from ..method import Agent
from .model_free import ModelFree
from .td3 import Td3Config, make_td3


@dataclass(frozen=True)
class Td3BcConfig(Td3Config):
    """TD3's, and the weight of the value.

    Attributes:
        alpha: weight of the value relative to imitation (2.5 in the paper).
    """

    alpha: float = coefficient(2.5, least=0)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_td3_bc(self, observation_size, action_size)


def actor_loss(
    config: Td3BcConfig, values: jax.Array, actions: jax.Array, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`-lambda mean Q_1(s, pi(s)) + mean (pi(s) - a)^2` with `lambda = alpha / mean |Q_1|`.

    Section 5, equations 4 and 5; the second mean is over rows and action dimensions.

    Args:
        values: `[N, B]` of every critic at the policy's actions.
        actions: `[B, A]`, the policy's.
    """
    first = values[0]
    weight = config.alpha / (jax.lax.stop_gradient(jnp.abs(first).mean()) + 1e-7)
    imitation = jnp.square(actions - batch.actions).mean()
    return imitation - weight * first.mean(), {"imitation": imitation}


@functools.lru_cache(maxsize=32)
def make_td3_bc(config: Td3BcConfig, observation_size: int, action_size: int) -> Agent:
    """TD3 with this actor loss. Equal arguments give the same functions."""
    return make_td3(config, observation_size, action_size, actor_loss)


@dataclass(frozen=True, kw_only=True)
class Td3Bc(Td3BcConfig, ModelFree):
    """TD3+BC on the rows of a dataset."""

    name: ClassVar[str] = "td3_bc"

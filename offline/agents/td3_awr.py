"""TD3-AWR (Jackson et al. 2025, arXiv:2504.11453): ReBRAC whose imitation is weighted by advantage.

As in IQL a state value is an expectile of the critics at the data's actions; the exponential of the
advantage over it says how much an action is imitated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import jax
import optax

from jaxrl_rollouts.configs import number, positive, step_size
from jaxrl_rollouts.descent import gradient_step
from jaxrl_rollouts.networks import MLP, Network, from_linen, uniform
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree

from ..method import Agent, Scaled, bound
from . import td3
from .actors import inputs
from .iql import imitation_weight, state_value, value_loss
from .model_free import ModelFree
from .rebrac import RebracConfig, make_rebrac


@dataclass(frozen=True)
class Td3AwrConfig(RebracConfig):
    """ReBRAC's with Unifloral's defaults, and the weight of imitation.

    Attributes:
        beta: inverse temperature of the advantage (0.5, 3 or 10 in the paper); 0 is ReBRAC.
        exp_adv_max: greatest weight.
        expectile: expectile of the state value (0.5, 0.7 or 0.9 in the paper).
        value_lr: learning rate of the state value (Adam).
    """

    actor_norm: bool = True
    actor_bc_coef: float = number(0.001, least=0)
    beta: float = number(1.0, least=0)
    exp_adv_max: float = number(100.0, above=0)
    expectile: float = number(0.7, above=0, below=1)
    value_lr: float = step_size(1e-3)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        return make_td3_awr(self, observation_size, action_size)


class Td3AwrState(NamedTuple):
    """TD3's state with a state value and its moments."""

    actor: Scaled
    critic: Scaled
    target_actor: PyTree
    target_critic: PyTree
    opt_actor: optax.OptState
    opt_critic: optax.OptState
    value: PyTree
    opt_value: optax.OptState


class AwrNets(NamedTuple):
    """TD3's networks and the state value's."""

    td3: td3.Td3Nets
    value: Network
    learn_value: optax.GradientTransformation

    @property
    def config(self) -> Any:
        """A `Td3AwrConfig`."""
        return self.td3.config


@functools.lru_cache(maxsize=32)
def make_td3_awr(config: Td3AwrConfig, observation_size: int, action_size: int) -> Agent:
    """ReBRAC with a state value. Equal arguments give the same functions.

    Raises:
        ConfigError: a setting is out of range.
    """
    made = make_rebrac(config, observation_size, action_size)
    (s,) = inputs(observation_size)
    norm, head = config.critic_norm, uniform(3e-3)
    inits: dict[str, Any] = {"head_init": head, "head_bias_init": head}
    inits["bias_init"] = jax.nn.initializers.constant(0.1)
    value = MLP(config.hidden_dims, (1,), layer_norm=norm, norm_after=norm, **inits)
    nets = AwrNets(made.nets, from_linen(value, s), optax.adam(config.value_lr))
    return made._replace(**bound(nets, init=init, update=update), nets=nets)


def init(nets: AwrNets, key: jax.Array, scaler: Scaler | None = None) -> Td3AwrState:
    """TD3's fresh state, and a state value."""
    value = nets.value.init(jax.random.fold_in(key, 2))
    return Td3AwrState(*td3.init(nets.td3, key, scaler), value, nets.learn_value.init(value))


def update(
    nets: AwrNets, state: Td3AwrState, key: jax.Array, batch: Any, *, actor: bool = True
) -> tuple[Td3AwrState, dict[str, jax.Array]]:
    """TD3's step, with weights by the critics and the value of before it; then, with `actor`, the
    value by the critics of after it."""
    seen = state.actor.scaler.normalise(batch.observations)

    def lowest(critic: Scaled) -> jax.Array:
        return td3.q(nets.td3, critic, batch.observations, batch.actions).min(0)

    advantage = lowest(state.critic) - state_value(nets, state.value, seen)
    weight = imitation_weight(nets.config, advantage)
    weighted = SimpleNamespace(**batch._asdict(), weight=weight)
    moved: Any = td3.update(nets.td3, state, key, weighted, actor=actor)  # type: ignore[arg-type]
    state, metrics = moved
    if not actor:
        return state, metrics
    value, opt_value, loss, _ = gradient_step(
        nets.learn_value,
        value_loss,
        state.value,
        state.opt_value,
        nets,
        seen,
        lowest(state.critic),
    )
    return state._replace(value=value, opt_value=opt_value), metrics | {"value_loss": loss}


@dataclass(frozen=True, kw_only=True)
class Td3Awr(Td3AwrConfig, ModelFree):
    """TD3-AWR on the rows of a dataset."""

    name: ClassVar[str] = "td3_awr"
    steps: int = positive(2_000_000)
    batch_size: int = positive(1024)

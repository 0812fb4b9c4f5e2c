"""MoBRAC (Jackson et al. 2025, arXiv:2504.11453): ReBRAC on real and imagined rows.

MOPO's rollouts, whose rewards are lowered by the model's uncertainty, with ReBRAC as the agent. Its
critic's penalty compares the target policy's next action with that of the data on real rows, and
with the present policy's on imagined ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, coefficient, positive
from jaxrl_rollouts.errors import ConfigError

from ..agents import AGENTS
from ..agents.rebrac import NextActionTransitions, RebracConfig
from ..data import Transitions
from ..method import AgentConfig
from .model_based import Given, Learned, Learning, Rollouts
from .mopo import Mopo


def mobrac_agent() -> RebracConfig:
    """ReBRAC as Unifloral has it for MoBRAC."""
    return RebracConfig(actor_bc_coef=0.001, critic_bc_coef=0.01, actor_norm=True)


@dataclass(frozen=True, kw_only=True)
class Mobrac(Mopo):
    """MoBRAC's settings: MOPO's, and ReBRAC's in `agent`."""

    name: ClassVar[str] = "mobrac"
    agent: AgentConfig = chosen(AGENTS, mobrac_agent)
    rollouts: Rollouts = Rollouts(every=2000)
    steps: int = positive(2_000_000)
    batch_size: int = positive(1024)
    penalty: float = coefficient(0.5, least=0)

    def validate(self) -> None:
        super().validate()
        if not isinstance(self.agent, RebracConfig):
            raise ConfigError("agent", type(self.agent).__name__, "rebrac")

    def real_rows(self, transitions: Transitions) -> Any:
        assert isinstance(self.agent, RebracConfig)
        return self.agent.rows(transitions)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """ReBRAC's step; on imagined rows the policy's own action is the one that follows."""
        if hasattr(given.real, "next_actions"):
            after = given.imagined.next_observations
            own, _ = given.agent.greedy(state.agent.actor, given.key, after, ())
            more: Any = {"next_actions": jax.lax.stop_gradient(own)}
            more["next_known"] = jnp.ones(len(own), bool)
            rows = NextActionTransitions(**given.imagined._asdict(), **more)
            given = given._replace(imagined=rows)
        return super().learn(state, given, **moves)

"""MOReL (Kidambi et al. 2020, arXiv:2005.05951): planning in a pessimistic MDP.

A step is unknown where two members' means are farther apart than `limit_scale` times their largest
distance on the data. It is rewarded `halt` and ends the episode, so its value is `halt`. The
planner is MBPO's, as in Unifloral, where the authors have natural policy gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, coefficient, number
from jaxrl_rollouts.ensemble import max_pairwise
from jaxrl_rollouts.rollouts import Trajectory

from ..agents import AGENTS
from ..agents.sac import SacConfig
from ..data import Transitions
from ..data.transitions import flat
from ..method import AgentConfig
from ..worlds.dynamics import Rolled, Uncertainty
from .model_based import ModelBased


@dataclass(frozen=True, kw_only=True)
class Morel(ModelBased):
    """MOReL's settings.

    Attributes:
        halt: -kappa, the reward of an unknown step, after which nothing follows.
        limit_scale: limit in units of the largest distance on the data; 1/3 on hopper-medium in the
            authors' code.
    """

    name: ClassVar[str] = "morel"
    agent: AgentConfig = chosen(AGENTS, lambda: SacConfig(num_critics=10))
    halt: float = coefficient(-20.0)
    limit_scale: float = number(1.0, above=0)

    def uncertainty(self) -> Uncertainty:
        return Uncertainty(max_pairwise, stops=True, limit_scale=self.limit_scale)

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[Transitions, jax.Array]:
        """The pessimistic MDP, definition 3: an unknown step is rewarded `halt` and ends."""
        steps = trajectory.steps
        # A rollout also ends at its length: only the uncertainty marks unknown steps.
        unknown = steps.uncertainties > world.world.uncertainty_threshold
        rewards = jnp.where(unknown, self.halt, steps.rewards)
        return flat(trajectory, rewards=rewards, terminations=steps.terminations | unknown)

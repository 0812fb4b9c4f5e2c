"""MOReL (Kidambi et al. 2020, arXiv:2005.05951), as another package would bring it.

An episode ends, and costs `halt`, where members disagree more than anywhere on the data.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from jaxrl_rollouts.configs import coefficient
from jaxrl_rollouts.ensemble import max_pairwise
from jaxrl_rollouts.offline.methods.model_based import ModelBased, Rolled, Uncertainty, flat
from jaxrl_rollouts.rollouts import Trajectory


@dataclass(frozen=True, kw_only=True)
class Morel(ModelBased):
    """MOReL's settings.

    Attributes:
        halt: -kappa, the reward of a step into the unknown.
    """

    name: ClassVar[str] = "morel"
    halt: float = coefficient(-20.0)

    def uncertainty(self) -> Uncertainty:
        return Uncertainty(max_pairwise, stops=True)

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple:
        """The pessimistic MDP, definition 3: an unknown step is rewarded `halt` and ends."""
        steps = trajectory.steps
        unknown = steps.uncertainties > world.world.limit
        rewards = jnp.where(unknown, self.halt, steps.rewards)
        return flat(trajectory, rewards=rewards, terminations=steps.terminations | unknown)

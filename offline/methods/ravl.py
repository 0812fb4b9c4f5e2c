"""RAVL (Sims et al. 2024, arXiv:2402.12527): a diverse ensemble of critics at the edge of reach.

States that can be reached in exactly k steps are bootstrapped from but never updated. Diverse
critics disagree there, so their minimum is low where no data correct it. The agent is EDAC's,
N 10 and eta 1 by default; there is no penalty on the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxrl_rollouts.configs import chosen

from ..agents import AGENTS
from ..agents.sac import EdacConfig
from ..method import AgentConfig
from ..worlds.fit import WorldModelConfig
from .model_based import ModelBased

# The world model of RAVL's code: a lower rate once patience runs out, at least 350 epochs.
WORLD = WorldModelConfig(
    targets="raw",
    input_clip=10.0,
    lr_drop=0.3,
    min_epochs=350,
    max_epochs=2000,
    holdout_rows=500_000,
)


@dataclass(frozen=True, kw_only=True)
class Ravl(ModelBased):
    """RAVL's settings: those of its agent are N (`num_critics`) and `eta`."""

    name: ClassVar[str] = "ravl"
    agent: AgentConfig = chosen(AGENTS, EdacConfig)
    world: WorldModelConfig = WORLD

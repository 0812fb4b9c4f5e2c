"""Settings of `sampler_steps`: data, networks, samplers, agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    ResidualMlpConfig,
    SamplerConfig,
    TemporalUnetConfig,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig

from .budgets import denoiser_training

SOURCE = "Karras et al. 2022 (EDM), arXiv 2206.00364, figure 2; the project's goals"
CHURN = SamplerConfig().churn
DEFAULTS: Mapping[str, int] = {"mlp": SamplerConfig().steps, "unet": PgdConfig().sampler.steps}


@dataclass(frozen=True)
class Config:
    """Data, networks and samplers.

    Attributes:
        dataset: its environment's observation must determine the state.
        seeds, seed: denoisers trained side by side.
        mlp, mlp_training: the network of transitions.
        unet, unet_training: that of windows.
        length: states of a window.
        steps: numbers of noise levels, ascending.
        churns: values of S_churn.
        rows, windows: drawn per seed and sampler.
        agent: TD3+BC, trained on what was drawn with the first churn and nothing else.
        iterations, updates, batch_size: of its training; updates are those of an iteration.
        episodes: it is played per seed.
    """

    dataset: str = "acrobot-broad"
    seeds: int = 4
    seed: int = 0
    mlp: ResidualMlpConfig = field(default_factory=lambda: ResidualMlpConfig(width=128))
    mlp_training: DenoiserTrainingConfig = field(
        default_factory=lambda: denoiser_training(20_000, 256)
    )
    unet: TemporalUnetConfig = field(default_factory=TemporalUnetConfig)
    unet_training: DenoiserTrainingConfig = field(
        default_factory=lambda: denoiser_training(10_000, 64)
    )
    length: int = 16
    steps: tuple[int, ...] = (16, 32, 64, 128, 256)
    churns: tuple[float, ...] = (CHURN, 0.0)
    rows: int = 4096
    windows: int = 256
    agent: Td3BcConfig = field(
        default_factory=lambda: Td3BcConfig(hidden=(64, 64), actor_rate=1e-3, critic_rate=1e-3)
    )
    iterations: int = 5
    updates: int = 1000
    batch_size: int = 256
    episodes: int = 10

    def validate(self) -> None:
        at_least_one(
            self, "seeds", "rows", "windows", "iterations", "updates", "batch_size", "episodes"
        )
        if list(self.steps) != sorted(set(self.steps)) or min(self.steps, default=0) < 2:
            raise ConfigError("steps", self.steps, "at least one, ascending, from 2")
        if not self.churns:
            raise ConfigError("churns", self.churns, "at least one")

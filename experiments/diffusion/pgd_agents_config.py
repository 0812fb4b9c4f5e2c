"""Settings of `pgd_agents`: datasets by agents by sources of data by regularisers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import (
    DenoiserTrainingConfig,
    GuidanceConfig,
    ResidualMlpConfig,
    SamplerConfig,
    TemporalUnetConfig,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.registry import AgentConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig

from .budgets import denoiser_training

SOURCES = ("real", "synther", "unguided", "guided")
AGENTS = ("td3_bc", "iql")


@dataclass(frozen=True)
class Config:
    """Datasets by agents by sources by regularisers.

    Attributes:
        datasets: names; those made on the spot are `study.MADE`.
        agents, sources: out of `AGENTS` and `SOURCES`.
        alphas: of TD3+BC, swept on every source; the first is the default.
        iql: expectile and inverse temperature of IQL, likewise; it standardises observations, as
            TD3+BC does (on HalfCheetah it learns twice as much in as many updates).
        seeds, seed: agents trained side by side in every cell.
        hidden, rate, batch_size: of every agent.
        refreshes, updates: how often guided data are drawn, and gradient steps after each draw;
            agents on other sources take as many in all.
        windows: drawn per refresh and seed.
        pool: windows of the unguided set, drawn once.
        real_share: of every batch on a synthetic source.
        length, stride: states of a window, and rows between two windows of the data.
        unet, unet_training: the denoiser of windows.
        synther: that of transitions.
        sampler, guidance, coefficient: of windows.
        evaluations, episodes: evaluations while training, and episodes of each per seed.
    """

    datasets: tuple[str, ...] = ("acrobot-broad", "jr/hopper-mixed", "jr/halfcheetah-medium")
    agents: tuple[str, ...] = AGENTS
    sources: tuple[str, ...] = SOURCES
    alphas: tuple[float, ...] = (2.5, 10.0, 40.0)
    iql: tuple[tuple[float, float], ...] = ((0.7, 3.0), (0.7, 10.0), (0.9, 10.0))
    seeds: int = 5
    seed: int = 0
    hidden: tuple[int, ...] = (256, 256)
    rate: float = 3e-4
    batch_size: int = 256
    refreshes: int = 5
    updates: int = 4000
    windows: int = 1536
    pool: int = 7680
    real_share: float = 1 / 16
    length: int = 32
    stride: int = 8
    unet: TemporalUnetConfig = field(default_factory=TemporalUnetConfig)
    unet_training: DenoiserTrainingConfig = field(
        default_factory=lambda: denoiser_training(20_000, 64)
    )
    synther: SyntherConfig = field(
        default_factory=lambda: SyntherConfig(
            ResidualMlpConfig(width=256), denoiser_training(20_000, 256), SamplerConfig(128)
        )
    )
    sampler: SamplerConfig = field(default_factory=lambda: SamplerConfig(32))
    guidance: GuidanceConfig = field(default_factory=lambda: GuidanceConfig(reference_steps=256))
    coefficient: float = 0.5
    evaluations: int = 5
    episodes: int = 10

    def validate(self) -> None:
        at_least_one(self, "seeds", "refreshes", "updates", "windows", "pool", "evaluations")
        for name, found, known in (
            ("agents", self.agents, AGENTS), ("sources", self.sources, SOURCES),
        ):  # fmt: skip
            if not found or not set(found) <= set(known):
                raise ConfigError(name, found, f"names out of {', '.join(known)}")
        if not self.datasets or not self.alphas or not self.iql:
            raise ConfigError("datasets, alphas, iql", "nothing", "at least one of each")
        if self.refreshes % self.evaluations:
            expected = f"a divisor of refreshes ({self.refreshes})"
            raise ConfigError("evaluations", self.evaluations, expected)

    @property
    def pgd(self) -> PgdConfig:
        return PgdConfig(
            self.guidance, self.coefficient, self.sampler, self.windows, self.updates,
            self.batch_size, self.real_share,
        )  # fmt: skip

    def regularisers(self, agent: str) -> Mapping[str, AgentConfig]:
        """Settings of one agent by a name for tables; the first is the default."""
        if agent == "td3_bc":
            td3 = Td3BcConfig(hidden=self.hidden, actor_rate=self.rate, critic_rate=self.rate)
            return {f"alpha {alpha:g}": replace(td3, alpha=alpha) for alpha in self.alphas}
        iql = IqlConfig(
            hidden=self.hidden, normalise=True, actor_rate=self.rate, critic_rate=self.rate,
            value_rate=self.rate,
        )  # fmt: skip
        return {
            f"tau {tau:g}, beta {beta:g}": replace(iql, expectile=tau, inverse_temperature=beta)
            for tau, beta in self.iql
        }

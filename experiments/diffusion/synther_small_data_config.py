"""What can be set in `synther_small_data`, and the kinds of rows its agents learn from.

The share's own; `samples` of a diffusion model fitted to it; `rows with noise`; and samples told
anew, one of `TOLD`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxrl_rollouts.configs import fraction, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.synthetic.synther import SyntherConfig

MADE = ("samples", "rows with noise")
# Samples told anew: by whom, and what about steps that an ensemble does not know.
TOLD: Mapping[str, dict[str, Any]] = {
    "ensemble": {"by": "ensemble"},
    "ensemble-drop": {"by": "ensemble", "unknown": "drop"},
    "model": {"by": "model"},
    "inverse": {"by": "inverse"},
    "oracle": {"by": "oracle"},
}
AGENTS = ("td3_bc", "iql")


@dataclass(frozen=True)
class Config:
    """Shares of one dataset, and the budgets.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        dataset: a name or file. Where the environment's observation does not determine its state
            (Hopper's speeds are cut) nobody says how wrong rows are, and there is no `oracle`.
        shares: of its rows, ascending; drawn at random and anew for every seed.
        synther: the diffusion model.
        samples: drawn from it per seed and share.
        sample_batch: of them side by side.
        real_share: of real rows in a batch of samples or noisy rows; 0 replaces the data.
        told: arms of samples told anew (`offline.synthetic.relabel`): rewards and next observations
            by an `ensemble` fitted to the same rows, the same without the rows it does not know
            (`ensemble-drop`), by a single `model` or by the simulator (`oracle`); or actions by an
            `inverse` model. Claims are about the first.
        networks: of those models. A smaller share takes more passes, and more patience, so that
            every share has as many gradient steps, as the diffusion model has.
        noise_told: members of an ensemble draw from their normals; False takes their means.
        level: an ensemble does not know rows on which its members disagree more than on this
            quantile of the data.
        agents: out of `AGENTS`.
        agent, iql: TD3+BC and IQL.
        updates, per_iteration, batch_size: of their training.
        evaluations: spread over the training, of so many `episodes` per seed.
        episodes: played at each evaluation, per seed.
        judged: samples per seed whose quality is measured.
        noise: of the augmented rows, in standard deviations.
    """

    seeds: int = positive(4)
    seed: int = 0
    dataset: str = "halfcheetah-mixed"
    shares: tuple[float, ...] = (0.03, 0.15, 1.0)
    synther: SyntherConfig = SyntherConfig()
    samples: int = positive(5_000_000)
    sample_batch: int = positive(10_000)
    real_share: float = fraction(0.0)
    told: tuple[str, ...] = ()
    networks: EnsembleConfig = field(default_factory=EnsembleConfig)
    noise_told: bool = True
    level: float = fraction(0.9)
    agents: tuple[str, ...] = ("td3_bc",)
    agent: Td3BcConfig = Td3BcConfig()
    iql: IqlConfig = IqlConfig(normalise=True)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)
    batch_size: int = positive(256)
    evaluations: int = positive(10)
    episodes: int = positive(10)
    judged: int = positive(10_000)
    noise: float = 0.1

    def validate(self) -> None:
        shares = self.shares
        if not shares or list(shares) != sorted(set(shares)) or shares[0] <= 0 or shares[-1] > 1:
            raise ConfigError("shares", shares, "ascending, above 0 and at most 1")
        if self.updates % (self.per_iteration * self.evaluations):
            expected = f"a multiple of per_iteration * evaluations ({self.per_iteration} * "
            raise ConfigError("updates", self.updates, f"{expected}{self.evaluations})")
        if self.noise <= 0:
            raise ConfigError("noise", self.noise, "above 0")
        if not set(self.told) <= set(TOLD) or len(set(self.told)) < len(self.told):
            raise ConfigError("told", self.told, f"different ones out of {', '.join(TOLD)}")
        agents = self.agents
        if not agents or not set(agents) <= set(AGENTS) or len(set(agents)) < len(agents):
            raise ConfigError("agents", agents, f"at least one out of {', '.join(AGENTS)}")

    @property
    def judged_kinds(self) -> tuple[str, ...]:
        """Kinds of rows whose quality is measured: all that were made."""
        return (*MADE, *self.told)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of rows that agents learn from, the share's own first."""
        return ("rows", *self.judged_kinds)

    def named(self, agent: str) -> Td3BcConfig | IqlConfig:
        """The settings of one of the `agents`."""
        return self.agent if agent == "td3_bc" else self.iql

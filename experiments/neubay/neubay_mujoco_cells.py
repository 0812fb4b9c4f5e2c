"""Settings of `neubay_mujoco`: datasets by arms, and what the paper chose for each dataset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.methods import NAMES
from jaxrl_rollouts.offline.neubay.config import NeubayConfig
from jaxrl_rollouts.offline.study.model_based import StudyConfig
from jaxrl_rollouts.offline.study.neubay import NeubayStudyConfig, markov

DATASETS = ("jr/halfcheetah-mixed", "jr/hopper-mixed")


@dataclass(frozen=True)
class Tuned:
    """What the paper's public code chose for a dataset; hopper's alpha is fixed.

    Attributes:
        dataset: ours; each stands where the paper has the D4RL one of the same kind.
        memory_rate: learning rate of the memories.
        real_weight: of real tokens in the losses.
        learn_alpha: False keeps the initial one.
    """

    dataset: str
    memory_rate: float
    real_weight: float
    learn_alpha: bool = True


PAPER = (
    Tuned("jr/halfcheetah-random", 3e-5, 0.8),
    Tuned("jr/halfcheetah-medium", 3e-5, 0.8),
    Tuned("jr/halfcheetah-mixed", 1e-5, 0.05),  # medium-replay
    Tuned("jr/hopper-mixed", 3e-7, 0.5, False),  # medium-replay
)


@dataclass(frozen=True)
class Config:
    """Datasets by arms; seeds and looks are the same for all.

    Attributes:
        methods: the conservative ones, of `offline.methods`.
        memoryless: whether to train NEUBAY's Markov ablation.
        levels: quantiles to cut rollouts at, besides NEUBAY's own.
        penalties: coefficients of NEUBAY's conservative ablation.
        study: seeds, evaluation, and all of the conservative methods.
        neubay: NEUBAY's world models and agent.
        tuned: settings of single datasets; others keep those of `neubay`.
    """

    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = ("mopo", "mobile", "ravl")
    memoryless: bool = True
    levels: tuple[float, ...] = (0.9,)
    penalties: tuple[float, ...] = (1.0,)
    study: StudyConfig = field(default_factory=StudyConfig)
    neubay: NeubayStudyConfig = field(default_factory=NeubayStudyConfig)
    tuned: tuple[Tuned, ...] = PAPER

    def validate(self) -> None:
        if not self.datasets:
            raise ConfigError("datasets", self.datasets, "at least one")
        for name in self.methods:
            if name not in NAMES:
                raise ConfigError("methods", name, f"names out of {', '.join(NAMES)}")
        if any(level > 1 for level in self.levels):
            raise ConfigError("levels", self.levels, "each at most 1")
        if any(penalty <= 0 for penalty in self.penalties):
            raise ConfigError("penalties", self.penalties, "each above 0; NEUBAY itself has none")
        at_least_one(self.study, "evaluations")
        self.neubay.check_looks(self.study.evaluations)
        steps = self.study.epochs * self.study.rollouts.updates_per_epoch
        if self.methods and steps != self.neubay.agent.agent.steps:
            expected = f"NEUBAY's {self.neubay.agent.agent.steps}, as epochs * updates_per_epoch"
            raise ConfigError("study: gradient steps", steps, expected)
        if self.methods and self.study.ensemble.max_epochs != self.neubay.ensemble.max_epochs:
            found, expected = self.study.ensemble.max_epochs, self.neubay.ensemble.max_epochs
            raise ConfigError("study.ensemble.max_epochs", found, f"NEUBAY's {expected}")

    def agent(self, dataset: str) -> NeubayConfig:
        """NEUBAY's settings for one dataset."""
        for tuned in self.tuned:
            if tuned.dataset == dataset:
                agent = replace(
                    self.neubay.agent.agent, memory_rate=tuned.memory_rate,
                    real_weight=tuned.real_weight, learn_alpha=tuned.learn_alpha,
                )  # fmt: skip
                return replace(self.neubay.agent, agent=agent)
        return self.neubay.agent

    def arms(self, dataset: str) -> dict[str, NeubayConfig]:
        """NEUBAY and its ablations on one dataset, by name."""
        own = self.agent(dataset)
        arms = {"neubay": own}
        if self.memoryless:
            arms["markov"] = markov(own)
        arms |= {f"quantile {x:g}": replace(own, level=x) for x in self.levels}
        return arms | {f"penalty {x:g}": replace(own, penalty=x) for x in self.penalties}

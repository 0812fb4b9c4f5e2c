"""What NEUBAY's public code chose for single datasets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..methods.published import kind_of
from .config import NeubayConfig


@dataclass(frozen=True)
class Tuned:
    """What the paper's public code chose for a dataset; hopper's alpha is fixed.

    Attributes:
        dataset: of `data make`; each stands where the paper has the D4RL one of the same kind.
        memory_rate: learning rate of the memories.
        real_weight: of real tokens in the losses.
        learn_alpha: False keeps the initial one.
    """

    dataset: str
    memory_rate: float
    real_weight: float
    learn_alpha: bool = True


PAPER = (
    Tuned("halfcheetah-random", 3e-5, 0.8),
    Tuned("halfcheetah-medium", 3e-5, 0.8),
    Tuned("halfcheetah-mixed", 1e-5, 0.05),  # medium-replay
    Tuned("hopper-mixed", 3e-7, 0.5, False),  # medium-replay
)


def tuned_to(dataset: str, config: NeubayConfig, choices: Iterable[Tuned] = PAPER) -> NeubayConfig:
    """`config` with what was chosen for a dataset; as it is where nothing was.

    A `mixed` set of `data make` counts as D4RL's medium-replay, whatever its version.
    """
    for choice in choices:
        if kind_of(choice.dataset) == kind_of(dataset):
            values = {name: value for name, value in vars(choice).items() if name != "dataset"}
            return replace(config, agent=replace(config.agent, **values))
    return config

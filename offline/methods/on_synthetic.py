"""What SynthER and policy-guided diffusion share: an agent on rows of a diffusion model."""

from __future__ import annotations

from dataclasses import dataclass, fields

from jaxrl_rollouts.configs import chosen
from jaxrl_rollouts.errors import ConfigError

from ..agents.iql import Iql
from ..agents.model_free import ModelFree
from ..method import Method
from ..synthetic.relabel import RelabelConfig
from ..synthetic.synthesis import relabel_note
from ..task import Task, termination_of
from ..worlds.dynamics import Termination
from ..worlds.endings import TerminationConfig
from . import METHODS


@dataclass(frozen=True, kw_only=True)
class OnSynthetic(Method):
    """What SynthER and policy-guided diffusion share: the agent, and the relabelling.

    Attributes:
        agent: a method without a world model, whose agent and view of rewards are used. How long
            and with which batches is this method's own.
        relabel: a model of what follows a synthetic state and action; None, as published.
    """

    agent: ModelFree = chosen(METHODS, Iql)
    relabel: RelabelConfig | None = None

    def validate(self) -> None:
        if not isinstance(self.agent, ModelFree):
            found = getattr(self.agent, "name", type(self.agent).__name__)
            raise ConfigError("agent", found, "a method without a world model")
        for name in ("steps", "batch_size"):
            found, own = getattr(self.agent, name), getattr(self, name)
            if found not in (own, getattr(type(self.agent)(), name)):
                expected = f"{name} {own} beside the agent"
                raise ConfigError(f"agent.{name}", found, expected, f"{self.name}({name}={found})")

    def fixed_length(self) -> bool:
        """Whether the agent's rates fall to zero over the steps."""
        return self.agent.fixed_length()

    def rule(self, task: Task) -> Termination | None:
        """The environment's rule of terminations, for relabelling, where it is known."""
        if self.relabel is None:
            return None
        rule = termination_of(task.dataset, task.env, self.relabel)
        return None if isinstance(rule, TerminationConfig) else rule

    def note(self, sentence: str) -> str:
        """What was learned from, for the report."""
        alone, names = self.agent.for_synthetic_rows(), [f.name for f in fields(self.agent)]
        changed = [name for name in names if getattr(alone, name) != getattr(self.agent, name)]
        without = f" Without {', '.join(changed)}: successors of synthetic rows are unknown."
        return sentence + relabel_note(self.relabel) + (without if changed else "")

"""SynthER (Lu et al. 2023, arXiv:2303.06614): an agent on rows that a diffusion model samples.

fit a diffusion model of transitions, sample `rows` of them once    synthetic.synthesis
every step: real and synthetic rows -> agent                        synther.mixing
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

from jaxrl_rollouts.configs import chosen, fraction, positive
from jaxrl_rollouts.errors import ConfigError

from ..agents.iql_method import Iql
from ..agents.model_free import make_model_free
from ..agents.on_rows import ModelFree, shown_rewards
from ..data import to_device
from ..method import Job, Method, Prepared, cadence
from ..study.setting import termination_of
from ..study.source import Setting, slug
from ..synthetic.relabel import RelabelConfig
from ..synthetic.synther import MixedData, SyntherConfig, mixing
from ..synthetic.synthesis import relabel_note, synthesise
from ..worlds.dynamics import Termination
from ..worlds.endings import TerminationConfig
from . import METHODS


@dataclass(frozen=True, kw_only=True)
class OnSynthetic(Method):
    """What SynthER and policy-guided diffusion share: the agent, and who relabels.

    Attributes:
        agent: a method without a world model, whose agent and view of rewards are used. How long
            and with which batches is this method's own.
        relabel: which model says what follows a synthetic state and action; as published, none.
    """

    agent: ModelFree = chosen(METHODS, Iql)
    relabel: RelabelConfig = RelabelConfig()

    def validate(self) -> None:
        if not isinstance(self.agent, ModelFree):
            found = getattr(self.agent, "name", type(self.agent).__name__)
            raise ConfigError("agent", found, "a method without a world model")
        for name in ("steps", "batch_size"):
            found, own = getattr(self.agent, name), getattr(self, name)
            if found not in (own, getattr(type(self.agent)(), name)):
                expected = f"{name} {own} beside the agent"
                raise ConfigError(f"agent.{name}", found, expected, f"{self.name}({name}={found})")

    def relabelling(self, setting: Setting) -> Relabelling:
        """Settings of the relabelling, and the rule of terminations where it is known."""
        rule = termination_of(setting.dataset, setting.env, self.relabel)
        return Relabelling(self.relabel, None if isinstance(rule, TerminationConfig) else rule)

    def note(self, sentence: str) -> str:
        """What was learned from, for the report."""
        alone, names = self.agent.for_synthetic_rows(), [f.name for f in fields(self.agent)]
        changed = [name for name in names if getattr(alone, name) != getattr(self.agent, name)]
        without = f" Without {', '.join(changed)}: successors of synthetic rows are unknown."
        return sentence + relabel_note(self.relabel.relabel_with) + (without if changed else "")


class Relabelling(NamedTuple):
    """Who relabels, and a known rule of terminations."""

    config: RelabelConfig
    termination: Termination | None


@dataclass(frozen=True, kw_only=True)
class Synther(OnSynthetic):
    """SynthER's settings; those of the diffusion model are the paper's.

    Attributes:
        model: of single transitions.
        rows: sampled from it once, for all seeds.
        real_ratio: of real rows in a batch; 0 replaces the data.
    """

    name: ClassVar[str] = "synther"
    model: SyntherConfig = SyntherConfig()
    rows: int = positive(5_000_000)
    real_ratio: float = fraction(0.0)

    def prepare(self, setting: Setting, job: Job) -> Prepared:
        dataset, agent = setting.dataset, self.agent.for_synthetic_rows()
        made = synthesise(
            dataset,
            self,
            termination=self.relabelling(setting).termination,
            seed=job.seed,
            stage=f"{slug(dataset.name)}-synther",
            context=job.context,
        )
        sizes = setting.env.observation_size, setting.env.action_size
        period = agent.acts.make(*sizes).period
        iterations, per = cadence(self.steps, agent.per_iteration, period, job.evaluations)
        learner = make_model_free(
            agent.acts,
            *sizes,
            batch_size=self.batch_size,
            updates_per_iteration=per,
            draw=mixing(self.real_ratio),
        )
        note = self.note(
            f"Data: {len(made):,} rows that SynthER sampled from a model of the dataset's "
            f"{len(dataset):,}; {self.real_ratio:.0%} of a batch is real."
        )
        real, rows = (
            to_device(agent.rows(shown_rewards(one, agent.reward))) for one in (dataset, made)
        )
        source = setting._replace(synthetic=note)
        return Prepared(learner, MixedData(real, rows), iterations, agent.acts, setting.env, source)

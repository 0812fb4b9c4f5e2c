"""SynthER (Lu et al. 2023, arXiv:2303.06614): an agent on rows that a diffusion model samples.

fit a diffusion model of transitions, sample `rows` of them once    synthetic.synthesis
every step: real and synthetic rows -> agent                        synther.mixing
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxrl_rollouts.configs import fraction, positive

from ..agents.model_free import make_model_free
from ..data import to_device
from ..data.transitions import reward_scale
from ..method import Job, Prepared, cadence
from ..synthetic.synther import MixedData, SyntherConfig, mixing
from ..synthetic.synthesis import synthesise
from ..task import Task, slug
from .on_synthetic import OnSynthetic


@dataclass(frozen=True, kw_only=True)
class Synther(OnSynthetic):
    """SynthER's settings; those of the diffusion model are the paper's.

    Attributes:
        model: model of single transitions.
        rows: sampled from it once, for all seeds.
        real_ratio: share of real rows in a batch; 0 replaces the data.
    """

    name: ClassVar[str] = "synther"
    model: SyntherConfig = SyntherConfig()
    rows: int = positive(5_000_000)
    real_ratio: float = fraction(0.0)

    def prepare(self, task: Task, job: Job) -> Prepared:
        dataset, agent = task.dataset, self.agent.for_synthetic_rows()
        made = synthesise(
            dataset,
            self,
            termination=self.rule(task),
            seed=job.seed,
            stage=f"{slug(dataset.name)}-synther-model",
            context=job.context,
        )
        acts, sizes = agent.acts, (task.env.observation_size, task.env.action_size)
        period = acts.make(*sizes, self.steps).period
        iterations, per = cadence(self.steps, agent.per_iteration, period, job.evaluations)
        learner = make_model_free(
            acts,
            *sizes,
            batch_size=self.batch_size,
            per_iteration=per,
            draw=mixing(self.real_ratio),
            steps=iterations * per,
        )
        note = self.note(
            f"Data: {len(made):,} rows that SynthER sampled from a model of the dataset's "
            f"{len(dataset):,}; {self.real_ratio:.0%} of a batch is real."
        )
        # One view for both: that of the dataset, whatever the returns of synthetic rows are.
        scale = reward_scale(dataset, agent.reward)
        real, rows = (to_device(agent.rows(scale.of(each.transitions))) for each in (dataset, made))
        source, data = task._replace(synthetic=note), MixedData(real, rows)
        return Prepared(learner, data, iterations, acts, task.env, source, reward=scale)

"""Policy-guided diffusion (Jackson et al. 2024, arXiv:2404.06356): an agent on windows that a
diffusion model samples near its own policy, again and again while it learns.

    fit a diffusion model of windows                                    synthesis.fit_windows
    every refresh:  sample windows guided towards the policy            synthetic.pgd.windows
    every step:     real and synthetic rows -> agent                    synther.mixed_rows
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax

from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.diffusion import DenoiserTrainingConfig, Unet
from jaxrl_rollouts.errors import ConfigError

from ..data import to_device
from ..data.transitions import reward_scale
from ..method import Job, Prepared, cadence
from ..synthetic.pgd import PgdConfig, PgdData, make_pgd
from ..synthetic.relabel import fit_relabeller
from ..synthetic.synthesis import fit_windows
from ..task import Task, slug
from .on_synthetic import OnSynthetic


def published_training() -> DenoiserTrainingConfig:
    """The public code's, which counts epochs, as gradient steps of ours."""
    return DenoiserTrainingConfig(
        steps=500_000, batch=32, lr=2e-3, betas=(0.9, 0.999), warmup=50_000, clip=None
    )


@dataclass(frozen=True, kw_only=True)
class Pgd(OnSynthetic):
    """Policy-guided diffusion's settings.

    Attributes:
        length, stride: states of a window, and rows between the starts of two.
        unet, training: the model of windows.
        refresh: guidance, and how often windows are sampled anew.
    """

    name: ClassVar[str] = "pgd"
    length: int = number(16, least=2, expected="at least 2 states")
    stride: int = positive(8)
    unet: Unet = Unet(features=1024)
    training: DenoiserTrainingConfig = field(default_factory=published_training)
    refresh: PgdConfig = PgdConfig()

    def prepare(self, task: Task, job: Job) -> Prepared:
        dataset, agent = task.dataset, self.agent.for_synthetic_rows()
        acts, sizes = agent.acts, (task.env.observation_size, task.env.action_size)
        made = acts.make(*sizes)
        if made.gaussian is None:
            expected = "one with a normal policy: td3_bc, iql, rebrac or bc"
            raise ConfigError("agent", agent.name, expected)
        iterations, per = cadence(self.steps, self.refresh.steps, made.period)
        fit_key = jax.random.split(jax.random.key(job.seed))[0]
        stage, scale = f"{slug(dataset.name)}-pgd-model", reward_scale(dataset, agent.reward)
        rows = scale.of(dataset.transitions)
        viewed = replace(dataset, transitions=rows)
        run = {"stage": stage, "source": dataset.name, "context": job.context}
        fitted = fit_windows(viewed.with_successors, self, fit_key, **run)
        relabeller = None
        if self.relabel is not None:
            key, known = jax.random.fold_in(fit_key, 1), viewed.with_successors
            more = {"stage": f"{stage}-relabel", "context": job.context}
            relabeller = fit_relabeller(
                known, self.relabel, key, termination=self.rule(task), **more
            )
        refresh = replace(self.refresh, steps=per)
        learner = make_pgd(
            refresh,
            acts,
            fitted.denoiser,
            fitted.layout,
            relabeller,
            batch_size=self.batch_size,
            steps=iterations * per,
        )
        count = iterations * refresh.windows * (self.length - 1)
        note = self.note(
            f"Data: up to {count:,} rows per seed that guided diffusion sampled near the policy, "
            f"{iterations} times {refresh.windows:,} windows of {self.length} states; "
            f"{refresh.real_ratio:.0%} of a batch is real."
        )
        data = PgdData(to_device(rows), fitted.params, relabeller.data if relabeller else ())
        source = task._replace(synthetic=note)
        return Prepared(learner, data, iterations, acts, task.env, source, reward=scale)

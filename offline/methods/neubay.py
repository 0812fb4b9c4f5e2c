"""NEUBAY (Ni et al. 2025, arXiv:2512.04341): a history-dependent agent in long rollouts of a
posterior over world models, without a penalty and without a fixed horizon.

    fit an ensemble, measure its spread on the data     PosteriorConfig.fit
    continue logged histories to an uncertain end       learner.collect
    recurrent SAC on tapes of whole episodes            recurrent.sac.update
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from jaxrl_rollouts.configs import coefficient, number, positive
from jaxrl_rollouts.errors import ConfigError

from ..data.transitions import RewardScale
from ..method import Job, Method, Prepared, cadence
from ..neubay.learner import buffer_text, make_neubay, seconds_between_saves
from ..neubay.posterior import PosteriorConfig, check_updates, neubay_data, posterior_of
from ..recurrent.histories import remembering
from ..recurrent.memory import MemoryConfig
from ..recurrent.sac import RecurrentSacConfig
from ..recurrent.tapes import Weighting
from ..task import Task

if TYPE_CHECKING:
    from jaxrl_rollouts.compare.grid import Cell
    from jaxrl_rollouts.reports.report import Report


@dataclass(frozen=True)
class HistoryRollouts:
    """Rollouts that continue logged histories.

    Attributes:
        batch_size: histories continued per collection, `K`; row `i` in member `i % N`.
        length: most imagined steps; None leaves only the environment's time limit.
        uncertainty_quantile: quantile of the members' spread over the dataset, beyond which a
            rollout is cut; 1.0 its largest value there, negative no threshold.
        early_exit: check every so many steps whether all rollouts have ended; None never checks.
    """

    batch_size: int = positive(100)
    length: int | None = positive(None)
    uncertainty_quantile: float = number(
        1.0, most=1, expected="at most 1, or negative for no threshold"
    )
    early_exit: int | None = positive(32)


@dataclass(frozen=True, kw_only=True)
class Neubay(Method):
    """NEUBAY's settings; defaults are the public code's for D4RL locomotion.

    Attributes:
        agent: recurrent SAC. Without a memory (`MemoryConfig(kind="none")`) it observes the state
            only.
        world: the posterior.
        rollouts: continuation of logged histories.
        batch_size: timesteps of the tape of a gradient step.
        utd_ratio: gradient steps for each new timestep, real ones included.
        per_iteration: gradient steps of an iteration; the remainder is carried.
        buffer_size: timesteps of the tape buffer.
        weighting: which episodes a tape is made of; see `tapes.sample`. `transition`, single ones,
            is for agents without a memory.
        penalty: lambda, taken from imagined rewards in units of the mean spread over the dataset
            (the conservative ablation).
    """

    name: ClassVar[str] = "neubay"
    imagines: ClassVar[bool] = True
    agent: RecurrentSacConfig = RecurrentSacConfig()
    world: PosteriorConfig = PosteriorConfig()
    rollouts: HistoryRollouts = HistoryRollouts()
    steps: int = positive(2_000_000)
    batch_size: int = number(2048, least=2, expected="at least 2 timesteps: one transition")
    utd_ratio: float = number(0.05, above=0, most=1)
    per_iteration: int = positive(250)
    buffer_size: int = positive(40_000_000)
    weighting: Weighting = "episode"
    penalty: float = coefficient(0.0, least=0)

    def validate(self) -> None:
        if self.buffer_size < self.batch_size:
            expected = f"at least one tape of {self.batch_size} timesteps"
            raise ConfigError("buffer_size", self.buffer_size, expected)
        if self.weighting == "transition" and (not self.markov or self.batch_size % 2):
            found = f"a memory of kind {self.agent.memory.kind}, {self.batch_size} timesteps"
            expected = "no memory and an even number: a transition is two timesteps"
            raise ConfigError("weighting: transition", found, expected)

    @property
    def markov(self) -> bool:
        """Whether the agent is without a memory."""
        return self.agent.memory.kind == "none"

    @property
    def schedule(self) -> tuple[int, int]:
        """Iterations of the loop, and gradient steps of each."""
        return cadence(self.steps, self.per_iteration, 1)

    def program(self) -> Self:
        """The same with what is data of the compiled program at its defaults."""
        free = replace(self.rollouts, uncertainty_quantile=1.0)
        return replace(super().program(), world=PosteriorConfig(), rollouts=free)

    def fixed_length(self) -> bool:
        """The actor's rates fall to zero over the steps: a longer training is another one."""
        return True

    def add_to_report(self, report: Report, source: Any, cell: Cell) -> None:
        """Add tables and pictures of the posterior and of rollouts in it."""
        from ..neubay.report import add_posterior  # draws, and training does not

        add_posterior(report, source, cell)

    def prepare(self, task: Task, job: Job) -> Prepared:
        dataset, env, seeds = task.dataset, task.env, job.seeds
        check_updates(self, dataset.transitions, env, dataset.name)
        dynamics, worlds, stats, source = posterior_of(self, task, job)
        data, per_seed, sizes = neubay_data(
            self, dataset.transitions, worlds, stats, env, seeds=seeds, source=dataset.name
        )
        if job.context and job.context.progress:
            print(buffer_text(self, sizes, seeds), flush=True)
        return Prepared(
            make_neubay(self, dynamics, sizes),
            data,
            self.schedule[0],
            self.agent,
            env if self.markov else remembering(env),
            source,
            per_seed,
            reward=RewardScale(1.0, self.agent.reward_shift),
            save_every_seconds=seconds_between_saves(self, sizes, seeds),
        )


@dataclass(frozen=True, kw_only=True)
class NeubayMarkov(Neubay):
    """The ablation without a memory: the same loop and buffer, one learning rate, and single
    transitions; the published one learns from them too."""

    name: ClassVar[str] = "neubay_markov"
    agent: RecurrentSacConfig = RecurrentSacConfig(memory=MemoryConfig("none"), memory_lr=1e-4)
    weighting: Weighting = "transition"

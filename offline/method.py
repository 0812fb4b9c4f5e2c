"""A method: one frozen dataclass with everything it reads, which can be trained.

    class Mine(Method):                     # in a package of yours, announced by an entry point
        name = "mine"
        strength: float = coefficient(1.0, least=0)

        def prepare(self, task, job): ...   # -> Prepared: a learner and its data

Most methods need no `prepare`: `ModelFree` trains an agent on rows, `ModelBased` in rollouts of
world models, and both leave what makes a method to a few functions with defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from jaxrl_rollouts.configs import check, coefficients, positive, settings, unknown
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .agent import Learner
from .data import Dataset
from .data.transitions import RAW, RewardScale
from .environments import Environment
from .task import Source, Task
from .worlds.dynamics import Dynamics

if TYPE_CHECKING:
    from jaxrl_rollouts.compare.grid import Cell
    from jaxrl_rollouts.reports.report import Report


@dataclass(frozen=True)
class Job:
    """What is asked of a training, whatever its method.

    Attributes:
        seeds: trained side by side.
        seed: of the random numbers.
        evaluations: during the training, evenly spread.
        episodes: of an evaluation, per seed.
        context: a run whose folder keeps checkpoints; None trains in memory.
        dynamics: rolled in place of world models fitted here.
        world_models: parameters of `dynamics`, leading axis = seeds; `()` where it has none.
        sweep: values of a coefficient, trained side by side in one program.
    """

    seeds: int = positive(2)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(10)
    context: RunContext | None = field(default=None, compare=False)
    dynamics: Dynamics | None = field(default=None, compare=False)
    world_models: PyTree = field(default=(), compare=False)
    sweep: Mapping[str, tuple[float, ...]] = field(default_factory=dict, compare=False)

    @property
    def arms(self) -> int:
        """Combinations of the values that are swept."""
        return math.prod(len(values) for values in self.sweep.values())


class Prepared(NamedTuple):
    """A method bound to a dataset: what the loop takes, and what a result is made of.

    Attributes:
        learner: its functions.
        data: what it learns from.
        iterations: of the loop, each of `learner.updates` gradient steps.
        acts: settings of the agent that acts, as a policy's file has them.
        env: the environment as the agent sees it.
        source: what was learned from: a `Task`, or world models.
        per_seed: which parts of the data each seed has for itself, as for `loop.train`.
        about: further settings that checkpoints are compared by, by name.
        reward: the view of the rewards that was learned from.
        save_every_seconds: least time between two checkpoints.
    """

    learner: Learner
    data: PyTree
    iterations: int
    acts: Any
    env: Environment
    source: Source
    per_seed: PyTree = False
    about: Mapping[str, Any] = {}
    reward: RewardScale = RAW
    save_every_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's settings; see the module.

    Attributes:
        steps: gradient steps in all, rounded to whole iterations.
        batch_size: rows of a gradient step.
    """

    name: ClassVar[str]
    imagines: ClassVar[bool] = False  # rolls world models, whose episodes have to end
    reads_disk: ClassVar[bool] = False  # learns from rows that stay on the disk
    sweeps: ClassVar[bool] = False  # trains several values of a coefficient side by side
    steps: int = positive(1_000_000)
    batch_size: int = positive(256)

    def prepare(self, task: Task, job: Job) -> Prepared:
        """Fit what has to be fitted first, and bind the method to a dataset.

        Raises:
            ConfigError, DataError: what the method cannot do.
        """
        raise NotImplementedError

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise `ConfigError` or `DataError` where the method cannot learn from a dataset."""

    def add_to_report(self, report: Report, source: Source, cells: Mapping[str, Cell]) -> None:
        """Add tables and pictures of the method's own to the main job's report."""

    def program(self) -> Self:
        """The same with coefficients and length at their defaults: methods that are equal so share
        what is compiled."""
        free = {"steps", *coefficients(self)}
        return replace(self, **{f.name: f.default for f in fields(self) if f.name in free})

    def fixed_length(self) -> bool:
        """Whether a rate falls to zero over the steps, so that a longer training is another one."""
        known = settings(self).items()
        return any(value is True and name.rpartition(".")[2] == "cosine" for name, value in known)


def swept(method: Method, job: Job) -> dict[str, list[float]]:
    """Every coefficient's value in each arm of a sweep, `[arms]`; the last one varies fastest.

    Raises:
        ConfigError: a setting that is no coefficient of the method.
    """
    own = coefficients(method)
    for name in job.sweep:
        if name not in own:
            raise unknown("sweep", name, own)
    columns = {name: [float(value)] for name, value in own.items()}
    for name, values in job.sweep.items():
        for value in values:
            check(replace(method, **{name: value}))
        columns = {key: [x for x in found for _ in values] for key, found in columns.items()}
        count = len(columns[name]) // len(values)
        columns[name] = [float(value) for _ in range(count) for value in values]
    return columns


def cadence(steps: int, most: int, period: int, evaluations: int = 1) -> tuple[int, int]:
    """Iterations, and gradient steps of each, that come as near to `steps` as they can.

    Args:
        steps: gradient steps in all.
        most: of an iteration.
        period: of the agent: an iteration holds whole periods.
        evaluations: that there should be room for.
    """
    per = min(most, max(steps // evaluations, 1))
    per = max(per // period, 1) * period
    return max(round(steps / per), 1), per

"""What a method is: one frozen dataclass with everything it reads, which can be trained.

    class Mine(Method):                     # in a package of yours, announced by an entry point
        name = "mine"
        strength: float = coefficient(1.0, least=0)

        def prepare(self, setting, job): ...    # -> Prepared: a learner and its data

Most methods need not write `prepare`: `ModelFree` trains an agent on rows, `ModelBased` in rollouts
of world models, and both leave what makes a method to a few functions with defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

from jaxrl_rollouts.configs import coefficients, positive
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .agents.agent import Learner
from .environments import Environment
from .study.source import Setting


@dataclass(frozen=True)
class Job:
    """What is asked of a training, whatever its method.

    Attributes:
        seeds: trained side by side.
        seed: of the random numbers.
        evaluations: during the training, evenly spread.
        episodes: of an evaluation, per seed.
        context: a run whose folder keeps checkpoints; None trains in memory.
    """

    seeds: int = positive(2)
    seed: int = 0
    evaluations: int = positive(5)
    episodes: int = positive(10)
    context: RunContext | None = field(default=None, compare=False)


class Prepared(NamedTuple):
    """A method bound to a dataset: what the loop is given, and what a result is made of.

    Attributes:
        learner: its functions.
        data: what it learns from.
        iterations: of the loop, each of `learner.updates` gradient steps.
        acts: settings of the agent that acts, as a policy's file has them.
        env: the environment as the agent sees it.
        source: what was learned from: a `Setting`, or world models.
        per_seed: which parts of the data each seed has for itself, as for `loop.train`.
        about: more that checkpoints should know, by name.
        save_every_seconds: least time between two checkpoints; longer where states are large.
    """

    learner: Learner
    data: PyTree
    iterations: int
    acts: Any
    env: Environment
    source: Any
    per_seed: PyTree = False
    about: Mapping[str, Any] = {}
    save_every_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's settings; see the module.

    Attributes:
        steps: gradient steps in all, rounded to whole iterations.
        batch_size: rows of a gradient step.
    """

    name: ClassVar[str]
    steps: int = positive(1_000_000)
    batch_size: int = positive(256)

    def prepare(self, setting: Setting, job: Job) -> Prepared:
        """Fit what has to be fitted first, and bind the method to a dataset.

        Raises:
            ConfigError, DataError: what the method cannot do.
        """
        raise NotImplementedError

    def program(self) -> Self:
        """The same with coefficients and length at their defaults: methods that are equal so share
        what is compiled."""
        free = {"steps", *coefficients(self)}
        return replace(self, **{f.name: f.default for f in fields(self) if f.name in free})


def cadence(updates: int, most: int, period: int, evaluations: int = 1) -> tuple[int, int]:
    """Iterations, and gradient steps of each, that come as near to `updates` as they can.

    Args:
        updates: gradient steps in all.
        most: of an iteration.
        period: of the agent: an iteration holds whole periods.
        evaluations: that there should be room for.
    """
    per = min(most, max(updates // evaluations, 1))
    per = max(per // period, 1) * period
    return max(round(updates / per), 1), per

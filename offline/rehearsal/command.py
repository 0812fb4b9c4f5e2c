"""`jaxrl-rollouts run continual`: a sequence of tasks, and the effect of each selection rule.

jaxrl-rollouts run continual --sequence runner-builds --method td3_bc
jaxrl-rollouts run continual --sequence files --data a.hdf5 b.hdf5 --environments my:a my:b
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxrl_rollouts.compare.claims import claims
from jaxrl_rollouts.configs import number, positive, unknown
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from ..methods import METHODS
from ..recipes import recipe
from ..worlds.fit import WorldModelConfig
from .listing import CONTINUAL
from .result import Continual
from .selection import RULES
from .sequences import SEQUENCES
from .train import EVERYTHING, NOTHING, ContinualConfig, continual

_WORLD = WorldModelConfig(members=3, elites=3, hidden_dims=(64, 64), max_epochs=10)


@dataclass(frozen=True)
class Config:
    """A sequence of tasks, the method of their own policies, and the buffers.

    Attributes:
        sequence: generated: `plane-goals`, `pendulum-angles` (rewards differ) or
            `runner-builds` (dynamics differ); or `files`, those of `data`.
        data: with `files`, a dataset for each task, in their order.
        environments: with `files`, a simulator for each task; none where the datasets name them.
        rows: rows of each generated task.
        method: method that trains each task's own policy.
        steps: gradient steps of each task's own policy.
        hidden_dims: its networks, where the method has this setting; () keeps the method's.
        tau: rate of its target networks, where the method has this setting; None keeps the
            method's.
        buffers: contents of the buffers, and the network that rehearses them.
        seeds: trained side by side.
        seed: random seed.
    """

    sequence: str = "plane-goals"
    data: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    rows: int = positive(10_000)
    method: str = "td3_bc"
    steps: int = positive(10_000)
    hidden_dims: tuple[int, ...] = (64, 64)
    tau: float | None = number(None, above=0, most=1)
    buffers: ContinualConfig = field(
        default_factory=lambda: ContinualConfig(
            RULES, ("data", "policy"), hidden_dims=(64, 64), steps=1_500, world=_WORLD
        )
    )
    seeds: int = positive(2)
    seed: int = 0

    def validate(self) -> None:
        for name, found, known in (
            ("sequence", self.sequence, CONTINUAL.choices["sequence"]),
            ("method", self.method, METHODS),
        ):
            if found not in known:
                raise unknown(name, found, known)
        if (self.sequence == "files") != bool(self.data):
            found = f"{len(self.data)} datasets beside the sequence {self.sequence}"
            raise ConfigError("data", found, "datasets with --sequence files, and with no other")
        if self.environments and len(self.environments) != len(self.data):
            found = f"{len(self.environments)} of {len(self.data)} datasets"
            raise ConfigError("environments", found, "one for each, or none")


def tasks_of(config: Config) -> list[tuple[Any, Any]]:
    """A dataset and an environment for each task; None where the dataset names it."""
    if config.sequence != "files":
        return list(SEQUENCES[config.sequence](config.rows, config.seed))
    named = config.environments or (None,) * len(config.data)
    return list(zip(config.data, named, strict=True))


def run(config: Config, context: RunContext) -> Report:
    """Train all tasks and arms, and report them."""
    name: Any = config.method
    small = recipe(name, "small")
    options = {"hidden_dims": config.hidden_dims or None, "tau": config.tau}
    changes = {key: x for key, x in options.items() if x is not None and hasattr(small, key)}
    method = recipe(name, "small", steps=config.steps, **changes)
    given: Any = {"seeds": config.seeds, "seed": config.seed, "context": context}
    learned = continual(
        tasks_of(config), method, config.buffers, evaluations=1, episodes=2, **given
    )
    report = Report.of(context, config.seeds)
    report.table("arms", rows_of(learned), "Scores: 0 is uniform actions, 1 the tasks' policies.")
    own = zip(learned.tasks, learned.own, learned.random, strict=True)
    report.table("tasks", [{"task": t, "own policy": x, "uniform": float(u)} for t, x, u in own])
    _claims(report, learned)
    report.note(
        f"{len(learned.tasks)} tasks, buffers of {config.buffers.share:.3g} of a task's rows; "
        f"returns of {config.buffers.episodes} episodes from the same starts for every arm."
    )
    return report


def rows_of(learned: Continual) -> list[dict[str, Any]]:
    """A row for each arm: average score, backward transfer, forgetting, scores in each task."""
    rows = []
    for i, arm in enumerate(learned.arms):
        row: dict[str, Any] = {"arm": arm, "average": learned.average[i]}
        row |= {"backward transfer": learned.backward[i], "forgetting": learned.forgetting[i]}
        last = zip(learned.tasks, learned.scores[i, -1], strict=True)
        rows.append(row | {f"score in {task}": score for task, score in last})
    return rows


def _claims(report: Report, learned: Continual) -> None:
    """Claims with thresholds fixed before the runs of `experiments/results/continual.md`."""
    if len(learned.tasks) < 2:
        return
    back = dict(zip(learned.arms, learned.backward, strict=True))
    claim = claims(report, f"thresholds of this project; after {CONTINUAL.source}")
    if {"mbes, data", "random, data"} <= {*back}:
        claim(
            "mbes keeps more than random rows do",
            back["mbes, data"] - back["random, data"],
            at_least=0.05,
            means="backward transfer, as a share of the range from uniform to own policies",
        )
    stored = [back[arm] for arm in back if arm.endswith(", policy")]
    if stored:
        claim(
            "with the policy's actions every rule keeps the tasks",
            -np.min(stored, 0),
            at_most=0.05,
            means="what the worst rule loses, as a share of the same range",
        )
    if NOTHING in back:
        claim(
            "without a buffer tasks are forgotten",
            learned.forgetting[learned.arms.index(NOTHING)],
            at_least=0.3,
            means="forgetting, as a share of the same range",
        )
    if EVERYTHING in back:
        report.number("average with all rows", learned.average[learned.arms.index(EVERYTHING)])


_SMOKE = ContinualConfig(
    ("random", "policy"), ("data", "policy"), hidden_dims=(8,), steps=20, episodes=2
)
EXPERIMENT = CONTINUAL.experiment(
    Config,
    {"smoke": Config(rows=600, steps=20, hidden_dims=(8,), buffers=_SMOKE), "small": Config()},
    run,
)

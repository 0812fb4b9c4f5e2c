"""`train` with some settings of a recipe changed, under the recipe's preset."""

from __future__ import annotations

from typing import Any

from jaxrl_rollouts.offline import job
from jaxrl_rollouts.offline.behaviours.made import load, undeclared
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.job import method_of
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.recipes import LOOKS
from jaxrl_rollouts.offline.result import TrainResult

ASKED = ("seeds", "seed", "evaluations", "episodes", "context")
ASKED += ("dynamics", "world_models", "sweep")


def train(
    dataset: Any, method: Any, *, preset: Any = None, environment: Any = None, **options: Any
) -> TrainResult:
    """What is no argument of `offline.train` is a setting of the method."""
    asked = {name: options.pop(name) for name in ASKED if name in options}
    if set(options) <= {"steps"}:
        more: Any = {**asked, **options, "environment": environment}
        return job.train(dataset, method, preset=preset, **more)
    if not isinstance(dataset, Dataset):
        dataset = load(dataset, **undeclared(dataset))
    settings, name = method_of(method, preset, dataset, options)
    looks = {n: getattr(LOOKS[name], n) for n in ("seeds", "evaluations", "episodes")}
    return job.train_method(dataset, settings, Job(**looks | asked), environment, preset=name)

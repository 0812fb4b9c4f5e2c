"""A small dataset, the smallest settings of every method, and `train` with a recipe changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from jaxrl_rollouts.offline import job
from jaxrl_rollouts.offline.behaviours.made import load, undeclared
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.job import method_of
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods import METHODS
from jaxrl_rollouts.offline.recipes import LOOKS as PRESET_LOOKS
from jaxrl_rollouts.offline.result import TrainResult

NETWORKS = {"hidden_dims": (8,), "weight_decay": (2.5e-5,), "batch_size": 64, "max_epochs": 1}
WORLD: dict[str, Any] = {**NETWORKS, "members": 3, "elites": 2}
# Two gradient steps of the smallest networks, whatever the method and its preset.
TINY: dict[str, Any] = {"steps": 2, "batch_size": 8}
TINY_WORLD: dict[str, Any] = {
    "agent": {"hidden_dims": (8,)},
    "world": {**WORLD, "min_epochs": 0, "holdout_rows": 50},
    "rollouts": {"length": 2, "batch_size": 6, "every": 2},
}
LOOKS: dict[str, Any] = {"seeds": 2, "evaluations": 1, "episodes": 2}

ASKED = ("seeds", "seed", "evaluations", "episodes", "context")
ASKED += ("dynamics", "world_models", "sweep")


def dataset(rows: int = 600) -> Dataset:
    made = pendulum_mixed(jax.random.key(0), rows)
    # Rewards above zero: MOBILE's published targets are at least 0.
    made = made._replace(rewards=made.rewards + 20)
    return Dataset("pendulum-mixed", made, "pendulum", Path("(made)"), "")


# What they fit or act first is small in their smoke presets only.
FITTED_FIRST = ("neubay", "neubay_markov", "synther", "pgd", "planner", "online_sac")


def changes(name: str) -> dict[str, Any]:
    if name in FITTED_FIRST:
        return {}
    own: dict[str, Any] = TINY_WORLD if METHODS[name].imagines else {"hidden_dims": (8,)}
    if name == "admpo":  # its world model is another one
        own = {part: own[part] for part in ("agent", "rollouts")}
    return {**TINY, **own} | ({"num_samples": 2} if name == "mobile" else {})


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
    looks = {n: getattr(PRESET_LOOKS[name], n) for n in ("seeds", "evaluations", "episodes")}
    return job.train_method(dataset, settings, Job(**looks | asked), environment, preset=name)

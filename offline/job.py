"""The library's top floor: a dataset and a method, and out comes what was trained.

outcome = train("hopper-medium-v2", "ravl", preset="small", seeds=4)
outcome.returns, outcome.true_value, outcome.estimated_value      # [seeds] each
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext

from .behaviours.made import load_dataset
from .data import Dataset
from .method import Job, Method
from .recipes import method_of
from .study.config import keys_of
from .study.outcome import Outcome, finish, judge
from .study.setting import environment_of, naming_extremes, verify_checksum
from .study.source import Setting, slug
from .training import train_learner


def train(
    dataset: Any,
    method: str | Method | type[Method] = "mopo",
    *,
    preset: str | None = None,
    seeds: int = 2,
    seed: int = 0,
    steps: int | None = None,
    evaluations: int = 5,
    episodes: int = 10,
    environment: Any = None,
    context: RunContext | None = None,
) -> Outcome:
    """Train a method on a dataset, play its policy in the true environment, save both.

    Args:
        dataset: a `Dataset`, or what `load` takes.
        method: a name, whose settings are the preset's, or settings, which say everything.
        preset: `small` unless given, `long` or `paper`.
        seeds: side by side.
        seed: of the random numbers.
        steps: gradient steps, instead of the method's.
        evaluations, episodes: looks at the policy while training, and episodes of each.
        environment: where to play; None takes what the dataset says, "none" has no simulator.
        context: a run whose folder keeps checkpoints and policies.

    Raises:
        ConfigError, DataError, DivergenceError, Interrupted: see `jaxrl_rollouts.errors`.
    """
    dataset = dataset if isinstance(dataset, Dataset) else load_dataset(dataset, seed)
    changes = {} if steps is None else {"steps": steps}
    settings, called = method_of(method, preset, dataset.name, **changes)
    job = Job(seeds, seed, evaluations, episodes, context)
    return train_method(dataset, settings, job, environment, preset=called)


def train_method(
    dataset: Dataset, method: Method, job: Job, environment: Any = None, *, preset: str = ""
) -> Outcome:
    """`train` with everything said."""
    check(method)
    check(job)
    env, context = environment_of(dataset, environment), job.context
    verify_checksum(dataset, context)
    with naming_extremes(dataset):
        made = method.prepare(Setting(dataset, env), job)
        train_key, play_key = keys_of(job.seed)
        stage = f"{slug(dataset.name)}-{method.name}"
        keep = judge(
            made.learner, made.source, made.env, play_key, job.episodes, made.acts.discount
        )
        trained = train_learner(
            made.learner,
            made.data,
            train_key,
            seeds=job.seeds,
            iterations=made.iterations,
            per_seed=made.per_seed,
            evaluate=keep,
            evaluate_at=evenly(made.iterations, job.evaluations),
            stage=stage,
            context=context,
            save_every_seconds=made.save_every_seconds,
            about={"method": method.name, method.name: replace(method, steps=1), **made.about},
        )
        outcome = finish(
            trained, made.learner, made.acts, method.name, made.source, made.env,
            stage=stage, context=context, best=keep,
        )  # fmt: skip
    return outcome._replace(about={**outcome.about, "preset": preset, "settings": method})

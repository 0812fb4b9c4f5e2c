"""The library's top floor: a dataset and a method go in, a trained and evaluated policy comes out.

result = train("hopper-medium-v2", "ravl", preset="small", seeds=4)
result.returns, result.true_value, result.estimated_value      # [seeds] each
action = result.policy(0)(observation)                         # numpy in and out
result.save("somewhere")                                       # and load_policy("somewhere")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from numpy.typing import ArrayLike

from jaxrl_rollouts.configs import check, coefficients
from jaxrl_rollouts.devices import check_devices, unused_cores
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.progress import interactive
from jaxrl_rollouts.trees import PyTree

from .arms import sweep_of
from .behaviours.made import HasEpisodes, load, undeclared
from .data import Dataset
from .environments import Environment
from .matching import EnvironmentLike, matched
from .method import Job, Method
from .methods import METHODS, MethodName
from .recipes import LOOKS, OWN, Preset, benchmark_of, changed, differences, published, recipe
from .result import TrainResult, finish
from .task import Task, check_rewards, keys_of, naming_extremes, slug, verify_checksum, warnings_of
from .training import OnEvaluation, make_evaluator, train_learner
from .worlds.dynamics import Dynamics

DatasetLike = Dataset | str | Path | Mapping[str, ArrayLike] | HasEpisodes


def train(
    dataset: DatasetLike,
    method: MethodName | Method | type[Method] = "mopo",
    *,
    preset: Preset | None = None,
    steps: int | None = None,
    seeds: int | None = None,
    seed: int = 0,
    evaluations: int | None = None,
    episodes: int | None = None,
    environment: EnvironmentLike | None = None,
    dynamics: Dynamics | None = None,
    world_models: PyTree = (),
    sweep: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]] | None = None,
    context: RunContext | None = None,
    on_divergence: OnDivergence = "drop",
    progress: bool | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> TrainResult:
    """Fit world models where the method has some, train, evaluate in the environment, save.

    Args:
        dataset: a `Dataset`, a name, a path, a mapping of arrays, or a Minari dataset.
        method: a name, whose settings are the preset's; or settings, which are whole:
            `recipe("cql", "small", weight=10.0)`.
        preset: `smoke`, `small` unless given, `long` or `paper`.
        steps: gradient steps; None takes the method's.
        seeds: trained side by side; None takes the preset's, as for the next two.
        seed: random seed.
        evaluations: during the training, evenly spread.
        episodes: episodes per evaluation and seed.
        environment: evaluation environment; None: the dataset's; "none": no simulator.
        dynamics: dynamics in place of world models fitted here: `fit_world_models(...).dynamics`,
            `true_dynamics`, or your own.
        world_models: parameters of `dynamics`, leading axis = seeds; `()` where it has none.
        sweep: values of a method's coefficients, `{"penalty": (1, 2, 5)}`, trained side by side in
            one program in all combinations, with seeds of their own. Or a list of settings,
            `[{"penalty": 1}, {"penalty": 5}]`, each of which has the numbers of a training of its
            own, to rounding. The result has as many times `seeds`, of which seeds vary fastest.
        context: a run whose folder keeps checkpoints and policies; an interrupted run resumes from
            there. None leaves nothing behind.
        on_divergence: treatment of a seed whose numbers become non-finite. It is dropped: the
            others continue with the same bits, its numbers and policy are NaN. Or it ends the
            training, "raise".
        progress: show it, without a `context`, which has its own setting; None shows it on a
            terminal and in a notebook.
        on_evaluation: called after every evaluation with the gradient steps so far and the metrics,
            `[seeds]` each: `on_evaluation=lambda step, found: print(step, found["return"])`. An
            exception in it ends the training.

    Raises:
        ConfigError: an unknown method, preset or setting, or one out of range.
        DataError: the dataset cannot be read, or does not fit its environment or the method.
        DivergenceError: training became non-finite, in the last of the seeds if they are dropped.
        Interrupted: the context's stop flag was raised; the run can be resumed.
    """
    check_devices()
    if not isinstance(dataset, Dataset):
        dataset = load(dataset, seed, **undeclared(dataset))
    changes = {} if steps is None else {"steps": steps}
    settings, name = method_of(method, preset, dataset, changes)
    looks = LOOKS[name]
    job = Job(
        looks.seeds if seeds is None else seeds,
        seed,
        looks.evaluations if evaluations is None else evaluations,
        looks.episodes if episodes is None else episodes,
        context,
        dynamics,
        world_models,
        sweep_of(sweep) if sweep else {},
        on_divergence,
    )
    with ExitStack() as closing:
        if context is None and (interactive() if progress is None else progress):
            # Progress belongs to a run; this one is of a folder that goes with it.
            folder = closing.enter_context(TemporaryDirectory(prefix="jaxrl-rollouts-"))
            job = replace(job, context=RunContext(RunFolder.at(folder, "train")))
        result = train_method(
            dataset, settings, job, environment, preset=name, on_evaluation=on_evaluation
        )
    return result


def train_method(
    dataset: Dataset,
    method: Method,
    job: Job,
    environment: EnvironmentLike | None = None,
    *,
    preset: str = "",
    on_evaluation: OnEvaluation | None = None,
) -> TrainResult:
    """`train` with a `Dataset`, whole settings and a `Job`."""
    check(method)
    check(job)
    context = job.context
    dataset, env = matched(dataset, environment)
    verify_checksum(dataset, context)
    check_dataset(dataset, method, job)
    if context and context.progress:
        for fact in facts_of(dataset, method, job, env, preset):
            print(fact, flush=True)
    with naming_extremes(dataset):
        made = method.prepare(Task(dataset, env), job)
        train_key, play_key = keys_of(job.seed)
        keep = make_evaluator(made, play_key, job.episodes, on_evaluation, job.repeats)
        stage = f"{slug(dataset.name)}-{slug(method.name)}"
        # A training that is continued beyond its length is the same one.
        kept = method if method.fixed_length() else replace(method, steps=1)
        trained = train_learner(
            made.learner,
            made.data,
            train_key,
            seeds=job.arms * job.seeds,
            repeats=job.repeats,
            iterations=made.iterations,
            per_seed=made.per_seed,
            evaluate=keep,
            evaluate_at=evenly(made.iterations, job.evaluations),
            stage=stage,
            context=context,
            save_every_seconds=made.save_every_seconds,
            about={"method": method.name, method.name: kept, "sweep": job.sweep, **made.about},
            on_divergence=job.on_divergence,
        )
    return finish(
        trained,
        made,
        method,
        keep,
        stage=stage,
        context=context,
        preset=preset,
        differs=differences(method, dataset),
    )


def check_dataset(dataset: Dataset, method: Method, job: Job) -> None:
    """Raise where a method cannot learn from a dataset."""
    check_rewards(dataset, method.name)
    if dataset.rows_file is not None and not method.reads_disk:
        hint = "methods without a world model read them while training"
        raise ConfigError("stream", "rows on disk", f"rows in memory for {method.name}", hint)
    if job.dynamics is not None and not method.imagines:
        raise ConfigError(
            "dynamics", "given", f"none for {method.name}, which rolls no world model"
        )
    if job.dynamics is not None and dataset.offset is not None:
        found = "given, in units of which nothing is known"
        hint = "subtract an offset from the data and in the dynamics yourself"
        raise ConfigError("dynamics", found, "none for data less an offset", hint)
    if job.sweep and not (method.sweeps and coefficients(method)):
        names = job.sweep if isinstance(job.sweep, Mapping) else set().union(*job.sweep)
        raise ConfigError("sweep", ", ".join(sorted(names)), f"none for {method.name}")
    if dataset.rows_file is None:
        method.check_dataset(dataset)


def facts_of(
    dataset: Dataset, method: Method, job: Job, env: Environment, preset: str
) -> list[str]:
    """Sentences that a user should read before the numbers of a training."""
    facts = warnings_of(dataset, env, getattr(method, "world", None), imagines=method.imagines)
    facts += filter(None, [unused_cores(job.arms * job.seeds)])
    what = f"{method.name}, preset {preset or 'none'}"
    facts.append(f"{what}: {method.steps:,} gradient steps, {job.arms * job.seeds} seeds.")
    if preset == "paper" and not published(type(method), dataset):
        where = "a benchmark" if benchmark_of(dataset) is None else f"{method.name}'s table"
        facts.append(f"{dataset.name} is not in {where}: the paper's general settings.")
    return facts


def method_of(
    method: MethodName | Method | type[Method],
    preset: Preset | None,
    dataset: Dataset,
    changes: Mapping[str, object],
) -> tuple[Method, str]:
    """The settings that `train` was given, by name and preset or as they are, and their name."""
    if isinstance(method, str):
        asked: Preset = preset or "small"
        return recipe(method, asked, dataset, **changes), asked
    if preset is not None:
        name = getattr(method, "name", "method")
        expected = "none beside settings, which are whole"
        raise ConfigError("preset", preset, expected, f'recipe("{name}", "{preset}", ...)')
    made = method() if isinstance(method, type) else method
    if not isinstance(made, Method):
        expected = f"a name or settings of {', '.join(METHODS)}"
        raise ConfigError("method", type(made).__name__, expected)
    return changed(made, changes) if changes else made, OWN

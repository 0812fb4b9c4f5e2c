"""A dataset and its environment: whether they match, terminations, returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError, DataError, DivergenceError
from jaxrl_rollouts.feeds import blocks
from jaxrl_rollouts.record.context import RunContext

from .data import Dataset, episode_returns, episodes
from .data.bounds import is_unit
from .data.inspection import bounds_text
from .data.odd import extremes, odd_changes, rows_in_file
from .data.references import OWN, Returns, normalised_score
from .environments import Environment
from .environments.offset import of_shifted
from .environments.terminations import (
    Termination,
    WrongLayoutError,
    family,
    goal_of,
    never,
    termination_function,
)
from .matching import is_simulator

if TYPE_CHECKING:
    from .worlds.endings import TerminationConfig

CONTRADICTED = 0.05  # share of rows inside episodes, above which a rule is another environment's
FEW = 0.1  # share of the rows up to which odd changes are reported before a training
# Of which names of environments are others' as well.
OTHER_ENGINES = ("brax", "gymnax", "playground")
WITHOUT_REWARDS = ("bc", "online_sac")  # methods that read none


class Source(Protocol):
    """What a method learns from: a dataset and its environment, perhaps with world models."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def env(self) -> Environment: ...


class Task(NamedTuple):
    """A dataset and the environment it is from.

    Attributes:
        dataset: the rows.
        env: environment of the policy's evaluation; without a simulator it has the sizes only.
        synthetic: the rows that replaced the dataset's own, in a sentence; "" for none.
    """

    dataset: Dataset
    env: Environment
    synthetic: str = ""


class Endings(Protocol):
    """How imagined episodes end; part of a `WorldModelConfig`."""

    @property
    def termination(self) -> str: ...

    @property
    def ending(self) -> TerminationConfig: ...


def check_rewards(dataset: Dataset, method: str) -> None:
    """`DataError` where a method needs rewards and the dataset has none (OGBench's plain sets)."""
    if dataset.attributes.get("rewards") == "none" and method not in WITHOUT_REWARDS:
        expected = f"rewards for {method} to learn from"
        hint = "take a single-task dataset, or give arrays with rewards to from_arrays"
        raise DataError(dataset.name, "rewards", "none in the file", expected, hint)


def verify_checksum(dataset: Dataset, context: RunContext | None) -> None:
    """`DataError` where a resumed run would be trained on other data than before.

    What is made on the spot has no file that could change.
    """
    if context and dataset.sha256:
        context.folder.hold(dataset.name, sha256=dataset.sha256)


def termination_of(
    dataset: Dataset, env: Environment, config: Endings
) -> Termination | TerminationConfig:
    """How model rollouts end: the known rule, or where there is none that of a learned one."""
    if config.termination == "learned":
        return config.ending
    rule, where, rows = env.termination, env.name, dataset.transitions
    if rule is None and not is_simulator(env) and dataset.environment is not None:
        where = dataset.environment
        if (rule := goal_of(where, rows)) is not None:
            return rule
        try:
            rule = termination_function(where, rows.observations.shape[1])
            rule = rule if dataset.offset is None else of_shifted(rule, dataset.offset)
        except WrongLayoutError:
            raise
        except ConfigError:
            return config.ending
    if rule is None:
        return config.ending
    check_rule(rule, where, dataset.name, dataset.with_successors)
    return rule


def line_of(dataset: Dataset, env: Environment | None) -> str:
    """One line on a dataset and its environment."""
    where = f", played in {env.name}" if env is not None and is_simulator(env) else ""
    return f"{dataset.name}: {len(dataset.transitions.rewards):,} transitions{where}"


def warnings_of(
    dataset: Dataset, env: Environment, config: Endings | None, *, imagines: bool
) -> list[str]:
    """What a user should know of a training before its numbers, a sentence each."""
    facts = [f"{one} Check it before you use results." for one in extreme_facts(dataset)]
    facts += odd_facts(dataset)
    if read_as := dataset.attributes.get("read_as"):
        facts.append(str(read_as))
    if dataset.offset is not None:
        listed = ", ".join(f"{x:,.6g} of entry {i}" for i, x in enumerate(dataset.offset) if x)
        facts.append(
            f"{dataset.name}: observations are less {listed}, subtracted in float64, as float32 "
            "would round their changes; the environment's and the policy's are, too."
        )
    if ends := dataset.attributes.get("ends_alone"):
        facts.append(
            f"{dataset.name}: the successors of the {int(ends)} terminal rows are not in the data. "
            "Values use these terminals, dynamics models do not, and "
            "no termination rule can be learned. Give next_observations."
        )
    if (file := dataset.rows_file) is not None:
        size = f"{file.stat().st_size / 1e9:,.3g} GB"
        facts.append(f"Rows stay on the disk and are read while training ({size}: {file}).")
    if text := bounds_text(dataset):
        low, high = np.asarray(dataset.action_low), np.asarray(dataset.action_high)
        if not is_unit(low, high):
            of = dataset.attributes.get("bounds_from")
            why = "the declared " if of is None else f"the bounds of {of}, as none are declared: "
            facts.append(f"Actions were rescaled to [-1, 1] from {why}{text}.")
    if imagines and config is not None and not callable(termination_of(dataset, env, config)):
        why = "" if config.termination == "learned" else " (no rule is known)"
        facts.append(f"The termination of imagined episodes is learned from the dataset{why}.")
    facts += env.notes
    if not is_simulator(env):
        facts.append(
            "Not evaluated: trained without a simulator. environment= (--environment) sets one to "
            "evaluate in."
        )
    return facts


def extreme_facts(dataset: Dataset) -> list[str]:
    """A sentence for each column of a dataset with numbers that are no measurement."""
    return [
        f"{dataset.name}: {one.array} has {one.count:,} "
        f"{'numbers that stand for missing ones' if one.hint else 'extreme number(s)'}, first in "
        f"row {one.rows[0]}{' (' + one.hint + ')' if one.hint else ''}."
        for one in extremes(dataset)
    ]


def odd_facts(dataset: Dataset) -> list[str]:
    """A sentence for each kind of change that is unlike the others, where these rows are few, and
    of successors that are not the row that follows."""
    if dataset.rows_file is not None:  # they would be read whole
        return []
    return [
        f"{dataset.name}: {one.array}: {one.kind}: {one.count:,} row(s), first "
        f"{rows_in_file(dataset, one.rows)[0]}"
        f"{'; ' + one.hint if one.hint else ''}."
        for one in odd_changes(dataset)
        if one.count <= FEW * len(dataset) or one.array == "next_observations"
    ]


@contextmanager
def naming_extremes(dataset: Dataset) -> Iterator[None]:
    """Say with a divergence which columns of the data are extreme: they may be why."""
    try:
        yield
    except DivergenceError as error:
        extreme = " ".join(extreme_facts(dataset))
        if not extreme:
            raise
        raise DivergenceError(f"{error}; {extreme}") from error


def behaviour(source: Source, discount: float = 1.0) -> np.ndarray:
    """Returns of a dataset's whole episodes, `[episodes]`, without those that were cut short.

    They are counted over as many steps as an episode of the environment has.
    """
    rows = source.dataset.transitions
    parts = episodes(rows)
    whole = parts.terminated | (parts.lengths >= source.env.max_episode_steps)
    # A set without one whole episode (a short prefix) has only cut ones to compare with.
    returns = episode_returns(rows, discount, source.env.max_episode_steps)
    return returns[whole if whole.any() else slice(None)]


def is_own(dataset: Dataset, env: Environment) -> bool:
    """Whether an environment is the one that a dataset is from, in some version.

    A simulator of another engine is not, unless the data are from it.
    """
    kept = all(key in dataset.attributes for key in OWN)
    home = (dataset.environment or dataset.name) if kept else dataset.name
    engine = env.name.partition("/")[0]
    other = engine in OTHER_ENGINES and not (dataset.environment or "").startswith(engine)
    return is_simulator(env) and family(home) in env.name.lower() and not other


def score_in(dataset: Dataset, env: Environment, returns: Returns) -> Returns | None:
    """The `normalised_score` of returns in a dataset's own environment; None in any other."""
    return normalised_score(dataset, returns) if is_own(dataset, env) else None


def starts_of(dataset: Dataset, most: int = 256) -> np.ndarray:
    """First observations of a dataset's first episodes, `[B, S]`."""
    rows = dataset.transitions
    return np.asarray(rows.observations[episodes(rows).starts][:most])


def slug(name: str) -> str:
    """A dataset name as part of a folder or picture name."""
    return "".join(c if c.isalnum() or c == "-" else "-" for c in name.split("/")[-1])


def keys_of(seed: int) -> tuple[jax.Array, jax.Array]:
    """Keys of the training and of the evaluations; the same for every method."""
    train_key, play_key = jax.random.split(jax.random.fold_in(as_key(seed, "seed"), 1))
    return train_key, play_key


def check_rule(rule: Termination, environment: str, dataset: str, rows: Any) -> None:
    """Compare a rule with the ends of a dataset before model rollouts rely on it."""
    if rule is never:
        return
    going = ~np.asarray(rows.terminations, bool)
    wrong = 0
    for part in blocks(len(going)):
        columns = (rows.observations[part], rows.actions[part], rows.next_observations[part])
        ended = np.asarray(rule(*(jnp.asarray(column) for column in columns)))
        wrong += int((ended & going[part]).sum())
    if wrong > CONTRADICTED * max(going.sum(), 1):
        found = f"the rule of {environment} ends {wrong:,} of {going.sum():,} rows inside episodes"
        expected = "a rule that agrees with the terminations of the data"
        hint = (
            "the columns have another order or other units than that environment's; "
            "termination=learned (--study.termination learned) learns the ends from the data"
        )
        raise DataError(dataset, "termination", found, expected, hint)

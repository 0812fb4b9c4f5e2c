"""The value of a policy from logged data, by fitted Q evaluation; the learner is `fitted_q`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.finite import OnDivergence
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.scaler import fit_scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Dataset, to_device
from ..data.offsets import in_order, with_offset
from ..data.transitions import episodes
from ..fitted_q import CONSTANTS, PER_ITERATION, Fqe, FqeConfig, FqeData, make_fqe
from ..method import Agent
from ..result import TrainResult
from ..task import slug, starts_of


class FqeValue(NamedTuple):
    """Discounted values of the policies of all seeds, from where the dataset's episodes start.

    Attributes:
        value: `[seeds]`, mean over the critics, in the dataset's own rewards.
        by_member: `[seeds, K]`, of each critic.
        clipped: `[seeds]`, share of the last targets that lay outside the bounds: above a fifth the
            critics have diverged.
    """

    value: np.ndarray
    by_member: np.ndarray
    clipped: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Deviation over the critics, `[seeds]`."""
        return self.by_member.std(1)


def fqe(
    result: TrainResult,
    dataset: Dataset | None = None,
    config: FqeConfig | None = None,
    *,
    seed: int = 0,
    context: RunContext | None = None,
) -> FqeValue:
    """Evaluate the policies of a training by fitted Q evaluation.

    Args:
        result: result of a method without a memory; all its seeds are evaluated side by side.
        dataset: rows to evaluate on; None takes those that it learned from.
        config: settings.
        seed: seed of the bootstrap, the critics and the policies' actions.
        context: a run whose folder keeps checkpoints; None evaluates in memory.

    Returns:
        Values in the dataset's own rewards, whatever view of them the method learned from.

    Raises:
        ConfigError: a method with a memory, or fewer than three time constants of training.
        DivergenceError: the critics became non-finite.
    """
    config = config or FqeConfig()
    discount = result.config.discount if config.discount is None else config.discount
    own = result.source.dataset
    found = evaluated(
        result.agent,
        result.actors,
        own if dataset is None else with_offset(in_order(dataset, own.columns), own.offset),
        replace(config, discount=discount),
        name=result.about["method"],
        seed=seed,
        context=context,
    )
    return found.value()


class Evaluated(NamedTuple):
    """Critics of the policies of all seeds, and what gives their values.

    Attributes:
        functions, data, target: those of this module; the target critics' leaves are `[seeds, K,
            ...]`.
        actors: `[seeds, ...]`.
        unit: unit of the values, in the dataset's own rewards.
        clipped: `[seeds]`, as `FqeValue` has it.
        starts: `[B, S]`, where the dataset's episodes start.
        key: key of the policies' actions.
    """

    functions: Fqe
    data: FqeData
    target: PyTree
    actors: PyTree
    unit: float
    clipped: np.ndarray
    starts: np.ndarray
    key: jax.Array

    def at(self, states: np.ndarray) -> np.ndarray:
        """Values of states `[B, S]`, `[seeds, K, B]` in the dataset's own rewards."""
        keys = jax.random.split(self.key, len(self.clipped))
        given = self.target, self.actors, self.data.scaler, keys, jnp.asarray(states)
        return self.unit * np.asarray(self.functions.state_values(*given), np.float64)

    def of(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Values of actions `[B, A]` in states `[B, S]`, `[seeds, K, B]`, likewise."""
        given = self.target, self.data.scaler, jnp.asarray(states), jnp.asarray(actions)
        return self.unit * np.asarray(self.functions.action_values(*given), np.float64)

    def value(self) -> FqeValue:
        """Mean over the start states."""
        by_member = self.at(self.starts).mean(2)
        return FqeValue(by_member.mean(1), by_member, self.clipped)


def evaluated(
    agent: Agent,
    actors: PyTree,
    dataset: Dataset,
    config: FqeConfig,
    *,
    name: str = "policy",
    seed: int = 0,
    context: RunContext | None = None,
    on_divergence: OnDivergence = "raise",
) -> Evaluated:
    """`fqe` of any agent; `actors` are `[seeds, ...]`, and `config.discount` is a number."""
    check(config)
    if jax.tree.leaves(agent.memory(1)):
        raise ConfigError("result", name, "a method without a memory")
    discount = config.discount
    assert discount is not None, "of a training or of the settings"
    least = round(CONSTANTS / (config.tau * (1.0 - discount)))
    if config.steps < least:
        raise ConfigError("steps", config.steps, f"at least {least:,}: three time constants")
    policies = len(jax.tree.leaves(actors)[0])
    key, boot_key, act_key = jax.random.split(as_key(seed, "seed"), 3)
    data, unit = fqe_data(dataset, actors, discount, config.members, boot_key)
    sizes = tuple(int(x.shape[1]) for x in (data.rows.observations, data.rows.actions))
    functions = make_fqe(config, agent, sizes, discount)
    iterations = -(-config.steps // PER_ITERATION)
    trained = train_loop(
        functions.update,
        functions.init,
        jax.random.split(key, policies),
        data,
        per_seed=FqeData(False, False, True, False, False),  # type: ignore[arg-type]
        iterations=iterations,
        stage=f"{slug(dataset.name)}-fqe-{slug(name)}",
        units_per_iteration=PER_ITERATION,
        context=context,
        about={"fqe": config, "method": name, "seed": seed},
        on_divergence=on_divergence,
    )
    clipped = np.asarray(trained.history.last("clipped"), np.float64)
    target, starts = trained.state.target, starts_of(dataset)
    return Evaluated(functions, data, target, actors, unit, clipped, starts, act_key)


def fqe_data(
    dataset: Dataset, actors: PyTree, discount: float, members: int, key: jax.Array
) -> tuple[FqeData, float]:
    """Rows with rewards over their deviation, a bootstrap of the episodes, and that deviation."""
    rows = dataset.with_successors
    rewards = np.asarray(rows.rewards, np.float64)
    unit = float(rewards.std()) or max(float(np.abs(rewards).max()), 1.0)
    parts = episodes(rows)
    count = len(parts.starts)
    drawn = jax.random.randint(key, (members, count), 0, count)
    times = jax.vmap(lambda x: jnp.bincount(x, length=count))(drawn)
    weights = jnp.repeat(times.astype(jnp.float32), jnp.asarray(parts.lengths), axis=1)
    low, high = rewards.min() / unit, rewards.max() / unit
    # The rewards for ever; where an episode terminates, a value may be that of a single step.
    lengths = [1.0 / (1.0 - discount)] + [1.0] * bool(np.asarray(rows.terminations).any())
    sums = np.outer((low, high), lengths)
    bounds = jnp.asarray([sums.min(), sums.max()], jnp.float32)
    device = to_device(rows._replace(rewards=(rewards / unit).astype(np.float32)))
    return FqeData(device, weights, actors, fit_scaler(device.observations), bounds), unit

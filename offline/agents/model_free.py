"""Methods without a world model: an agent on the rows of the dataset.

That is BC, SAC-N, EDAC, CQL, TD3+BC, IQL, ReBRAC, FQL or the planner. A method is
`class Iql(IqlConfig, ModelFree)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.feeds import Drawn, Prefetcher, scattered
from jaxrl_rollouts.scaler import Scaler, fit_scaler_by_blocks

from ..arms import Swept, with_coefficients
from ..data import Dataset, Transitions, sample_batch, to_device
from ..data.streamed import columns_of
from ..data.transitions import RewardScale, RewardView, drawn_rows, reward_scale, rows_at
from ..method import (
    Agent,
    AgentConfig,
    Job,
    Learner,
    Method,
    Prepared,
    cadence,
    first_state,
    learn,
    step_keys,
)
from ..task import Task


@dataclass(frozen=True, kw_only=True)
class ModelFree(Method):
    """An agent on rows; a method is `class Iql(IqlConfig, ModelFree)`.

    Attributes:
        reward: view of the rewards that is learned from: `raw`; `iql`, times 1000 over the
            difference of the highest and lowest return; `minus_one`; `standard`, of mean 0 and
            deviation 1; or a scale and a shift.
        per_iteration: gradient steps of one iteration of the loop at most.
        unroll: gradient steps in one pass of the compiled loop. More leave a GPU less idle between
            kernels, take longer to compile, and may round differently.
    """

    reads_disk: ClassVar[bool] = True
    sweeps: ClassVar[bool] = True
    reward: RewardView = "raw"
    per_iteration: int = positive(1000)
    unroll: int = positive(1)

    def make(self, observation_size: int, action_size: int, steps: int | None = None) -> Agent:
        """The agent; every agent's settings have it."""
        raise NotImplementedError

    def rows(self, transitions: Transitions) -> Any:
        """What the agent learns from, on the host."""
        return transitions

    def for_synthetic_rows(self) -> Self:
        """The same for rows whose successors are unknown."""
        return self

    @property
    def acts(self) -> AgentConfig:
        """The agent's part of the settings."""
        agents = (c for c in type(self).__mro__ if is_dataclass(c) and not issubclass(c, Method))
        kind: Any = next(agents)
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})

    def schedule(self, task: Task, job: Job) -> tuple[int, int]:
        """Iterations of the loop, and gradient steps of each."""
        sizes = task.env.observation_size, task.env.action_size
        period = self.acts.make(*sizes, self.steps).period
        return cadence(self.steps, self.per_iteration, period, job.evaluations)

    def prepare(self, task: Task, job: Job) -> Prepared:
        sizes = task.env.observation_size, task.env.action_size
        iterations, per = self.schedule(task, job)
        learner = make_model_free(
            self.acts,
            *sizes,
            batch_size=self.batch_size,
            per_iteration=per,
            steps=iterations * per,
            unroll=self.unroll,
        )
        scale = reward_scale(task.dataset, self.reward)
        data = self.device_rows(task.dataset, scale, per)
        made = Prepared(learner, data, iterations, self.acts, task.env, task, reward=scale)
        if not job.sweep:
            return made
        if isinstance(data, Prefetcher):
            hint = "read them (stream='never', --stream never), or train one setting at a time"
            raise ConfigError("sweep", "rows on disk", "rows in memory", hint)
        own = Swept(data, job.coefficients(self))
        seen: Any = Swept(False, True)  # type: ignore[arg-type]
        return made._replace(data=own, per_seed=seen)

    def device_rows(self, dataset: Dataset, scale: RewardScale, per: int) -> Any:
        """The rows on the device, or a feed of those that stay on the disk.

        Raises:
            ConfigError: rows on the disk that this method has to change.
        """
        rows = self.rows(scale.of(dataset.transitions))
        if dataset.rows_file is None:
            return to_device(rows)
        if rows is not dataset.transitions:
            expected = "rows in memory for these settings"
            hint = "read them (stream='never', --stream never), or take another method"
            raise ConfigError("stream", f"rows on disk for {self.name}", expected, hint)
        return rows_feed(dataset, self.batch_size, per)


class ModelFreeState(NamedTuple):
    """State of one seed."""

    agent: Any
    key: jax.Array


def make_model_free(
    config: AgentConfig,
    observation_size: int,
    action_size: int,
    *,
    batch_size: int = 256,
    per_iteration: int = 1000,
    draw: Callable[[Any, jax.Array, int], Any] = sample_batch,
    steps: int | None = None,
    unroll: int = 1,
) -> Learner:
    """A learner whose data are rows. Equal arguments give the same functions.

    Args:
        config: settings of the agent. A `SacConfig` with `num_critics=2, eta=0` is SAC, with more
            critics SAC-N, with an eta above 0 EDAC.
        observation_size, action_size: sizes of the environment.
        batch_size: rows per gradient step.
        per_iteration: gradient steps in one `update`; a multiple of the agent's period.
        draw: `(dataset, key, rows) -> batch`; `synther.mixing` makes others.
        steps: steps of the whole training, over which rates with a `cosine` fall; None keeps them.
        unroll: as for `ModelFree`.

    Raises:
        ConfigError: a setting is out of range.
    """
    if batch_size < 1 or per_iteration < 1:
        found = (batch_size, per_iteration)
        raise ConfigError("batch_size, per_iteration", found, "both at least 1")
    steps = steps if getattr(config, "cosine", False) else None
    sizes = observation_size, action_size
    return _bind(config, sizes, batch_size, per_iteration, draw, steps, unroll)


@functools.lru_cache(maxsize=32)
def _bind(
    config: AgentConfig,
    sizes: tuple[int, int],
    batch_size: int,
    per_iteration: int,
    draw: Any,
    steps: int | None,
    unroll: int,
) -> Learner:
    agent = config.make(*sizes, steps)
    if per_iteration % agent.period:
        expected = f"a multiple of {agent.period}, the actor's policy_freq"
        raise ConfigError("per_iteration", per_iteration, expected)

    def init(key: jax.Array, dataset: Any) -> ModelFreeState:
        dataset = dataset.rows if isinstance(dataset, Swept) else dataset
        agent_key, key = jax.random.split(key)
        return ModelFreeState(first_state(agent, agent_key, dataset.observations), key)

    def update(state: ModelFreeState, dataset: Any) -> tuple[ModelFreeState, dict[str, jax.Array]]:
        moving = agent
        if isinstance(dataset, Swept):
            moving, dataset = with_coefficients(agent, dataset.coefficients), dataset.rows
        learn_key, key = jax.random.split(state.key)
        if isinstance(dataset, Drawn):
            drawn, batch = dataset.batches, lambda rows: rows
        elif draw is sample_batch:
            # Which rows, for all steps at once: in the loop each draw would be kernels of its own.
            count = dataset.rewards.shape[0]
            drawn = jax.vmap(lambda key: drawn_rows(key, batch_size, count))
            batch = functools.partial(rows_at, dataset)
        else:
            drawn, batch = None, lambda key: draw(dataset, key, batch_size)
        more = {"drawn": drawn, "unroll": unroll}
        agent_state, metrics = learn(moving, state.agent, learn_key, batch, per_iteration, **more)
        return ModelFreeState(agent_state, key), metrics

    return Learner(agent, init, update, per_iteration)


class Known(NamedTuple):
    """What a learner has to know of rows that it does not have: their `fit_scaler`."""

    observations: Scaler


@functools.lru_cache(maxsize=32)
def make_plan(
    rows: int, batch_size: int, updates: int
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Which rows an iteration of `make_model_free` draws: `keys [seeds]` of the states before it to
    `[seeds, updates, batch]` int32 and the keys after it."""

    def plan(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        learn_key, key = jax.random.split(key)
        keys = step_keys(learn_key, updates)[:, 0]
        return jax.vmap(lambda key: drawn_rows(key, batch_size, rows))(keys), key

    return jax.jit(jax.vmap(plan))


def rows_feed(dataset: Dataset, batch_size: int, updates: int) -> Prefetcher:
    """The data of a `make_model_free` learner with these sizes, read from the dataset's file."""
    file, count = dataset.rows_file, len(dataset)
    assert file is not None, "rows in memory need no feed"
    width = dataset.transitions.observations.shape[1]

    def read(index: np.ndarray) -> Drawn:
        return Drawn(columns_of(scattered(file, index), width))

    known = Known(fit_scaler_by_blocks(dataset.transitions.observations))
    return Prefetcher(known, make_plan(count, batch_size, updates), read)

"""Methods that learn in rollouts of world models: MBPO's scheme, of which each changes a little.

    fit world models                                        WorldModelConfig.fit
    every epoch:    roll the policy from dataset states     Rollouts
                    what of that is kept                    ModelBased.rows
    every step:     real and imagined rows -> agent         ModelBased.learn

What a method may say, each with a default: which `uncertainty` its world model reports, which
`rows` come of a rollout, how it `learn`s from a batch, and, where it learns more than an agent,
`begin`, `before` and `rolled`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import chosen, fraction, number, positive
from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.rollouts import Trajectory
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS
from ..agents.sac import SacConfig
from ..data import Transitions, to_device
from ..data.transitions import RewardView, drawn_rows, flat, reward_scale, rows_at
from ..method import (
    Agent,
    AgentConfig,
    Job,
    Learner,
    Method,
    Prepared,
    cadence,
    first_state,
    gradient_steps,
)
from ..task import Source, Task
from ..worlds.dynamics import Dynamics, Noise, Rolled, Uncertainty, models_of, own_models
from ..worlds.fit import WorldModelConfig
from .keyframes import Keyframes, depths, keyframes_of, some_before


@dataclass(frozen=True)
class Rollouts:
    """Cadence of model rollouts; defaults are RAVL's.

    Attributes:
        length: largest number of steps of a rollout.
        batch_size: rollouts per epoch, from states of the dataset.
        retain_epochs: epochs whose imagined rows are kept.
        every: gradient steps per epoch.
        member: sample a row's ensemble member at each `step` (MBPO), or once per `trajectory`.
        adaptive: end a rollout where the uncertainty exceeds its largest value on the dataset
            (NEUBAY): the method's own uncertainty, else the spread of the elites' means.
        early_exit: number of steps between checks whether all rows have ended.
        keyframe_share: share of rollouts that begin before a high reward; 0 only measures depths.
        keyframe_lead: largest number of rows before it.
    """

    length: int = positive(5)
    batch_size: int = positive(50_000)
    retain_epochs: int = positive(5)
    every: int = positive(1000)
    member: Literal["step", "trajectory"] = "step"
    adaptive: bool = False
    early_exit: int | None = positive(None)
    keyframe_share: float | None = number(None, least=0, most=1)
    keyframe_lead: int = number(5, least=0)


class Imagination(NamedTuple):
    """The data of a seed: rows of the dataset, its world models, the method's coefficients, the
    mean uncertainty on the dataset, and rows with a high reward (None: unknown)."""

    real: Transitions
    world: PyTree
    coefficients: dict[str, jax.Array]
    typical: jax.Array
    frames: Keyframes | None = None


class Learning(NamedTuple):
    """Learned state of a method: an agent, and the rest from `begin`."""

    agent: Any
    extra: PyTree = ()


Learned = tuple[Learning, dict[str, jax.Array]]


class Given(NamedTuple):
    """What a gradient step is given.

    Attributes:
        agent: functions of what learns.
        key: consumed.
        real, imagined: the two parts of the batch, rows of the dataset and of the buffer.
        world: the model that was rolled.
    """

    agent: Agent
    key: jax.Array
    real: Any
    imagined: Any
    world: Rolled

    @property
    def batch(self) -> Transitions:
        """Both parts as one, the real rows first."""
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), self.real, self.imagined)


class ModelBasedState(NamedTuple):
    """State of one seed."""

    agent: Any
    extra: PyTree
    imagined: Replay
    key: jax.Array


@dataclass(frozen=True, kw_only=True)
class ModelBased(Method):
    """MBPO's scheme; methods override parts of it.

    Attributes:
        agent: the agent that is trained.
        world: ensemble of world models.
        rollouts: frequency and length of model rollouts.
        real_ratio: share of a batch that comes from the dataset.
        reward, unroll: see `ModelFree`.
    """

    imagines: ClassVar[bool] = True
    sweeps: ClassVar[bool] = True
    agent: AgentConfig = chosen(AGENTS, SacConfig)
    world: WorldModelConfig = WorldModelConfig()
    rollouts: Rollouts = Rollouts()
    steps: int = positive(3_000_000)
    real_ratio: float = fraction(0.05)
    reward: RewardView = "raw"
    unroll: int = positive(1)

    # What a method may override ------------------------------------------------------------------

    def uncertainty(self) -> Uncertainty | None:
        """The model's uncertainty measure; None evaluates one member per row only."""
        return None

    def sampling(self) -> Noise:
        """The noise of `world.sample_elites`."""
        return "own"

    def real_rows(self, transitions: Transitions) -> Any:
        """What of the dataset's rows `learn` takes batches of, on the host."""
        return transitions

    def starts(self, key: jax.Array, real: Any, count: int) -> PyTree:
        """States of the world model that `count` rollouts begin in; `real` are all rows."""
        return real.observations[jax.random.randint(key, (count,), 0, len(real.observations))]

    def begin(self, agent: Agent, key: jax.Array, data: Imagination) -> PyTree:
        """What is learned beside the agent, before the first step."""
        return ()

    def before(
        self, agent: Agent, state: Learning, key: jax.Array, real: Transitions, world: Rolled
    ) -> Learning:
        """Once an epoch, before the model is rolled; `real` are all rows of the dataset."""
        return state

    def rolled(self, state: Learning, world: PyTree) -> PyTree:
        """Parameters of the world model that is rolled."""
        return world

    def rows(self, trajectory: Trajectory, world: Rolled) -> tuple[PyTree, jax.Array]:
        """What is kept of `[T, B]` steps: entries of the buffer and which of them count."""
        return flat(trajectory)

    def learn(self, state: Learning, given: Given, **moves: bool) -> Learned:
        """One gradient step on rows of the dataset and of the buffer, and its metrics.

        `moves` are `actor=` for agents whose policy does not move at every step.
        """
        moved, metrics = given.agent.update(state.agent, given.key, given.batch, **moves)
        return state._replace(agent=moved), metrics

    def reported(self) -> Uncertainty | None:
        """`uncertainty`, or what adaptive rollouts stop at."""
        own = self.uncertainty()
        if not self.rollouts.adaptive:
            return own
        # Normalised: columns of large numbers would decide alone where a rollout ends.
        return (own or Uncertainty(spread_of_means, normalised=True))._replace(stops=True)

    def prepare(self, task: Task, job: Job) -> Prepared:
        own = job.coefficients(self)
        dynamics, worlds, typical, source = self.rolled_models(task, job)
        # Shared models are one copy for all seeds: memory does not grow with the arms.
        apart = bool(jax.tree.leaves(worlds)) and not (job.dynamics is None and self.world.shared)
        if apart and job.arms > 1:
            worlds = jax.tree.map(lambda x: jnp.tile(x, (job.arms,) + (1,) * (x.ndim - 1)), worlds)
        if typical.ndim:
            typical = jnp.tile(typical, job.arms)
        # The view that the world models' rewards have: both parts of a batch are in one unit.
        scale = reward_scale(task.dataset, self.reward)
        rows, asked = scale.of(task.dataset.transitions), self.rollouts.keyframe_share is not None
        frames = keyframes_of(rows) if asked else None
        data = Imagination(to_device(self.real_rows(rows)), worlds, own, typical, frames)
        sizes = task.env.observation_size, task.env.action_size
        iterations, every = cadence(self.steps, self.rollouts.every, self.agent.make(*sizes).period)
        # Coefficients and length at their defaults: all values of a sweep share one program.
        method = replace(self.program(), rollouts=replace(self.rollouts, every=every))
        # None where no rate falls: a training that is continued has the same program then.
        steps = iterations * every if self.fixed_length() else None
        learner = bind(method, dynamics, *sizes, steps)
        seen: Any = Imagination(*(False, apart, True, typical.ndim > 0, False))  # type: ignore[arg-type]
        made = learner, data, iterations, self.agent, task.env, source, seen
        return Prepared(*made, reward=scale)

    def rolled_models(self, task: Task, job: Job) -> tuple[Dynamics, PyTree, jax.Array, Source]:
        """What is rolled: see `models_of`, and `own_models` for dynamics of one's own."""
        asked = self.reported()
        if job.dynamics is not None:
            return own_models(job, asked, task, self.name, self.reward)
        scale = reward_scale(task.dataset, self.reward)
        return models_of(self.world, asked, self.sampling(), task, job, scale)


@functools.lru_cache(maxsize=64)
def bind(
    method: ModelBased,
    dynamics: Dynamics,
    observation_size: int,
    action_size: int,
    steps: int | None = None,
) -> Learner:
    """A method's learner; equal arguments give the same functions, so that they compile once."""
    agent = method.agent.make(observation_size, action_size, steps)
    functions: Any = (init, update, imagine)
    begin, step, roll = (functools.partial(f, method, dynamics, agent) for f in functions)
    return Learner(agent, begin, step, method.rollouts.every, roll)


def init(
    method: ModelBased, dynamics: Dynamics, agent: Agent, key: jax.Array, data: Imagination
) -> ModelBasedState:
    """A fresh agent and an empty buffer."""
    agent_key, key = jax.random.split(key)
    state = first_state(agent, agent_key, data.real.observations)
    # Folded: an agent has the same first weights under every method.
    extra = method.begin(agent, jax.random.fold_in(agent_key, 1), data)
    begun = ModelBasedState(state, extra, replay.create({}, 1), key)
    # What a method keeps of a rollout is its own, so the buffer's shape is found by tracing it.
    size, entries = method.rollouts, _entries(method, dynamics, agent, begun, data)
    count = jax.tree.leaves(entries)[0].shape[0]
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), entries)
    return begun._replace(imagined=replay.create(row, size.retain_epochs * count))


def _entries(method: Any, dynamics: Any, agent: Any, state: Any, data: Any) -> Any:
    def entries(state: Any, data: Any) -> Any:
        own = replace(method, **data.coefficients)
        trajectory = imagine(method, dynamics, agent, state, state.key, data)
        return own.rows(trajectory, Rolled(dynamics, data.world, data.typical))[0]

    return jax.eval_shape(entries, state, data)


def imagine(
    method: ModelBased,
    dynamics: Dynamics,
    agent: Agent,
    state: ModelBasedState,
    key: jax.Array,
    data: Imagination,
) -> Trajectory:
    """Roll the current policy from states of the dataset."""
    size, asked = method.rollouts, method.reported()
    start_key, roll_key = jax.random.split(key)
    world = method.rolled(Learning(state.agent, state.extra), data.world)
    starts = method.starts(start_key, data.real, size.batch_size)
    if data.frames is not None:
        starts = some_before(data.frames, starts, start_key, data.real.observations, size)
    return Rolled(dynamics, world, data.typical).rollout(
        starts,
        roll_key,
        size.member,
        horizon=size.length,
        policy=agent.policy,
        policy_params=state.agent.actor,
        threshold=world.uncertainty_threshold if asked is not None and asked.stops else None,
        early_exit=size.early_exit,
    )


def update(
    method: ModelBased, dynamics: Dynamics, agent: Agent, state: ModelBasedState, data: Imagination
) -> tuple[ModelBasedState, dict[str, jax.Array]]:
    """One epoch: imagine, then `rollouts.every` gradient steps."""
    own = replace(method, **data.coefficients)  # whose coefficients are those of this seed
    roll_key, learn_key, key = jax.random.split(state.key, 3)
    learned, world = Learning(state.agent, state.extra), Rolled(dynamics, data.world, data.typical)
    # A key folded, not split: methods without a step of their own keep their random numbers.
    learned = own.before(agent, learned, jax.random.fold_in(roll_key, 2), data.real, world)
    state = state._replace(agent=learned.agent, extra=learned.extra)
    trajectory = imagine(method, dynamics, agent, state, roll_key, data)
    world = world._replace(world=own.rolled(learned, data.world))
    buffer = replay.add(state.imagined, *own.rows(trajectory, world))

    # A fixed number of rows, not a random one: shapes are static.
    from_data = round(method.batch_size * method.real_ratio)

    def drawn(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        real_key, imagined_key, _, key = jax.random.split(key, 4)
        index = drawn_rows(real_key, from_data, data.real.rewards.shape[0])
        other = replay.drawn_rows(buffer, imagined_key, method.batch_size - from_data)
        return index, other, key

    def learn(state: Learning, given: tuple[jax.Array, ...], **moves: bool) -> Any:
        index, other, key = given
        real, imagined = rows_at(data.real, index), replay.rows_at(buffer, other)
        # The parts apart: methods treat imagined rows unlike real ones.
        return own.learn(state, Given(agent, key, real, imagined, world), **moves)

    # Which rows, for all steps at once: in the loop each draw would be kernels of its own.
    given = jax.vmap(drawn)(jax.random.split(learn_key, method.rollouts.every))
    learned, metrics = gradient_steps(learn, learned, given, agent.period, method.unroll)
    valid = jnp.maximum(trajectory.valid.sum(), 1)
    metrics["imagined_reward"] = trajectory.steps.rewards.sum() / valid
    metrics["imagined_uncertainty"] = trajectory.steps.uncertainties.sum() / valid
    metrics["imagined_length"] = trajectory.lengths.mean(dtype=jnp.float32)
    if data.frames is not None:
        metrics |= depths(data.frames, trajectory)
    return ModelBasedState(learned.agent, learned.extra, buffer, key), metrics

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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import chosen, coefficients, fraction, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.rollouts import Members, Trajectory, rollout
from jaxrl_rollouts.trees import PyTree

from ..agents import AGENTS
from ..agents.agent import Agent, Learner, first_state
from ..agents.sac import SacConfig
from ..data import Transitions, to_device
from ..method import Job, Method, Prepared, cadence
from ..study.model_based import FittedDataset, fit_dataset
from ..study.setting import termination_of
from ..study.source import Setting
from ..worlds.dynamics import Consulted, Disagreement, Dynamics, World, learned_dynamics
from ..worlds.endings import TerminationConfig
from ..worlds.fit import Targets
from ..worlds.trust import uncertainties


@dataclass(frozen=True)
class WorldModelConfig(EnsembleConfig):
    """An ensemble as a world model: what it predicts, and how imagined episodes end.

    Attributes:
        targets: units in which it learns changes and rewards: each standardised (`change`), as
            they are (`raw`), or changes in deviations of the `observations` (NEUBAY).
        shared: fit one and give it to every seed; else each seed has its own.
        termination: by the `known` rule of the environment, or by a `learned` classifier, which
            also takes the rule's place where none is known.
        ending: that classifier.
        error_horizon: steps over which its open-loop error is reported.
    """

    targets: Targets = "change"
    shared: bool = False
    termination: Literal["known", "learned"] = "known"
    ending: TerminationConfig = TerminationConfig()
    error_horizon: int = positive(50)

    def fit(self, setting: Setting, job: Job) -> FittedDataset:
        """Fit it to a dataset, for every seed, and measure how far it can be trusted."""
        asked: Any = _Fit(self, self.targets, self.shared, job.seeds, job.seed, self.error_horizon,
                          self.termination, self.ending)  # fmt: skip
        return fit_dataset(setting.dataset, asked, job.context, setting.env)


class _Fit(NamedTuple):  # what `fit_dataset` reads of today's `StudyConfig`
    ensemble: EnsembleConfig
    targets: Targets
    shared_world: bool
    seeds: int
    seed: int
    error_horizon: int
    termination: str
    ending: TerminationConfig


@dataclass(frozen=True)
class Rollouts:
    """Cadence of model rollouts; defaults are RAVL's.

    Attributes:
        horizon: most steps of a rollout.
        starts: rollouts of an epoch, from states of the dataset.
        retained: epochs whose imagined rows are kept.
        updates: gradient steps of an epoch.
        member: draw the member that moves a row at each `step` (MBPO), or once per `trajectory`.
        early_exit: check every so many steps whether all rows have ended.
    """

    horizon: int = positive(5)
    starts: int = positive(50_000)
    retained: int = positive(5)
    updates: int = positive(1000)
    member: Literal["step", "trajectory"] = "step"
    early_exit: int | None = positive(None)


class Uncertainty(NamedTuple):
    """Which uncertainty a step of the model reports.

    Attributes:
        of: what members' means and deviations `[N, B, O]` come to, `[B]`.
        members: whose predictions those are.
        normalised: in the units of the targets, not of the data.
        stops: end a rollout beyond the largest on the dataset.
        measured: also measure the mean on the dataset, `Imagination.typical`.
    """

    of: Disagreement
    members: Consulted = "elites"
    normalised: bool = False
    stops: bool = False
    measured: bool = False


class Rolled(NamedTuple):
    """World models as `rows` and `learn` see them: their functions and the parameters of a seed."""

    dynamics: Dynamics
    world: Any
    typical: jax.Array

    def imagine(self, key: jax.Array, observations: jax.Array, actions: jax.Array) -> Any:
        """Every elite's opinion of what follows."""
        return self.dynamics.imagine(self.world, key, observations, actions)


class Imagination(NamedTuple):
    """The data of a seed: rows of the dataset, its world models, the method's coefficients, and the
    mean uncertainty on the dataset."""

    real: Transitions
    world: PyTree
    coefficients: dict[str, jax.Array]
    typical: jax.Array


class Learning(NamedTuple):
    """What a method learns: an agent, and what else it says in `begin`."""

    agent: Any
    extra: PyTree = ()


class ModelBasedState(NamedTuple):
    """State of one seed."""

    agent: Any
    extra: PyTree
    imagined: Replay
    key: jax.Array


@dataclass(frozen=True, kw_only=True)
class ModelBased(Method):
    """MBPO's scheme; a method overrides what is its own.

    Attributes:
        agent: what learns.
        world: world models.
        rollouts: how often and how far they are rolled.
        real_ratio: of a batch that comes from the dataset.
    """

    agent: Any = chosen(AGENTS, SacConfig)
    world: WorldModelConfig = WorldModelConfig()
    rollouts: Rollouts = Rollouts()
    steps: int = positive(3_000_000)
    real_ratio: float = fraction(0.05)

    # What a method may say of its own ------------------------------------------------------------

    def uncertainty(self) -> Uncertainty | None:
        """What the model reports of its uncertainty; None asks one member per row only."""
        return None

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

    def learn(
        self,
        agent: Agent,
        state: Learning,
        key: jax.Array,
        real: Transitions,
        imagined: PyTree,
        world: Rolled,
        **moves: bool,
    ) -> tuple[Learning, dict[str, jax.Array]]:
        """One gradient step on rows of the dataset and of the buffer.

        Args:
            agent: its functions.
            state: of it, and what else is learned.
            key: consumed.
            real, imagined: the two parts of the batch.
            world: the model that was rolled.
            moves: `actor=` for agents whose policy does not move at every step.
        """
        moved, metrics = agent.update(state.agent, key, both(real, imagined), **moves)
        return state._replace(agent=moved), metrics

    # ---------------------------------------------------------------------------------------------

    @property
    def discount(self) -> float:
        return self.agent.discount

    def prepare(self, setting: Setting, job: Job) -> Prepared:
        fitted = self.world.fit(setting, job)
        dynamics, worlds, typical = self.dynamics(fitted)
        own = {name: jnp.full(job.seeds, value) for name, value in coefficients(self).items()}
        data = Imagination(to_device(setting.dataset.transitions), worlds, own, typical)
        iterations, updates = cadence(self.steps, self.rollouts.updates, 1)
        method = replace(self.program(), rollouts=replace(self.rollouts, updates=updates))
        sizes = setting.env.observation_size, setting.env.action_size
        apart = Imagination(False, not self.world.shared, True, not self.world.shared)  # type: ignore[arg-type]
        return Prepared(
            bind(method, dynamics, *sizes), data, iterations, self.agent, setting.env, fitted, apart
        )

    def dynamics(self, fitted: FittedDataset) -> tuple[Dynamics, PyTree, jax.Array]:
        """Functions of the fitted models, their parameters `[seeds, ...]`, and the mean uncertainty
        on the dataset, `[seeds]`."""
        asked, worlds, fitter = self.uncertainty(), fitted.fitted.worlds, fitted.fitted.model.fitter
        rule = termination_of(fitted.dataset, fitted.env, self.world)
        typical = jnp.ones(jax.tree.leaves(worlds)[0].shape[:1])
        more: dict[str, Any] = {}
        if asked is not None:
            more = {"disagreement": asked.of, "penalty_members": asked.members}
            more["normalised"] = asked.normalised
        if asked is not None and (asked.stops or asked.measured):
            rows = to_device(fitted.dataset.transitions)

            def on_data(world: World) -> tuple[jax.Array, jax.Array]:
                found = uncertainties(fitter, world, rows.observations, rows.actions, **more)
                return found.mean(), found.max()

            typical, largest = jax.vmap(on_data)(worlds)
            worlds = worlds._replace(limit=largest) if asked.stops else worlds
        if self.world.shared:
            worlds, typical = jax.tree.map(lambda x: x[0], (worlds, typical))
        return (
            learned_dynamics(fitter, self.world.elites, termination=rule, **more),
            worlds,
            typical,
        )


@functools.lru_cache(maxsize=64)
def bind(method: ModelBased, dynamics: Dynamics, *sizes: int) -> Learner:
    """A method's learner; equal arguments give the same functions, so that they compile once."""
    agent = method.agent.make(*sizes)
    functions: Any = (init, update, imagine)
    begin, step, roll = (functools.partial(f, method, dynamics, agent) for f in functions)
    return Learner(agent, begin, step, method.rollouts.updates, roll)


def init(
    method: ModelBased, dynamics: Dynamics, agent: Agent, key: jax.Array, data: Imagination
) -> ModelBasedState:
    """A fresh agent and an empty buffer."""
    agent_key, key = jax.random.split(key)
    state = first_state(agent, agent_key, data.real.observations)
    extra = method.begin(agent, jax.random.fold_in(agent_key, 1), data)
    begun = ModelBasedState(state, extra, replay.create({}, 1), key)
    size, entries = method.rollouts, _entries(method, dynamics, agent, begun, data)
    count = jax.tree.leaves(entries)[0].shape[0]
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), entries)
    return begun._replace(imagined=replay.create(row, size.retained * count))


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
    size, asked = method.rollouts, method.uncertainty()
    start_key, roll_key = jax.random.split(key)
    start = jax.random.randint(start_key, (size.starts,), 0, data.real.observations.shape[0])
    world = method.rolled(Learning(state.agent, state.extra), data.world)
    return rollout(
        dynamics.model,
        world,
        data.real.observations[start],
        roll_key,
        horizon=size.horizon,
        policy=agent.policy,
        policy_params=state.agent.actor,
        members=Members(jnp.arange(dynamics.members, dtype=jnp.int32), per=size.member),
        threshold=world.limit if asked is not None and asked.stops else None,
        early_exit=size.early_exit,
    )


def update(
    method: ModelBased, dynamics: Dynamics, agent: Agent, state: ModelBasedState, data: Imagination
) -> tuple[ModelBasedState, dict[str, jax.Array]]:
    """One epoch: imagine, then `rollouts.updates` gradient steps."""
    own = replace(method, **data.coefficients)  # whose coefficients are those of this seed
    roll_key, learn_key, key = jax.random.split(state.key, 3)
    learned, world = Learning(state.agent, state.extra), Rolled(dynamics, data.world, data.typical)
    learned = own.before(agent, learned, jax.random.fold_in(roll_key, 2), data.real, world)
    state = state._replace(agent=learned.agent, extra=learned.extra)
    trajectory = imagine(method, dynamics, agent, state, roll_key, data)
    world = world._replace(world=own.rolled(learned, data.world))
    buffer = replay.add(state.imagined, *own.rows(trajectory, world))

    def learn(state: Learning, key: jax.Array, **moves: bool) -> Any:
        from_data = round(method.batch_size * method.real_ratio)
        real_key, imagined_key, _, key = jax.random.split(key, 4)
        index = jax.random.randint(real_key, (from_data,), 0, data.real.rewards.shape[0])
        real = jax.tree.map(lambda x: x[index], data.real)
        imagined = replay.sample(buffer, imagined_key, method.batch_size - from_data)
        return own.learn(agent, state, key, real, imagined, world, **moves)

    keys = jax.random.split(learn_key, method.rollouts.updates)
    learned, metrics = gradient_steps(learn, learned, keys, agent.period)
    valid = jnp.maximum(trajectory.valid.sum(), 1)
    metrics["imagined_reward"] = trajectory.steps.rewards.sum() / valid
    metrics["imagined_uncertainty"] = trajectory.steps.uncertainties.sum() / valid
    metrics["imagined_length"] = trajectory.lengths.mean(dtype=jnp.float32)
    return ModelBasedState(learned.agent, learned.extra, buffer, key), metrics


def gradient_steps(
    learn: Callable[..., Any], state: PyTree, keys: jax.Array, period: int
) -> tuple[PyTree, dict[str, jax.Array]]:
    """`learn(state, key, **moves)` for every key, as one scan; metrics are means over the steps in
    which everything moved. Where `period` is above 1 `actor` says whether the policy does."""

    def group(state: PyTree, keys: jax.Array) -> Any:
        metrics: dict[str, jax.Array] = {}
        for i in range(period):
            moves = {} if period == 1 else {"actor": i == period - 1}
            state, metrics = learn(state, keys[i], **moves)
        return state, metrics

    state, metrics = jax.lax.scan(group, state, keys.reshape(-1, period))
    return state, jax.tree.map(lambda x: x.mean(), metrics)


def both(real: Transitions, imagined: Transitions) -> Transitions:
    """One batch of two parts, the real rows first."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), real, imagined)


def flat(trajectory: Trajectory, **changed: jax.Array) -> tuple[Transitions, jax.Array]:
    """`[T, B]` steps as `[T * B]` rows, and which count; `changed` columns replace the model's."""
    steps = trajectory.steps._replace(**changed)
    columns = (getattr(steps, name) for name in Transitions._fields)
    rows = Transitions(*(x.reshape(-1, *x.shape[2:]) for x in columns))
    return rows, trajectory.valid.reshape(-1)

"""The model-based offline agent that base, MOPO, MOBILE and RAVL share.

One iteration of the training loop is an epoch: roll the current policy for `horizon` steps from
dataset states, put the imagined rows in a ring buffer of the last few epochs, then take
`updates_per_epoch` gradient steps on batches that mix dataset and imagined rows (MBPO's scheme).
A `Method` says what differs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import check, fraction, number, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.rollouts import Members, Trajectory, rollout
from jaxrl_rollouts.trees import PyTree

from ..agents.agent import Agent, Learner
from ..agents.sac import NextValue, SacConfig, SacState, make_sac
from ..data import Transitions, to_device
from ..worlds.dynamics import Consulted, Disagreement, Dynamics, Noise


class BellmanPenalty(Protocol):
    def __call__(
        self,
        agent: Agent,
        dynamics: Dynamics,
        state: SacState,
        world: PyTree,
        key: jax.Array,
        batch: Transitions,
    ) -> jax.Array: ...


class Method(NamedTuple):
    """What sets one method apart from the others.

    Attributes:
        name: for reports.
        agent: its actor-critic; the number of critics and their eta are RAVL's whole cure.
        coefficient: of its penalty. A number of the data and not of the program (`Imagination`):
            methods that differ in it share what is compiled, and a sweep over it can be vmapped.
        disagreement: the uncertainty its world model must report; None for none.
        penalty_members: whose predictions that is made of.
        unit: the coefficient multiplies the uncertainty as it is (`raw`), or in units of its
            mean over the dataset (`mean`), which does not depend on how targets are scaled.
        noise: of the samples `Dynamics.imagine` draws for a Bellman penalty.
        penalise_rewards: imagined rewards become `r - coefficient * uncertainty` (MOPO).
        bellman_penalty: `[B]`; times the coefficient it is subtracted from the Bellman target of
            imagined rows (MOBILE).
        next_value: `(next_observations [B, S], value [B]) -> [B]`, corrects what targets bootstrap
            from (an oracle, to find out where values go wrong); None trusts the critics.
    """

    name: str
    agent: SacConfig
    coefficient: float = 0.0
    disagreement: Disagreement | None = None
    penalty_members: Consulted = "elites"
    unit: Literal["raw", "mean"] = "raw"
    noise: Noise = "own"
    penalise_rewards: bool = False
    bellman_penalty: BellmanPenalty | None = None
    next_value: NextValue | None = None


@dataclass(frozen=True)
class ModelBasedConfig:
    """Cadence of rollouts and updates; defaults are RAVL's.

    Attributes:
        horizon: most steps of a rollout.
        rollouts_per_epoch: started in each epoch, from states of the dataset.
        epochs_retained: whose imagined transitions are kept.
        updates_per_epoch: gradient steps in each epoch.
        batch_size: transitions in a gradient step.
        real_ratio: of a batch that comes from the dataset.
        member: draw the member that moves a row once per `trajectory` (NEUBAY), or
            anew at each `step` (MBPO).
        adaptive: end a rollout where the model is lost (NEUBAY): beyond `World.limit`, in a study
            the largest disagreement on the dataset, the method's own or `spread_of_means`.
        early_exit: look every so many steps whether all rows have ended; worth it where most
            end long before the horizon.
    """

    horizon: int = positive(5)
    rollouts_per_epoch: int = positive(50_000)
    epochs_retained: int = positive(5)
    updates_per_epoch: int = positive(1000)
    batch_size: int = number(256, least=2)
    real_ratio: float = fraction(0.05)
    member: Literal["step", "trajectory"] = "step"
    adaptive: bool = False
    early_exit: int | None = positive(None)


class Imagination(NamedTuple):
    """The data of a model-based learner.

    Attributes:
        rows: the dataset.
        world: what the dynamics take as parameters.
        coefficient: of the method's penalty, a scalar for a seed.
    """

    rows: Transitions
    world: PyTree
    coefficient: jax.Array


# What `train` calls `per_seed`: every seed in a world of its own, on the same rows.
OWN_WORLDS = Imagination._make((False, True, False))


class ModelBasedState(NamedTuple):
    """State of one seed."""

    agent: SacState
    imagined: Replay
    key: jax.Array


class Scheme(NamedTuple):
    """What the functions of this module are bound to."""

    config: ModelBasedConfig
    method: Method
    dynamics: Dynamics
    agent: Agent


def imagination(method: Method, transitions: Transitions, worlds: PyTree) -> Imagination:
    """The data to train `method` on; worlds with a leading seed axis go with `OWN_WORLDS`."""
    return Imagination(to_device(transitions), worlds, jnp.float32(method.coefficient))


def make_model_based(
    config: ModelBasedConfig,
    method: Method,
    dynamics: Dynamics,
    observation_size: int,
    action_size: int,
) -> Learner:
    """A learner whose data are an `Imagination`. Equal arguments give the same functions.

    Its `imagine` is `(state, key, data) -> Trajectory` of the current policy, `[T, B, ...]`.

    Args:
        config: cadence and batch composition.
        method: what differs from the base method; its coefficient is the data's.
        dynamics: learned, true or something between.
        observation_size, action_size: of the environment.

    Raises:
        ConfigError: a setting is out of range, or the dynamics measure no uncertainty where
            the method penalises it.
    """
    check(config)
    if not dynamics.measured and (method.penalise_rewards or config.adaptive):
        user = (
            f"{method.name} penalises" if method.penalise_rewards else "adaptive rollouts stop at"
        )
        raise ConfigError(
            "dynamics",
            "no measure of uncertainty",
            f"one, which {user}",
            "build them with learned_dynamics(..., disagreement=method.disagreement)",
        )
    return _bind(config, method._replace(coefficient=0.0), dynamics, observation_size, action_size)


@functools.lru_cache(maxsize=64)
def _bind(config: ModelBasedConfig, method: Method, dynamics: Dynamics, *sizes: int) -> Learner:
    agent = make_sac(method.agent, *sizes)
    scheme = Scheme(config, method, dynamics, agent)
    functions: Any = (init, update, imagine)
    begin, step, roll = (functools.partial(f, scheme) for f in functions)
    return Learner(agent, begin, step, config.updates_per_epoch, roll)


def init(scheme: Scheme, key: jax.Array, data: Imagination) -> ModelBasedState:
    """A fresh agent and an empty buffer; of the rows only the shapes matter."""
    config = scheme.config
    agent_key, key = jax.random.split(key)
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), data.rows)
    capacity = config.epochs_retained * config.rollouts_per_epoch * config.horizon
    return ModelBasedState(scheme.agent.init(agent_key), replay.create(row, capacity), key)


def imagine(
    scheme: Scheme, state: ModelBasedState, key: jax.Array, data: Imagination
) -> Trajectory:
    """Roll the current policy from states of the dataset.

    Raises:
        ConfigError: rollouts are adaptive and the world has no limit.
    """
    config, dynamics, limit = scheme.config, scheme.dynamics, None
    if config.adaptive:
        limit = data.world.limit
        if limit is None:
            raise ConfigError(
                "world.limit",
                None,
                "a threshold for adaptive rollouts",
                "world._replace(limit=threshold(uncertainty_stats(...), 1.0))",
            )
    start_key, roll_key = jax.random.split(key)
    rows = data.rows.observations.shape[0]
    start = jax.random.randint(start_key, (config.rollouts_per_epoch,), 0, rows)
    return rollout(
        dynamics.model,
        data.world,
        data.rows.observations[start],
        roll_key,
        horizon=config.horizon,
        policy=scheme.agent.policy,
        policy_params=state.agent.actor,
        members=Members(jnp.arange(dynamics.members, dtype=jnp.int32), per=config.member),
        threshold=limit,
        early_exit=config.early_exit,
    )


def imagined_rows(scheme: Scheme, steps: Any, coefficient: jax.Array) -> Transitions:
    """`[T, B]` steps as `[T * B]` rows, with rewards as the agent will see them."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
    rewards = flat.rewards
    if scheme.method.penalise_rewards:
        rewards = rewards - coefficient * flat.uncertainties
    return Transitions(
        flat.observations,
        flat.actions,
        rewards,
        flat.next_observations,
        flat.terminations,
        flat.truncations,
    )


def learn(
    scheme: Scheme, data: Imagination, buffer: Replay, state: SacState, key: jax.Array
) -> tuple[SacState, dict[str, jax.Array]]:
    """One gradient step on rows of the dataset and imagined rows; only those are penalised."""
    config, method = scheme.config, scheme.method
    real_rows = round(config.batch_size * config.real_ratio)
    real_key, imagined_key, penalty_key, update_key = jax.random.split(key, 4)
    index = jax.random.randint(real_key, (real_rows,), 0, data.rows.rewards.shape[0])
    real = jax.tree.map(lambda x: x[index], data.rows)
    imagined = replay.sample(buffer, imagined_key, config.batch_size - real_rows)
    batch = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), real, imagined)
    penalty: jax.Array | float = 0.0
    if method.bellman_penalty is not None and real_rows < config.batch_size:
        penalty = data.coefficient * method.bellman_penalty(
            scheme.agent, scheme.dynamics, state, data.world, penalty_key, imagined
        )
        penalty = jnp.concatenate([jnp.zeros((real_rows,)), penalty])
    return scheme.agent.update(state, update_key, batch, penalty, method.next_value)


def update(
    scheme: Scheme, state: ModelBasedState, data: Imagination
) -> tuple[ModelBasedState, dict[str, jax.Array]]:
    """One epoch: imagine, then `updates_per_epoch` gradient steps."""
    roll_key, learn_key, key = jax.random.split(state.key, 3)
    trajectory = imagine(scheme, state, roll_key, data)
    rows = imagined_rows(scheme, trajectory.steps, data.coefficient)
    buffer = replay.add(state.imagined, rows, trajectory.valid.reshape(-1))
    keys = jax.random.split(learn_key, scheme.config.updates_per_epoch)
    agent, metrics = jax.lax.scan(functools.partial(learn, scheme, data, buffer), state.agent, keys)
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    valid = jnp.maximum(trajectory.valid.sum(), 1)
    metrics["imagined_reward"] = trajectory.steps.rewards.sum() / valid
    metrics["imagined_uncertainty"] = trajectory.steps.uncertainties.sum() / valid
    metrics["imagined_length"] = trajectory.lengths.mean(dtype=jnp.float32)
    return ModelBasedState(agent, buffer, key), metrics

"""The model-based offline agent that base, MOPO, MOBILE and RAVL share.

One iteration of the training loop is an epoch: roll the current policy for `horizon` steps from
dataset states, put the imagined rows in a ring buffer of the last few epochs, then take
`updates_per_epoch` gradient steps on batches that mix dataset and imagined rows (MBPO's scheme).
A `Method` says what differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxrl_rollouts import replay
from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.replay import Replay
from jaxrl_rollouts.rollout import Members, rollout
from jaxrl_rollouts.trees import PyTree

from ..agents.sac import NextValue, Sac, SacConfig, SacState, make_sac
from ..data import Transitions
from ..worlds.dynamics import Disagreement, Dynamics


class TargetPenalty(Protocol):
    def __call__(
        self, agent: Sac, dynamics: Dynamics, state: SacState, world: PyTree, key: jax.Array,
        batch: Transitions,
    ) -> jax.Array: ...  # fmt: skip


class Method(NamedTuple):
    """What sets one method apart from the others.

    Attributes:
        name: for reports.
        agent: its actor-critic; the number of critics and their diversity are RAVL's whole cure.
        disagreement: the uncertainty its world model must report; None for none.
        reward_penalty: imagined rewards become `r - reward_penalty * uncertainty` (MOPO).
        target_penalty: subtracted from the Bellman target of imagined rows, `[B]` (MOBILE).
        next_value: `(next_observations [B, S], value [B]) -> [B]`, corrects what targets bootstrap
            from (an oracle, to find out where values go wrong); None trusts the critics.
    """

    name: str
    agent: SacConfig
    disagreement: Disagreement | None = None
    reward_penalty: float = 0.0
    target_penalty: TargetPenalty | None = None
    next_value: NextValue | None = None


@dataclass(frozen=True)
class ModelBasedConfig:
    """Cadence of rollouts and updates; defaults are RAVL's.

    Attributes:
        horizon: most steps of a rollout.
        member: draw the member that moves a row once per `trajectory` (NEUBAY), or
            anew at each `step` (MBPO).
        adaptive: end a rollout where the model is lost, beyond `World.limit` (NEUBAY).
        early_exit: look every so many steps whether all rows have ended; worth it where most
            end long before the horizon.
    """

    horizon: int = 5
    rollouts_per_epoch: int = 50_000
    epochs_retained: int = 5
    updates_per_epoch: int = 1000
    batch_size: int = 256
    real_share: float = 0.05
    member: Literal["step", "trajectory"] = "step"
    adaptive: bool = False
    early_exit: int | None = None

    def validate(self) -> None:
        at_least_one(self, "horizon", "rollouts_per_epoch", "epochs_retained", "updates_per_epoch")
        if self.early_exit is not None:
            at_least_one(self, "early_exit")
        if not 0 <= self.real_share <= 1:
            raise ConfigError("real_share", self.real_share, "between 0 and 1")
        if self.batch_size < 2:
            raise ConfigError("batch_size", self.batch_size, "at least 2")


class ModelBasedState(NamedTuple):
    """State of one seed. `world` is what the dynamics take as parameters; it does not change."""

    agent: SacState
    imagined: Replay
    world: PyTree
    key: jax.Array


class ModelBased(NamedTuple):
    """Functions of one configuration; see `make_model_based`.

    Attributes:
        agent: the actor-critic's functions.
        init: `(key, world, dataset) -> ModelBasedState`; of the dataset only the shapes matter.
        update: one epoch, `(state, dataset) -> (state, metrics)`.
        imagine: `(state, key, dataset) -> Trajectory` of the current policy, `[T, B, ...]`.
    """

    agent: Sac
    init: Callable[[jax.Array, PyTree, Transitions], ModelBasedState]
    update: Callable[[ModelBasedState, Transitions], tuple[ModelBasedState, dict[str, jax.Array]]]
    imagine: Callable[..., Any]


@functools.lru_cache(maxsize=64)
def make_model_based(
    config: ModelBasedConfig, method: Method, dynamics: Dynamics, observation_size: int,
    action_size: int,
) -> ModelBased:  # fmt: skip
    """Build the functions of a model-based agent. Equal arguments give the same functions.

    Args:
        config: cadence and batch composition.
        method: what differs from the base method.
        dynamics: learned, true or something between.
        observation_size, action_size: of the environment.

    Raises:
        ConfigError: a setting is out of range, or the dynamics measure no uncertainty where
            the method penalises it.
    """
    config.validate()
    if not dynamics.measured and (method.reward_penalty or config.adaptive):
        user = f"{method.name} penalises" if method.reward_penalty else "adaptive rollouts stop at"
        raise ConfigError(
            "dynamics", "no measure of uncertainty", f"one, which {user}",
            "build them with learned_dynamics(..., disagreement=method.disagreement)",
        )  # fmt: skip
    agent = make_sac(method.agent, observation_size, action_size)
    real_rows = round(config.batch_size * config.real_share)
    imagined_rows = config.batch_size - real_rows

    def imagine(state: ModelBasedState, key: jax.Array, dataset: Transitions) -> Any:
        start_key, roll_key = jax.random.split(key)
        rows = dataset.observations.shape[0]
        start = jax.random.randint(start_key, (config.rollouts_per_epoch,), 0, rows)
        limit = state.world.limit if config.adaptive else None
        if config.adaptive and limit is None:
            raise ConfigError(
                "world.limit", None, "a threshold for adaptive rollouts",
                "world._replace(limit=threshold(measure_trust(...), 1.0))",
            )  # fmt: skip
        return rollout(
            dynamics.model, state.world, dataset.observations[start], roll_key,
            horizon=config.horizon, policy=agent.policy, policy_params=state.agent.actor,
            members=Members(jnp.arange(dynamics.members, dtype=jnp.int32), per=config.member),
            threshold=limit, early_exit=config.early_exit,
        )  # fmt: skip

    def to_rows(steps: Any) -> Transitions:
        """Flatten `[T, B]` steps; the penalised reward is what the agent will see."""
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        return Transitions(
            flat.observations, flat.actions,
            flat.rewards - method.reward_penalty * flat.uncertainties,
            flat.next_observations, flat.terminations, flat.truncations,
        )  # fmt: skip

    def init(key: jax.Array, world: PyTree, dataset: Transitions) -> ModelBasedState:
        agent_key, key = jax.random.split(key)
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), dataset)
        capacity = config.epochs_retained * config.rollouts_per_epoch * config.horizon
        return ModelBasedState(agent.init(agent_key), replay.create(row, capacity), world, key)

    def update(
        state: ModelBasedState, dataset: Transitions
    ) -> tuple[ModelBasedState, dict[str, jax.Array]]:
        roll_key, learn_key, key = jax.random.split(state.key, 3)
        trajectory = imagine(state, roll_key, dataset)
        rows = to_rows(trajectory.steps)
        buffer = replay.add(state.imagined, rows, trajectory.valid.reshape(-1))

        def learn(carry: SacState, key: jax.Array) -> tuple[SacState, dict[str, jax.Array]]:
            real_key, imagined_key, penalty_key, update_key = jax.random.split(key, 4)
            index = jax.random.randint(real_key, (real_rows,), 0, dataset.rewards.shape[0])
            real = jax.tree.map(lambda x: x[index], dataset)
            drawn = replay.sample(buffer, imagined_key, imagined_rows)
            batch = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), real, drawn)
            penalty: jax.Array | float = 0.0
            if method.target_penalty is not None:
                penalty = method.target_penalty(
                    agent, dynamics, carry, state.world, penalty_key, batch
                )
                penalty = penalty.at[:real_rows].set(0.0)
            return agent.update(carry, update_key, batch, penalty, method.next_value)

        keys = jax.random.split(learn_key, config.updates_per_epoch)
        agent_state, metrics = jax.lax.scan(learn, state.agent, keys)
        metrics = jax.tree.map(lambda x: x.mean(), metrics)
        valid = jnp.maximum(trajectory.valid.sum(), 1)
        metrics["imagined_reward"] = trajectory.steps.rewards.sum() / valid
        metrics["imagined_uncertainty"] = trajectory.steps.uncertainties.sum() / valid
        metrics["imagined_length"] = trajectory.lengths.mean(dtype=jnp.float32)
        return ModelBasedState(agent_state, buffer, state.world, key), metrics

    return ModelBased(agent, init, update, imagine)

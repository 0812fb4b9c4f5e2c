"""Returns of a network after a sequence of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.scaler import Scaler
from jaxrl_rollouts.trees import PyTree, row

from ..evaluation import Policy
from .network import TaskPolicy


class Continual(NamedTuple):
    """A network that has learned `T` tasks one after the other, by arm.

    Attributes:
        arms, tasks: names.
        returns: `[arms, T, T, seeds]`, after task i in task j; NaN where j comes later than i.
        own: `[T, seeds]`, what each task's own policy earns in it.
        random: `[T]`, what uniform actions earn.
        kept: rows in the buffers by arm, `[seeds, count]` of every task.
        actors: parameters of the network, leaves `[arms, seeds, ...]`.
        scaler: scaler of observations.
        act: policy of `TaskPolicy`.
    """

    arms: tuple[str, ...]
    tasks: tuple[str, ...]
    returns: np.ndarray
    own: np.ndarray
    random: np.ndarray
    kept: Mapping[str, list[np.ndarray]]
    actors: PyTree
    scaler: Scaler
    act: Policy

    __repr__ = brief

    @property
    def scores(self) -> np.ndarray:
        """`returns` with 0 for uniform actions and 1 for the mean of the tasks' own policies."""
        low = self.random[:, None]
        return (self.returns - low) / (self.own.mean(1, keepdims=True) - low)

    @property
    def average(self) -> np.ndarray:
        """Mean score of all tasks after the last one, `[arms, seeds]`."""
        return self.scores[:, -1].mean(1)

    @property
    def backward(self) -> np.ndarray:
        """Backward transfer `mean_{j < T} (R_Tj - R_jj)` of scores, `[arms, seeds]`."""
        first = np.stack([self.scores[:, j, j] for j in range(len(self.tasks))], 1)
        return _mean((self.scores[:, -1] - first)[:, :-1])

    @property
    def forgetting(self) -> np.ndarray:
        """`mean_{j < T} (max_i R_ij - R_Tj)` of scores, `[arms, seeds]`."""
        best = np.nanmax(self.scores, 1)
        return _mean((best - self.scores[:, -1])[:, :-1])

    def policy(
        self, task: str, arm: str | None = None, seed: int = 0
    ) -> Callable[[np.ndarray], np.ndarray]:
        """What acts in a task: observations `[B, S]` to actions `[B, A]`.

        Raises:
            ConfigError: an unknown task or arm.
        """
        arm = self.arms[0] if arm is None else arm
        for name, given, names in (("task", task, self.tasks), ("arm", arm, self.arms)):
            if given not in names:
                raise unknown(name, given, names)
        actor = row(self.actors, (self.arms.index(arm), seed))
        params = TaskPolicy(actor, self.scaler, jnp.eye(len(self.tasks))[self.tasks.index(task)])
        key, act = jax.random.key(0), jax.jit(self.act)
        return lambda seen: np.asarray(act(params, key, jnp.asarray(seen, jnp.float32), ())[0])


def _mean(values: np.ndarray) -> np.ndarray:
    """Over tasks, `[arms, T - 1, seeds]` to `[arms, seeds]`; 0 where there is one task."""
    return values.mean(1) if values.shape[1] else np.zeros(values.shape[::2])

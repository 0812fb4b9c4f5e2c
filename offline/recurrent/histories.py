"""Histories of a dataset: what an agent with memory observes, and rollouts that continue them.

An observation has the state, the last action and the last reward, `o_t = [s_t, a_{t-1}, r_{t-1}]`,
zeros at the start of an episode (NEUBAY). A rollout continues a logged episode from a moment drawn
uniformly over all of them, the final observation of each episode included.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.rollouts import Model, StepResult, where_rows
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions, episodes
from ..environments.base import Environment, as_model
from .memory import Memory
from .timesteps import Timestep


class LoggedHistories(NamedTuple):
    """Episodes behind one another, each with its final observation.

    Attributes:
        timesteps: `[M, ...]`, all real; `M` is the number of transitions plus that of episodes.
        times: `[M]` int32, steps since the episode began.
        last: `[M]` bool, True on final observations.
    """

    timesteps: Timestep
    times: jax.Array
    last: jax.Array

    @property
    def longest(self) -> int:
        """Most transitions of an episode (reads from the device)."""
        return int(self.times.max())


class Drawn(NamedTuple):
    """`K` moments and what was before them.

    Attributes:
        head: timesteps before the moment, `[K, P, ...]`, zero past their end.
        lengths: `[K]` int32, how many there are.
        now: `[K, D]`, what is shown at the moment itself.
        finished: `[K]` bool, True at the end of an episode, from where nothing is imagined.
        times: `[K]` int32, steps since the episode began; `lengths` unless something was left out.
    """

    head: Timestep
    lengths: jax.Array
    now: jax.Array
    finished: jax.Array
    times: jax.Array


class Remembered(NamedTuple):
    """State of a model that shows the last action and reward, `[B, ...]`; `time` is int32."""

    inner: PyTree
    action: jax.Array
    reward: jax.Array
    time: jax.Array


def log_histories(
    transitions: Transitions,
    limit: int | None = None,
    *,
    source: str = "dataset",
) -> LoggedHistories:
    """Cut a dataset into episodes of timesteps, on the device.

    Args:
        limit: longer episodes are cut there and their last transition counts as truncated (the
            environment's time limit); None keeps them.
    """
    parts = episodes(transitions)
    if not len(parts.starts):
        raise DataError(source, "rows", 0, "at least one transition")
    states, actions, rewards, following, terminated, truncated = map(np.asarray, transitions)
    pieces = []
    for start, end in zip(parts.starts, parts.ends, strict=True):
        stop = end if limit is None else min(end, start + limit)
        rows, one = slice(start, stop), np.zeros(1, bool)
        seen = np.concatenate([states[rows], following[stop - 1 : stop]])
        acted = np.concatenate([np.zeros((1, actions.shape[1])), actions[rows]])
        rewarded = np.concatenate([[0.0], rewards[rows]])
        over = np.append(terminated[rows], one)
        cut = np.append(truncated[rows], one)
        cut[-2] = not over[-2]
        pieces.append(
            (
                np.concatenate([seen, acted, rewarded[:, None]], 1),
                np.roll(acted, -1, 0),
                np.roll(rewarded, -1),
                over,
                cut,
                np.arange(stop - start + 1),
                np.arange(stop - start + 1) == stop - start,
            )
        )
    seen, acted, rewarded, over, cut, times, last = map(np.concatenate, zip(*pieces, strict=True))
    columns = [jnp.asarray(x, jnp.float32) for x in (seen, acted, rewarded)]
    flags = [jnp.asarray(x) for x in (over, cut, np.ones(len(over), bool))]
    return LoggedHistories(
        Timestep(*columns, *flags), jnp.asarray(times, jnp.int32), jnp.asarray(last)
    )


def draw(logged: LoggedHistories, key: jax.Array, count: int, longest: int) -> Drawn:
    """Draw moments uniformly over all timesteps, with what was before each.

    Args:
        logged: the dataset.
        key: consumed.
        count: number of histories, `K`.
        longest: room `P` for what was before, static; `LoggedHistories.longest` never cuts. What
            does not fit is left out at the beginning.
    """
    moment = jax.random.randint(key, (count,), 0, logged.times.shape[0])
    lengths = jnp.minimum(logged.times[moment], longest)
    step = jnp.arange(longest)
    index = (moment - lengths)[:, None] + jnp.minimum(step, lengths[:, None])
    head = jax.tree.map(lambda x: x[index].reshape(count * longest, *x.shape[1:]), logged.timesteps)
    kept = (step < lengths[:, None]).reshape(-1)
    head = where_rows(kept, head, jax.tree.map(jnp.zeros_like, head))
    head = jax.tree.map(lambda x: x.reshape(count, longest, *x.shape[1:]), head)
    return Drawn(
        head,
        lengths,
        logged.timesteps.observations[moment],
        logged.last[moment],
        logged.times[moment],
    )


def burn_in(memory: Memory, params: PyTree, head: Timestep, lengths: jax.Array) -> PyTree:
    """What a memory carries after each head, `[K, ...]`; nothing where a head is empty."""
    starts = jnp.arange(head.rewards.shape[1]) == 0

    def one(observations: jax.Array, length: jax.Array) -> PyTree:
        _, carries = memory.scan(params, observations, starts)
        return jax.tree.map(lambda c: c[jnp.maximum(length - 1, 0)], carries)

    carry = jax.vmap(one)(head.observations, lengths)
    return where_rows(lengths > 0, carry, memory.start(lengths.shape[0]))


def remember(model: Model, limit: int | None = None) -> Model:
    """The same model with its last action and reward on show; its state is `Remembered`.

    Args:
        model: the transition.
        limit: steps after which an episode is cut, counted from its beginning and not from where
            a rollout continues; None leaves that to the model.
    """

    def step(
        params: PyTree, key: jax.Array, state: Remembered, action: jax.Array, member: PyTree
    ) -> tuple[Remembered, StepResult]:
        inner, out = model.step(params, key, state.inner, action, member)
        time = state.time + 1
        if limit is not None:
            out = out._replace(truncated=out.truncated | (time >= limit))
        return Remembered(inner, action, out.reward, time), out

    def observe(state: Remembered) -> jax.Array:
        seen = model.observe(state.inner)
        return jnp.concatenate([seen, state.action, state.reward[:, None]], -1)

    return Model(step, observe)


def resume(drawn: Drawn, action_size: int) -> Remembered:
    """Where rollouts begin, for models whose own state is the observation `[K, S]`."""
    size = drawn.now.shape[1] - action_size - 1
    parts = drawn.now[:, :size], drawn.now[:, size:-1], drawn.now[:, -1]
    return Remembered(*parts, drawn.times)


@functools.lru_cache(maxsize=32)
def remembering(env: Environment) -> Environment:
    """The environment as an agent with a memory sees it: last action and reward are observed too.

    Equal arguments give the same functions. Its observations have `S + A + 1` entries; what is
    known of single transitions (`reward`, `termination`) is left out.
    """
    shown = remember(as_model(env))

    def reset(key: jax.Array, batch: int) -> Any:
        nothing = jnp.zeros((batch, env.action_size)), jnp.zeros((batch,))
        return Remembered(env.reset(key, batch), *nothing, jnp.zeros((batch,), jnp.int32))

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, StepResult]:
        # What the simulator applied is what a dataset would hold.
        return shown.step(None, key, state, jnp.clip(action, -1.0, 1.0), None)

    return env._replace(
        observation_size=env.observation_size + env.action_size + 1,
        reset=reset,
        step=step,
        observe=shown.observe,
        reward=None,
        termination=None,
        set_observation=None,
        reset_to=None,
    )

"""What an environment is here: a transition model for the engine's rollout, plus a reset.

There is no environment loop in this package: a policy acts in a simulator through the same
`jaxrl_rollouts.rollouts.rollout` that rolls a learned model.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, UserError
from jaxrl_rollouts.rollouts import Model, StepResult, step_result, where_rows
from jaxrl_rollouts.trees import PyTree

Rowwise = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Transition = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]


class EnvironmentState(NamedTuple):
    """State of `B` copies; every leaf is `[B, ...]`.

    Attributes:
        inner: state of the simulator.
        observation: `[B, S]` float32, the true observation of `inner`.
        time: `[B]` int32, steps since the reset.
    """

    inner: PyTree
    observation: jax.Array
    time: jax.Array


class Environment(NamedTuple):
    """`B` copies of a simulator as pure functions. Actions are always in `[-1, 1]^A`.

    Attributes:
        name: its name in `make`.
        observation_size: `S`.
        action_size: `A`.
        max_episode_steps: time limit; reaching it is a truncation, not a termination.
        reset: `(key, batch) -> state`. `key` is one key, or `[K]` keys with `batch` divisible by
            `K`: then row group `k` starts as `reset(key[k], batch // K)` does.
        step: `(key, state, action [B, A]) -> (state, StepResult)`; rows never reset themselves.
        observe: `state -> [B, S]`.
        termination: `(observation, action, next_observation) -> [B] bool` where it is a known
            function of the transition, else None.
        reward: `(observation, action, next_observation) -> [B]` where known, else None.
        set_observation: `[B, S] -> state` where the observation determines the state, else None.
        transition: `(observation [B, S], action [B, A]) -> (next_observation, reward, terminated)`
            where simulators on the host are a function of the two: unlike their `step` it may be
            vmapped, and called for any rows in any order. Else None.
        clipped_transition: the same where observations determine the state but for velocities
            beyond a limit at which they are shown (Hopper, Walker2d: 10): they begin at the limit.
        reset_to: `(qpos [B, Q], qvel [B, V]) -> state` of MuJoCo environments, else None.
        version: packages and versions behind the numbers.
        restart: `(key, state, ended [B]) -> state` where it is cheaper than a reset of all rows
            (see `restart`), else None.
        positions: positions of rows `[N, ...]` of `state.inner` on the host, `(qpos [N, Q], qvel
            [N, V])`; None where there is no such thing.
        host: True where steps run outside the compiled program, in order, one batch at a time;
            such an environment cannot be vmapped.
        action_low, action_high: bounds of its actions in its own units, `A` numbers each (tuples,
            since an environment is a static argument of compiled functions); -1 and 1 of `step`
            stand for them. None where its own bounds are [-1, 1].
        columns: a name for each observation entry, where the simulator names them; else ().
        starts: `count -> (first, second)`, `[count, S]` observations that episodes begin with and
            those after a random action, without compiling anything; None where that needs a
            program.
        failure: error on the host since the last call, else None (`host`).
        notes: sentences a user should read before numbers.
        offset: `[S]`, what was subtracted from its observations (`shifted`); () for nothing.
        less: `offset -> environment`, where simulators on the host subtract it from observations
            in float64; else None.
        another: makes one more Gymnasium environment like its copies, to be drawn; else None.
        forcing: `actions [..., A] -> [..., N]`, the force that they exert on a grid of N points,
            linear within +-1; None where that is not known.
    """

    name: str
    observation_size: int
    action_size: int
    max_episode_steps: int
    reset: Callable[[jax.Array, int], EnvironmentState]
    step: Callable[[jax.Array, EnvironmentState, jax.Array], tuple[EnvironmentState, StepResult]]
    observe: Callable[[EnvironmentState], jax.Array]
    termination: Rowwise | None = None
    reward: Rowwise | None = None
    set_observation: Callable[[jax.Array], EnvironmentState] | None = None
    reset_to: Callable[[jax.Array, jax.Array], EnvironmentState] | None = None
    version: str = ""
    restart: Callable[[jax.Array, EnvironmentState, jax.Array], EnvironmentState] | None = None
    positions: Callable[[PyTree], tuple[np.ndarray, np.ndarray]] | None = None
    host: bool = False
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    transition: Transition | None = None
    clipped_transition: Transition | None = None
    columns: tuple[str, ...] = ()
    starts: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None
    failure: Callable[[], UserError | None] | None = None
    notes: tuple[str, ...] = ()
    offset: tuple[float, ...] = ()
    less: Callable[[tuple[float, ...]], Environment] | None = None
    another: Callable[[], Any] | None = None
    forcing: Callable[[jax.Array], jax.Array] | None = None


def observe(state: EnvironmentState) -> jax.Array:
    """The observation `[B, S]` kept in the state."""
    return state.observation


def row_keys(key: jax.Array, batch: int) -> jax.Array:
    """`[batch]` keys from one key, or from `[K]` keys in `K` equal groups of rows."""
    if key.ndim == 0:
        return jax.random.split(key, batch)
    if batch % key.shape[0]:
        raise ValueError(f"batch: found {batch}, expected a multiple of {key.shape[0]} keys")
    per = batch // key.shape[0]
    return jax.vmap(lambda k: jax.random.split(k, per))(key).reshape(batch)


def uniform_start(key: jax.Array, batch: int, high: jax.Array) -> jax.Array:
    """`[batch, N]` numbers, uniform within +-`high` (`[N]`); keys as for `row_keys`."""
    return jax.vmap(lambda k: jax.random.uniform(k, high.shape, minval=-high, maxval=high))(
        row_keys(key, batch)
    )


def disturbed(
    key: jax.Array, action: jax.Array, noise: jax.Array | float, random: jax.Array | float
) -> jax.Array:
    """`[B]` actions with Gaussian noise of this deviation, within +-1.

    With probability `random` a uniform action takes its place.
    """
    noise_key, uniform_key, coin_key = jax.random.split(key, 3)
    action = action + noise * jax.random.normal(noise_key, action.shape)
    uniform = jax.random.uniform(uniform_key, action.shape, minval=-1.0, maxval=1.0)
    coin = jax.random.uniform(coin_key, action.shape) < random
    return jnp.clip(jnp.where(coin, uniform, action), -1.0, 1.0)


def begin(inner: PyTree, observation: jax.Array) -> EnvironmentState:
    """A state at time zero."""
    return EnvironmentState(inner, observation, jnp.zeros(observation.shape[:1], jnp.int32))


def restart(
    env: Environment, key: jax.Array, state: EnvironmentState, ended: jax.Array
) -> EnvironmentState:
    """`state` with fresh episodes in the rows that `ended` (`[B]` bool)."""
    if env.restart is not None:
        return env.restart(key, state, ended)
    return where_rows(ended, env.reset(key, ended.shape[0]), state)


def proceed(
    state: EnvironmentState,
    inner: PyTree,
    observation: jax.Array,
    reward: jax.Array,
    terminated: jax.Array,
    max_episode_steps: int,
) -> tuple[EnvironmentState, StepResult]:
    """The next state and the outcome of one step, with the time limit applied."""
    time = state.time + 1
    # Compiled carries need one dtype throughout; simulators like to return weak or wide types.
    inner = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), inner, state.inner)
    truncated = (time >= max_episode_steps) & ~terminated
    out = step_result(
        time.shape[0],
        reward=reward.astype(jnp.float32),
        terminated=terminated,
        truncated=truncated,
    )
    return EnvironmentState(inner, observation.astype(jnp.float32), time), out


@contextlib.contextmanager
def naming_failures(env: Environment) -> Iterator[None]:
    """Raise what went wrong in a simulator on the host, which jax hides behind an error of its own.

    Results have to be waited for inside.
    """
    if env.failure is not None:
        env.failure()  # what was left by others
    try:
        yield
    except Exception as error:
        failure = None if env.failure is None else env.failure()
        if failure is None:
            raise
        raise failure from (failure.__cause__ or error)


def with_columns(env: Environment, columns: Sequence[str]) -> Environment:
    """A simulator on the host that shows the same columns in another order."""
    if tuple(columns) == env.columns:
        return env
    order = np.array([env.columns.index(name) for name in columns])
    back, again = np.argsort(order), env.restart
    known = env.starts or (lambda count: (np.zeros((count, len(order))),) * 2)

    def shown(state: EnvironmentState) -> EnvironmentState:
        return state._replace(observation=state.observation[:, order])

    def own(state: EnvironmentState) -> EnvironmentState:
        return state._replace(observation=state.observation[:, back])

    def restart(key: jax.Array, state: EnvironmentState, ended: jax.Array) -> EnvironmentState:
        assert again is not None
        return shown(again(key, own(state), ended))

    def starts(count: int) -> tuple[np.ndarray, np.ndarray]:
        first, second = known(count)
        return first[:, order], second[:, order]

    def less(offset: tuple[float, ...]) -> Environment:
        assert env.less is not None
        made = env.less(tuple(np.asarray(offset)[back].tolist()))
        changes = {name: getattr(made, name) for name in ("reset", "step", "restart", "starts")}
        there = env._replace(**changes)
        return with_columns(there, columns)

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        return shown(env.reset(key, batch))

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        following, out = env.step(key, own(state), action)
        return shown(following), out

    return env._replace(
        reset=reset,
        step=step,
        restart=None if again is None else restart,
        columns=tuple(columns),
        starts=None if env.starts is None else starts,
        less=None if env.less is None else less,
    )


@functools.lru_cache(maxsize=64)
def as_model(env: Environment) -> Model:
    """The environment as a transition model whose state is the environment's own.

    Equal environments give the same functions, so that what is compiled for one is kept.
    `params` and `member` are ignored; `uncertainty` is zero.
    """

    def step(
        params: PyTree, key: jax.Array, state: EnvironmentState, action: jax.Array, member: PyTree
    ) -> tuple[EnvironmentState, StepResult]:
        return env.step(key, state, action)

    return Model(step, env.observe)


def true_model(env: Environment, *, clipped: bool = False) -> Model:
    """The true dynamics as a transition model whose state is the observation, `[B, S]`.

    It takes the place of a learned model: rollouts may start from any observation in a dataset.
    There is no time limit. `params` and `member` are ignored; `uncertainty` is zero.

    Args:
        env: the environment.
        clipped: take observations that clip velocities (Hopper's, Walker2d's) for states, too: what
            was beyond the limit begins at it, so those rows' steps are the simulator's from
            another state than they came from.

    Raises:
        ConfigError: the observation of `env` does not determine its state.
    """
    transition = env.transition
    if transition is None and clipped:
        transition = env.clipped_transition
    if transition is not None:
        return _of_transition(transition)
    restore = env.set_observation
    if restore is None:
        raise ConfigError(
            "environment", env.name, "one whose observation determines the state (set_observation)"
        )

    def step(
        params: PyTree, key: jax.Array, state: jax.Array, action: jax.Array, member: PyTree
    ) -> tuple[jax.Array, StepResult]:
        following, out = env.step(key, restore(state), action)
        return env.observe(following), out._replace(truncated=jnp.zeros_like(out.truncated))

    return Model(step)


def _of_transition(transition: Transition) -> Model:
    def step(
        params: PyTree, key: jax.Array, state: jax.Array, action: jax.Array, member: PyTree
    ) -> tuple[jax.Array, StepResult]:
        following, reward, terminated = transition(state, action)
        return following, step_result(len(action), reward=reward, terminated=terminated)

    return Model(step)


def rescale(action: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Clip an action to `[-1, 1]` and map it linearly to `[low, high]`."""
    # centre + half width: exact where the bounds are [-1, 1] already
    return 0.5 * (low + high) + 0.5 * (high - low) * jnp.clip(action, -1.0, 1.0)


def own_bounds(low: Iterable[float], high: Iterable[float]) -> dict[str, Any]:
    """The fields `action_low` and `action_high` of an `Environment` with these bounds."""
    bounds = tuple(map(float, low)), tuple(map(float, high))
    if all(value == -1.0 for value in bounds[0]) and all(value == 1.0 for value in bounds[1]):
        return {"action_low": None, "action_high": None}
    return {"action_low": bounds[0], "action_high": bounds[1]}


def unknown_name(name: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown environment, with the nearest names."""
    known = list(known)
    lowered = {k.lower(): k for k in known}
    close = [lowered[c] for c in difflib.get_close_matches(name.lower(), lowered, 3, 0.5)]
    hint = f"did you mean {' or '.join(close)}?" if close else ""
    return ConfigError("environment", name, f"a known name such as {', '.join(known[:6])}", hint)

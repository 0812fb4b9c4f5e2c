"""How good imagined trajectories are: near a policy, and near the true dynamics, step by step.

Whatever imagined them (a diffusion model, an autoregressive ensemble, the simulator itself), paths
are `Transitions` of `[B, T, ...]`, B side by side, T steps each. Errors are squared, in standard
deviations of a dataset and averaged over observation entries; a row that is further than
`DIVERGED` deviations off, or not finite, counts as exactly that far, so that means exist.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.rollouts import Members, Model, Trajectory, rollout
from jaxrl_rollouts.trees import PyTree, unstack

from ..data import Transitions
from ..environments import Environment, true_model
from ..worlds.open_loop import replay
from .windows import WindowLayout

DIVERGED = 100.0  # standard deviations
HOST_ROWS = 256  # simulators that exist at once where each row needs one of its own


def paths_of_windows(layout: WindowLayout, windows: jax.Array) -> Transitions:
    """Generated windows `[B, L, C]` as paths of `L - 1` steps; after a termination they stay."""
    flat, _ = layout.unpack(windows)
    shape = windows.shape[0], windows.shape[1] - 1
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), flat)


def paths_of_rollout(played: Trajectory) -> Transitions:
    """A recorded rollout `[T, B, ...]` (whole `Step`s) as paths."""
    s = played.steps
    steps = Transitions(
        s.observations, s.actions, s.rewards, s.next_observations, s.terminations, s.truncations
    )
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)


def imagine_paths(
    model: Model, members: int, policy: Callable[..., tuple[jax.Array, PyTree]]
) -> Callable[..., Transitions]:
    """A policy rolled in an ensemble, compiled: what an autoregressive world model imagines.

    Args:
        model: of the ensemble.
        members: how many it has; every step uses one of them, drawn anew.
        policy: `(params, key, observations, memory) -> (actions, memory)`.

    Returns:
        `(world, params, key, starts [B, S], steps) -> paths [B, steps, ...]`; `steps` is static.
    """

    @functools.partial(jax.jit, static_argnames="steps")
    def imagine(
        world: PyTree, params: PyTree, key: jax.Array, starts: jax.Array, steps: int
    ) -> Transitions:
        each = Members(jnp.arange(members, dtype=jnp.int32), per="step")
        acting = {"policy": policy, "policy_params": params, "members": each}
        return paths_of_rollout(rollout(model, world, starts, key, horizon=steps, **acting))

    return imagine


def policy_gap(
    gaussian: Callable[[PyTree, jax.Array], tuple[jax.Array, jax.Array]],
    params: PyTree,
    paths: Transitions,
) -> jax.Array:
    """`[...]`: squared distance to the policy's mean action, averaged over action entries.

    Under unit variance the log-likelihood of a path's actions is minus half of it, and a constant.

    Args:
        gaussian: of an `Agent`, `(params, observations) -> (mean, std)`.
        params: its parameters.
        paths: rows of any shape, `[B, T, ...]` say.
    """
    mean, _ = gaussian(params, paths.observations)
    return jnp.square(paths.actions - mean).mean(-1)


def log_likelihood(gap: Any) -> Any:
    """Of an action entry under a normal of unit variance around the policy's, from `policy_gap`."""
    return -0.5 * (gap + math.log(2.0 * math.pi))


def _units(scale: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation `[S]` of a dataset's observations; 1 where they never vary."""
    rows = np.asarray(scale.next_observations, np.float64)
    spread = rows.std(0)
    return rows.mean(0), np.where(spread > 0, spread, 1.0)


def _squared(apart: np.ndarray) -> np.ndarray:
    """Mean squares over the last axis, at most `DIVERGED` squared."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.square(apart).mean(-1)
    return np.where(np.isfinite(error), np.minimum(error, DIVERGED**2), DIVERGED**2)


def _piecewise(
    env: Environment,
    states: np.ndarray,
    centre: np.ndarray,
    unit: np.ndarray,
    key: jax.Array,
    error: Callable[[jax.Array, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Errors `[N]` or `[N, T]` of rows that begin at `states` `[N, S]`, some rows at a time.

    `error(key, states[rows], rows)` queries the simulator, except at states that have
    diverged.
    """
    diverged = np.logical_not((np.abs((states - centre) / unit) <= DIVERGED).all(1))
    states = np.where(diverged[:, None], centre, states).astype(np.float32)
    chunk = min(HOST_ROWS, len(states)) if env.host else len(states)
    pieces = []
    for index, begin in enumerate(range(0, len(states), chunk)):
        # The last piece is as long as the others, so that nothing compiles anew.
        rows = np.arange(begin, begin + chunk).clip(max=len(states) - 1)
        pieces.append(error(jax.random.fold_in(key, index), states[rows], rows))
    errors = np.concatenate(pieces)[: len(states)]
    errors[diverged] = DIVERGED**2
    return errors


@functools.lru_cache(maxsize=16)
def truth(env: Environment) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """The true step from observations, compiled once per environment and shape.

    `(key, observations [N, S], actions [N, A]) -> next [N, S], rewards [N], terminations [N]`.

    Raises:
        ConfigError: the environment's observation does not determine its state.
    """
    step = true_model(env).step

    @jax.jit
    def true_step(
        key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        following, out = step(None, key, observations, actions, None)
        return following, out.reward, out.terminated

    return true_step


def step_error(
    env: Environment, paths: Transitions, scale: Transitions, key: jax.Array
) -> np.ndarray:
    """`[B, T]`: how far every step alone is from what the simulator does from the same state.

    Args:
        env: one whose observation determines its state.
        paths: `[B, T, ...]`.
        scale: the dataset whose deviations are the units.
        key: consumed by the simulator.

    Raises:
        ConfigError: the environment's observation does not determine its state.
    """
    true_step, (centre, unit) = truth(env), _units(scale)
    shape = np.asarray(paths.rewards).shape
    states, actions, imagined = (
        np.asarray(x).reshape(-1, x.shape[-1])
        for x in (paths.observations, paths.actions, paths.next_observations)
    )

    def error(key: jax.Array, states: np.ndarray, rows: np.ndarray) -> np.ndarray:
        following = np.asarray(true_step(key, states, actions[rows])[0])
        return _squared((imagined[rows] - following) / unit)

    return _piecewise(env, states, centre, unit, key, error).reshape(shape)


@functools.lru_cache(maxsize=16)
def _replayed(env: Environment) -> Callable[..., jax.Array]:
    """`(start [B, S], actions [T, B, A], key) -> [T, B, S]`, the true path, compiled once."""
    model = true_model(env)

    @jax.jit
    def run(start: jax.Array, actions: jax.Array, key: jax.Array) -> jax.Array:
        return rollout(
            model,
            None,
            start,
            key,
            horizon=actions.shape[0],
            policy=replay,
            policy_params=actions,
            memory=jnp.zeros(start.shape[:1], jnp.int32),
            stop_at_termination=False,
            record=lambda step: step.next_observations,
        ).steps

    return run


def open_loop_error(
    env: Environment, paths: Transitions, scale: Transitions, key: jax.Array
) -> np.ndarray:
    """`[B, T]`: how far a path is from where its own first state and actions truly lead.

    Arguments and errors as for `step_error`. The first step's are the same.
    """
    run, (centre, unit) = _replayed(env), _units(scale)
    states, actions, imagined = (
        np.asarray(x) for x in (paths.observations, paths.actions, paths.next_observations)
    )

    def error(key: jax.Array, start: np.ndarray, rows: np.ndarray) -> np.ndarray:
        true = np.asarray(run(start, np.swapaxes(actions[rows], 0, 1), key))
        return _squared((imagined[rows] - np.swapaxes(true, 0, 1)) / unit)

    return _piecewise(env, states[:, 0], centre, unit, key, error)


class PathQuality(NamedTuple):
    """By step, `[T]` or `[seeds, T]` each: means over paths, and the median of the step error.

    Attributes:
        gap: `policy_gap`.
        error: `step_error`.
        median: of the same.
        open_loop: `open_loop_error`.
    """

    gap: np.ndarray
    error: np.ndarray
    median: np.ndarray
    open_loop: np.ndarray

    def first(self, steps: int) -> PathQuality:
        """Its first steps."""
        return PathQuality(*(values[..., :steps] for values in self))

    def mean(self) -> PathQuality:
        """Over the steps."""
        return PathQuality(*(values.mean(-1) for values in self))


def path_quality(
    env: Environment,
    paths: Transitions,
    scale: Transitions,
    policy: tuple[Callable, PyTree],
    key: jax.Array,
) -> PathQuality:
    """How near paths are to a policy and to the simulator, by step, `[T]` each.

    Args:
        env, paths, scale, key: as for `step_error`.
        policy: `gaussian` of an `Agent`, and its parameters.
    """
    gap = np.asarray(policy_gap(*policy, paths), np.float64)
    error = step_error(env, paths, scale, key)
    along = open_loop_error(env, paths, scale, key)
    return PathQuality(gap.mean(0), error.mean(0), np.median(error, 0), along.mean(0))


def path_quality_of_seeds(
    env: Environment,
    paths: Sequence[Transitions],
    scale: Transitions,
    gaussian: Callable,
    actors: PyTree,
    key: jax.Array,
) -> PathQuality:
    """`path_quality` of each seed's paths and policy, its parameters in `actors`; `[seeds, T]`."""
    seeds = [
        path_quality(env, own, scale, (gaussian, actor), key)
        for own, actor in zip(paths, unstack(actors), strict=True)
    ]
    return jax.tree.map(lambda *qualities: np.stack(qualities), *seeds)

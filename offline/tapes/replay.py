"""Replay of a tape: every row of the dataset from its actions and snapshots.

All segments between two snapshots are stepped side by side by `mujoco.rollout`. Observations,
rewards and endings are Gymnasium's (v4) of HalfCheetah, Hopper and Walker2d:

    r = healthy + (x' - x) / dt - cost |a|^2

with the healthy reward 1 (0 for HalfCheetah) and cost 0.001 (0.1). Equal to stepping the
environment row by row; a test compares them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.cores import cores
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.record.files import file_sha256

from ..data.transitions import Dataset, Transitions, episode_returns
from ..environments.mujoco import CLIPPED, SKIPPED_POSITIONS, VELOCITY_LIMIT, make_gymnasium
from ..environments.terminations import FAMILIES, family
from . import SUFFIX
from .tape import EVERY, FOLDER, Tape, packaged, read_tape

DRIFT = 1e-3  # largest difference of an episode's return that is not reported


class Reward(NamedTuple):
    """Coefficients of a running reward."""

    healthy: float
    cost: float


REWARDS = {
    "halfcheetah": Reward(0.0, 0.1),
    "hopper": Reward(1.0, 1e-3),
    "walker2d": Reward(1.0, 1e-3),
}


class Replayed(NamedTuple):
    """Rows of a tape, and the simulator's state before each of them.

    Attributes:
        rows: `[N]` transitions, float32.
        qpos: `[N, Q]` float64 positions.
        qvel: `[N, V]` float64 velocities.
        time_limit: steps after which an episode is cut.
    """

    rows: Transitions
    qpos: np.ndarray
    qvel: np.ndarray
    time_limit: int


def replay(tape: Tape, place: Any = "tape") -> Replayed:
    """Step the simulator along a tape.

    Args:
        tape: the tape to replay.
        place: place of the tape, for messages.

    Raises:
        MissingExtraError: gymnasium or mujoco is not installed.
        DataError: an environment without a replay, or states and actions of another one.
    """
    kind = family(tape.environment)
    if kind not in REWARDS:
        expected = f"one of {', '.join(REWARDS)}"
        raise DataError(place, "environment", tape.environment, expected)
    made = make_gymnasium(tape.environment.removeprefix("mujoco/"))
    env, limit = made.unwrapped, made.spec.max_episode_steps
    model = env.model
    sizes = (model.nu, model.nq + model.nv)
    if (tape.actions.shape[1], tape.states.shape[1]) != sizes:
        found = f"{tape.actions.shape[1]} actions and {tape.states.shape[1]} coordinates"
        raise DataError(place, "states", found, f"{sizes[0]} and {sizes[1]} of {made.spec.id}")
    before, after = _states(tape, model, env.frame_skip)
    qpos, qvel = before[:, : model.nq], before[:, model.nq :]
    actions = tape.actions.astype(np.float32)
    seen, following = _observe(kind, before, model.nq), _observe(kind, after, model.nq)
    reward = REWARDS[kind]
    rewards = (after[:, 0] - before[:, 0]) / env.dt + reward.healthy
    rewards -= reward.cost * np.square(actions).sum(1)
    ends = np.cumsum(tape.lengths) - 1
    terminations, truncations = np.zeros((2, len(actions)), bool)
    # The rule of the simulator in double precision: float32 could move a state across a bound.
    terminations[:] = _terminated(kind, after, model.nq)
    inside = terminations.copy()
    inside[ends] = False
    if inside.any():
        found = f"a termination at row {int(inside.argmax())}, inside an episode"
        hint = "this MuJoCo computes other states than the one that made the tape"
        raise DataError(place, "episodes", found, "terminations at ends of episodes only", hint)
    truncations[ends] = ~terminations[ends]
    rows = Transitions(
        seen, actions, rewards.astype(np.float32), following, terminations, truncations
    )
    return Replayed(rows, qpos, qvel, limit)


def _states(tape: Tape, model: Any, frame_skip: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities before and after every row, `[N, Q + V]` each."""
    import mujoco
    from mujoco import rollout

    segments = tape.segments
    width = tape.states.shape[1]
    starts = np.concatenate([[0], np.cumsum(segments)[:-1]])
    steps = np.arange(EVERY)
    # Segments that end early are stepped on with their last action; those steps are dropped.
    index = starts[:, None] + np.minimum(steps, segments[:, None] - 1)
    control = np.repeat(tape.actions[index].astype(np.float64), frame_skip, axis=1)
    initial = np.concatenate([np.zeros((len(segments), 1)), tape.states], 1)
    workers = [mujoco.MjData(model) for _ in range(cores())]  # type: ignore[attr-defined]
    states = np.asarray(rollout.rollout(model, workers, initial, control)[0])
    stepped = states[:, frame_skip - 1 :: frame_skip, 1 : 1 + width]
    kept = steps < segments[:, None]
    after = stepped[kept]
    before = np.empty_like(after)
    before[starts] = tape.states
    inner = np.ones(len(after), bool)
    inner[starts] = False
    before[inner] = after[np.flatnonzero(inner) - 1]
    # Within an episode the next snapshot is what followed, so that rows join exactly.
    joins = starts[1:][~np.isin(starts[1:], np.cumsum(tape.lengths)[:-1])]
    after[joins - 1] = before[joins]
    return before, after


def _observe(kind: str, states: np.ndarray, positions: int) -> np.ndarray:
    """Gymnasium's observations, `[N, S]` float32, of positions and velocities."""
    skipped = SKIPPED_POSITIONS.get(kind, CLIPPED.get(kind, 0))
    velocities = states[:, positions:]
    if kind in CLIPPED:
        velocities = np.clip(velocities, -VELOCITY_LIMIT, VELOCITY_LIMIT)
    return np.concatenate([states[:, skipped:positions], velocities], 1).astype(np.float32)


def _terminated(kind: str, states: np.ndarray, positions: int) -> np.ndarray:
    import jax

    skipped = SKIPPED_POSITIONS.get(kind, CLIPPED.get(kind, 0))
    with jax.enable_x64(True):
        following = jnp.asarray(states[:, skipped:])
        rule = FAMILIES[kind]
        return np.asarray(rule(following, following[:, :0], following))


def load_tape(name_or_path: str | Path) -> Dataset:
    """A tape as a dataset: one of the package by name, or a file."""
    packed = str(name_or_path) in packaged()
    path = FOLDER / f"{name_or_path}{SUFFIX}" if packed else Path(name_or_path).expanduser()
    tape = read_tape(path)
    replayed = replay(tape, path)
    returns = episode_returns(replayed.rows)
    drift = float(np.abs(returns - tape.returns).max())
    facts = {**tape.facts, "format": "tape", "successors": "stored", "drift": drift}
    if drift > DRIFT:
        warnings.warn(
            f"{path.name}: found returns up to {drift:.3g} away from those stored, expected at "
            f"most {DRIFT}: this MuJoCo computes other states than {facts.get('versions')}",
            stacklevel=2,
        )
    infos = {"qpos": replayed.qpos, "qvel": replayed.qvel}
    return Dataset(
        path.stem,
        replayed.rows,
        tape.environment,
        path,
        file_sha256(path),
        {**facts, "max_episode_steps": replayed.time_limit},
        infos,
        *np.stack([-np.ones(tape.actions.shape[1]), np.ones(tape.actions.shape[1])]).astype("f4"),
    )

"""Synthetic episodes with known contents, and files made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from jaxrl_rollouts.offline.data import Inspection, Transitions

TERMINATED, TRUNCATED, UNFINISHED = "terminated", "truncated", "unfinished"


def make(plan: Sequence[tuple[int, str]], seed: int = 0, size: int = 3) -> Transitions:
    """Episodes of given lengths and endings.

    `observations[t] = (episode, step, noise...)`, and the successor has `step + 1`, so a test can
    tell from a row alone which episode and step its two observations belong to.
    """
    rng = np.random.default_rng(seed)
    columns: list[list] = [[] for _ in range(6)]
    for episode, (length, ending) in enumerate(plan):
        path = rng.normal(size=(length + 1, size)).astype(np.float32)
        path[:, 0], path[:, 1] = episode, np.arange(length + 1)
        last = np.arange(length) == length - 1
        parts = (
            path[:-1],
            rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            rng.normal(size=length).astype(np.float32),
            path[1:],
            last & (ending == TERMINATED),
            last & (ending == TRUNCATED),
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    return Transitions(*(np.concatenate(column) for column in columns))


PLAN = ((4, TERMINATED), (3, TRUNCATED), (5, TERMINATED), (5, TRUNCATED), (2, UNFINISHED))


def raw_arrays(rows: Transitions | None = None) -> dict[str, np.ndarray]:
    """The arrays of a D4RL file for `rows`."""
    rows = make(PLAN) if rows is None else rows
    names = {"terminations": "terminals", "truncations": "timeouts"}
    return {names.get(key, key): np.asarray(value) for key, value in rows._asdict().items()}


def write_raw(path: Path, arrays: dict, attributes: dict | None = None) -> Path:
    """An HDF5 file of exactly these arrays, checked by nobody."""
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            file[key] = values
        file.attrs.update(attributes or {})
    return path


def neorl_arrays(rows: Transitions, ends: Sequence[int]) -> dict[str, np.ndarray]:
    """The arrays of a NeoRL file; `done` marks both endings, flags and rewards are `[N, 1]`."""
    return {
        "obs": rows.observations,
        "next_obs": rows.next_observations,
        "action": rows.actions,
        "reward": rows.rewards[:, None],
        "done": (rows.terminations | rows.truncations).astype(np.float32)[:, None],
        "index": np.asarray(ends, np.int64),
    }


def logged(*lengths: int, ended: tuple[int, ...] = ()) -> Transitions:
    """Episodes in the plane whose first entry counts up; those in `ended` fall, others are cut."""
    rng = np.random.default_rng(0)
    parts = []
    for episode, length in enumerate(lengths):
        time = np.arange(length + 1, dtype=np.float32) + 100 * episode
        states = np.stack([time, rng.normal(size=length + 1).astype(np.float32)], 1)
        last = np.arange(length) == length - 1
        actions = rng.uniform(-0.9, 0.9, (length, 1)).astype(np.float32)
        fell = last & (episode in ended)
        parts.append((states[:-1], actions, time[:-1], states[1:], fell, last & ~fell))
    return Transitions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def kinds(found: Inspection) -> dict:
    """Suspicions of an inspection, by array and kind."""
    return {(s.array, s.kind): s for s in found.suspicions}


def save_minari(
    name: str, plan: Sequence, *, scale: float = 1.0, parts: bool = False
) -> Transitions:
    """A Minari dataset of `make(plan)`; with `parts` its observations are two spaces."""
    import gymnasium
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    rows, box = make(plan), gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    space = gymnasium.spaces.Dict({"goal": box, "at": box}) if parts else box
    ends, buffers = np.cumsum([length for length, _ in plan]), []
    for index, part in enumerate(np.split(np.arange(ends[-1]), ends[:-1])):
        states = np.concatenate([rows.observations[part], rows.next_observations[part][-1:]])
        seen = {"goal": states + 100, "at": states} if parts else states
        names = ("rewards", "terminations", "truncations")
        lists = {key: list(getattr(rows, key)[part]) for key in names}
        acted = rows.actions[part] * np.float32(scale)
        buffers.append(EpisodeBuffer(id=index, observations=seen, actions=acted, **lists))
    acts = gymnasium.spaces.Box(-scale, scale, (2,), np.float32)
    minari.create_dataset_from_buffers(name, buffers, observation_space=space, action_space=acts)
    return rows


def normal_rows(count: int, size: int, actions: int, seed: int = 0) -> Transitions:
    """Unrelated rows of normal numbers; three in ten terminate, some of the others are cut."""
    rng = np.random.default_rng(seed)
    shapes = ((count, size), (count, actions), (count,), (count, size))
    floats = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    floats[1] = np.tanh(floats[1])
    done = rng.random(count) < 0.3
    return Transitions(*floats, done, ~done & (rng.random(count) < 0.2))

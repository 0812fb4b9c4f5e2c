"""A policy in one file that acts with jax and numpy alone.

    policy = load_exported("policy.stablehlo")
    policy.reset()
    action = policy(observation)                     # [S] -> [A], or [B, S] -> [B, A]

The file is a zip of `policy.json` (sizes, bounds, where it comes from) and `policy.bin`, the
program with its parameters inside as `jax.export` writes it (StableHLO, any number of rows). This
module imports nothing else of the package, so that it may be copied to where a policy is used;
`jax.export` itself needs the small package `flatbuffers` to read a file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

FORMAT = 1
FACTS, PROGRAM = "policy.json", "policy.bin"

# (observation [B, S], reward [B], fresh [B], last action [B, A] in [-1, 1], *memory [B, ...]) ->
# (action [B, A] in its own bounds, the same in [-1, 1], *memory); `fresh` rows begin an episode.
Act = Callable[..., Sequence[Any]]


class Player:
    """A policy that acts on numpy arrays and keeps its memory, whoever computes the actions.

    Args:
        act: see `Act`.
        facts: with `observation_size`, `action_size`, `remembers` and `memory`, the shape (without
            rows) and type of every array it remembers.

    Attributes:
        facts: what is known of it: method, data, environment, bounds.
        action_low, action_high: `[A]` bounds of its actions.
    """

    def __init__(self, act: Act, facts: Mapping[str, Any]) -> None:
        self._act, self.facts = act, facts
        self.observation_size: int = facts["observation_size"]
        self.action_size: int = facts["action_size"]
        self.remembers: bool = facts["remembers"]
        ones = np.ones(self.action_size, np.float32)
        low, high = facts.get("action_low"), facts.get("action_high")
        self.action_low = -ones if low is None else np.asarray(low, np.float32)
        self.action_high = ones if high is None else np.asarray(high, np.float32)
        self._state: list[Any] | None = None  # fresh, last action, memory

    def __call__(self, observation: Any, reward: Any = None) -> np.ndarray:
        """The action for one observation or for many.

        Args:
            observation: `[S]` or `[B, S]`, in the environment's own units.
            reward: of the step before, one number or `[B]`. Only a policy with a memory wants it,
                and not at the beginning of an episode.

        Returns:
            `[A]` or `[B, A]` float32, within the bounds.

        Raises:
            ValueError: another shape, something not finite, or a reward that is missing.
        """
        return self._play(self._act, observation, reward)

    def reset(self, rows: Any = None) -> None:
        """Begin a new episode: forget what was seen. A policy without a memory has nothing to.

        Args:
            rows: `[B]` bool, which of the episodes played side by side begin anew; None for all.
        """
        if rows is None or self._state is None:
            self._state = None
        else:
            self._state[0] = self._state[0] | np.asarray(rows, bool)

    def _play(self, act: Act, observation: Any, reward: Any) -> np.ndarray:
        values, single = self._observations(observation)
        if self._state is None or not self.facts["memory"]:
            self._state = self._begin(len(values))
        fresh, last, *memory = self._state
        if len(fresh) != len(values):
            hint = "call reset() where new episodes begin"
            raise self._wrong("observation", f"{len(values)} rows", f"{len(fresh)}; {hint}")
        rewards = self._rewards(reward, fresh)
        action, last, *memory = act(values, rewards, fresh, last, *memory)
        self._state = [np.zeros_like(fresh), last, *memory]
        actions = np.array(action)
        return actions[0] if single else actions

    def _begin(self, rows: int) -> list[Any]:
        memory = [np.zeros((rows, *shape), kind) for shape, kind in self.facts["memory"]]
        return [np.ones(rows, bool), np.zeros((rows, self.action_size), np.float32), *memory]

    def _observations(self, observation: Any) -> tuple[np.ndarray, bool]:
        """`[B, S]`, and whether it was one."""
        size = self.observation_size
        values = self._numbers("observation", observation)
        if values.ndim not in (1, 2) or values.shape[-1] != size or not values.size:
            expected = f"[{size}] or [B, {size}]"
            raise self._wrong("observation", f"shape {list(values.shape)}", expected)
        return np.atleast_2d(values), values.ndim == 1

    def _rewards(self, reward: Any, fresh: np.ndarray) -> np.ndarray:
        if reward is None and (fresh.all() or not self.remembers):
            return np.zeros(len(fresh), np.float32)
        if reward is None:
            expected = "that of the last step, which this policy remembers; or reset()"
            raise self._wrong("reward", None, expected)
        values = self._numbers("reward", reward)
        if values.shape not in ((), (1,), fresh.shape):
            raise self._wrong("reward", f"shape {list(values.shape)}", f"[] or [{len(fresh)}]")
        return np.broadcast_to(values, fresh.shape)

    def _numbers(self, key: str, given: Any) -> np.ndarray:
        try:
            values = np.asarray(given, np.float32)
        except (TypeError, ValueError):
            raise self._wrong(key, type(given).__name__, "real numbers") from None
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))[0]
            where = f" in entry {bad.tolist()}" if len(bad) else ""
            raise self._wrong(key, f"{values[tuple(bad)]}{where}", "finite numbers")
        return values

    def _wrong(self, key: str, found: Any, expected: str) -> Exception:
        return ValueError(f"{key}: found {found}, expected {expected}")


def load_exported(file: str | Path) -> Player:
    """The policy in a file that `Policy.export` wrote.

    Raises:
        ValueError: it is no such file; one line that says why.
        ImportError: the package flatbuffers is not installed.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            facts = json.loads(archive.read(FACTS))
            program = archive.read(PROGRAM)
    except FileNotFoundError:
        raise ValueError(f"{file}: found no such file, expected an exported policy") from None
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise ValueError(f"{file}: found no exported policy ({error})") from None
    found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
    if found != FORMAT:
        raise ValueError(f"{file}: format: found {found!r}, expected {FORMAT}")
    try:
        exported = deserialize(program)
    except ImportError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: {PROGRAM}: jax cannot read it ({reason})") from None
    return Player(jax.jit(exported.call), facts)


def deserialize(program: bytes) -> Any:
    """`jax.export.deserialize`; `ImportError` with what to install where flatbuffers is missing."""
    import jax.export

    try:
        return jax.export.deserialize(bytearray(program))
    except ImportError as error:
        raise ImportError(needs_flatbuffers("reading an exported policy")) from error


def needs_flatbuffers(feature: str) -> str:
    """One line for who has not got it."""
    return (
        f"{feature} needs the package flatbuffers, which is not installed; pip install flatbuffers"
    )

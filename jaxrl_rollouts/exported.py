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
import math
import re
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

FORMAT = 1
LESS = 2  # 1 whose observations are less an offset
FACTS, PROGRAM = "policy.json", "policy.bin"
MOST = {FACTS: 2**20, PROGRAM: 2**29}  # bytes of each that are read
# Code outside of the program that it may call: all others, Python's callbacks among them, run what
# a stranger chose in this process.
CALLS = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "shape_assertion"
CALLS += "cu_threefry2x32_ffi", "hip_threefry2x32_ffi", "mhlo.erf", "mhlo.topk"
_CALL = re.compile(r'\bcustom_call @"?([\w.]+)"?\(')
_OUTSIDE = re.compile(r"\b(custom_call|infeed|outfeed|stablehlo\.send|stablehlo\.recv)\b")

# (observation [B, S], reward [B], fresh [B], last action [B, A] in [-1, 1], *memory [B, ...]) ->
# (action [B, A] in its own bounds, the same in [-1, 1], *memory); `fresh` rows begin an episode.
Act = Callable[..., Sequence[Any]]


class Player:
    """A policy that acts on numpy arrays and keeps its memory, on whichever backend.

    Args:
        act: see `Act`.
        facts: with `observation_size`, `action_size`, `remembers` and `memory`, the shape (without
            rows) and type of every array it remembers.

    Attributes:
        facts: its metadata: method, data, environment, bounds.
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
        offset = facts.get("offset")
        self._offset = None if offset is None else np.asarray(offset, np.float64)
        self._state: list[Any] | None = None  # fresh, last action, memory

    def __call__(self, observation: Any, reward: Any = None) -> np.ndarray:
        """The action for one observation or for many.

        Args:
            observation: `[S]` or `[B, S]`, in the environment's own units; or the dict of a `Dict`
                space, whose parts are put in the order of the policy's columns.
            reward: reward of the previous step, one number or `[B]`. Only a policy with a memory
                reads it, and not at the beginning of an episode.

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
        if not np.isfinite(actions).all():
            raise self._wrong("action", "a number that is not finite", "a policy that was trained")
        return actions[0] if single else actions

    def _begin(self, rows: int) -> list[Any]:
        memory = [np.zeros((rows, *shape), kind) for shape, kind in self.facts["memory"]]
        return [np.ones(rows, bool), np.zeros((rows, self.action_size), np.float32), *memory]

    def _observations(self, observation: Any) -> tuple[np.ndarray, bool]:
        """`[B, S]`, and whether it was one."""
        size = self.observation_size
        if isinstance(observation, Mapping):
            observation = self._columns(observation)
        values = self._numbers("observation", observation, self._offset)
        if values.ndim not in (1, 2) or values.shape[-1] != size or not values.size:
            expected = f"[{size}] or [B, {size}]"
            raise self._wrong("observation", f"shape {list(values.shape)}", expected)
        return np.atleast_2d(values), values.ndim == 1

    def _columns(self, parts: Mapping[str, Any]) -> np.ndarray:
        """Columns named `part`, `part[2]` or `part.inner[2]`, by name, `[..., S]`."""
        names = self.facts.get("columns") or ()
        if not names:
            raise self._wrong("observation", "a dict", "an array: the policy has no names")
        columns = []
        for name in names:
            path, _, index = name.partition("[")
            value: Any = parts
            for key in path.split("."):
                if not isinstance(value, Mapping) or key not in value:
                    raise self._wrong("observation", f"no part {path}", f"one, of {list(names)}")
                value = value[key]
            try:
                value = np.asarray(value)
                alone = not index and value.shape[-1:] != (1,)  # one number a row
                columns.append(value if alone else value[..., int(index[:-1] or 0)])
            except (IndexError, ValueError):
                raise self._wrong("observation", f"no entry {name}", "one") from None
        if len({column.shape for column in columns}) > 1:
            shapes = {name: list(x.shape) for name, x in zip(names, columns, strict=True)}
            raise self._wrong("observation", f"shapes {shapes}", "parts of as many rows")
        return np.stack(columns, -1)

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

    def _numbers(self, key: str, given: Any, offset: np.ndarray | None = None) -> np.ndarray:
        """As float32; an offset is subtracted before, in float64, as the data's was."""
        try:
            imaginary = np.iscomplexobj(given)  # which numpy would drop
            values = np.asarray(np.real(given) if imaginary else given, np.float64)
        except (TypeError, ValueError):
            raise self._wrong(key, type(given).__name__, "real numbers") from None
        if imaginary:
            raise self._wrong(key, "complex numbers", "real numbers")
        if offset is not None and values.shape[-1:] == offset.shape:
            values = values - offset
        with np.errstate(over="ignore"):  # an overflow is not finite, which is refused below
            values = values.astype(np.float32)
        if np.ma.is_masked(given):
            raise self._wrong(key, "masked entries", "none")
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))[0]
            where = f" in entry {bad.tolist()}" if len(bad) else ""
            raise self._wrong(key, f"{values[tuple(bad)]}{where}", "finite numbers")
        return values

    def _wrong(self, key: str, found: Any, expected: str) -> Exception:
        return ValueError(f"{key}: found {found}, expected {expected}")


def load_exported(file: str | Path) -> Player:
    """The policy in a file that `Policy.export` wrote.

    The file is not trusted: it is refused where its program calls anything outside of itself
    (`CALLS`), or where its facts are not those of the program.

    Raises:
        ValueError: it is no such file; the message is one line with the reason.
        ImportError: the package flatbuffers is not installed.
    """
    try:
        if not stat.S_ISREG(Path(file).stat().st_mode):
            raise ValueError("no regular file")
        with zipfile.ZipFile(file) as archive:
            text, program = (_member(archive, name) for name in (FACTS, PROGRAM))
        facts = json.loads(text)
    except FileNotFoundError:
        raise ValueError(f"{file}: found no such file, expected an exported policy") from None
    except Exception as error:  # whatever zipfile and json raise of a damaged file
        raise ValueError(f"{file}: found no exported policy ({_line(error)})") from None
    found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
    if found not in (FORMAT, LESS):
        raise ValueError(f"{file}: format: found {_line(repr(found))}, expected {FORMAT} or {LESS}")
    # Damage inside a program would crash the native code that reads it.
    if facts.get("sha256", digest := sha256(program).hexdigest()) != digest:
        raise ValueError(f"{file}: {PROGRAM}: found other bytes than {FACTS} has the sha256 of")
    try:
        exported = deserialize(program)
        text = exported.mlir_module()
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(f"{file}: {PROGRAM}: jax cannot read it ({_line(error)})") from None
    if calls := foreign_calls(text):
        raise ValueError(f"{file}: {PROGRAM}: found a call of {calls}, expected a program alone")
    try:
        wrong = _wrong_facts(facts, exported)
    except Exception as error:  # numbers beyond all float64, names of types that are no Python
        wrong = f"found other facts than a policy has ({_line(error)})"
    if wrong:
        raise ValueError(f"{file}: {FACTS}: {wrong}")
    return Player(jax.jit(exported.call), facts)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a file in an archive, not more than `MOST`, whatever they expand to."""
    with archive.open(name) as member:
        data = member.read(MOST[name] + 1)
    if len(data) > MOST[name]:
        raise ValueError(f"{name} has more than {MOST[name]:,} bytes")
    return data


def foreign_calls(program: str) -> str:
    """What a program's text calls outside of itself and may not; empty where there is none."""
    names = _CALL.findall(program)
    foreign = [name for name in names if name not in CALLS]
    hidden = [word for word in _OUTSIDE.findall(program) if word != "custom_call"]
    if len(names) != len(_OUTSIDE.findall(program)) - len(hidden):
        hidden.append("a custom call")  # written in another way
    return ", ".join(sorted({*foreign, *hidden}))[:200]


def _wrong_facts(facts: Mapping[str, Any], exported: Any) -> str:
    """Which of the facts are not those of the program, in words; empty where all are."""
    sizes = [facts.get("observation_size"), facts.get("action_size")]
    if not all(type(size) is int and size > 0 for size in sizes):
        return "found no sizes of observations and actions, expected whole numbers"
    if type(facts.get("remembers")) is not bool:
        return "found no remembers, expected true or false"
    observation, action = sizes
    try:
        state = [(tuple(shape), str(np.dtype(kind))) for shape, kind in facts["memory"]]
    except (KeyError, TypeError, ValueError):
        return "found no memory, expected a list of shapes and types"
    own, chosen, one = ((observation,), "float32"), ((action,), "float32"), ((), "float32")
    taken, given = [own, one, ((), "bool"), chosen, *state], [chosen, chosen, *state]
    for what, avals, expected in (
        ("takes", exported.in_avals, taken),
        ("returns", exported.out_avals, given),
    ):
        found = [(x.shape[1:] if x.shape else None, str(x.dtype)) for x in avals]
        if found != expected:
            return _line(f"found {expected} for what the program {what}, expected {found}")
    trees = jax.tree.structure(((0,) * len(taken), {})), jax.tree.structure((0,) * len(given))
    if trees != (exported.in_tree, exported.out_tree) or exported.nr_devices != 1:
        return "found the facts of a policy, expected those of another program"
    if sum(math.prod(shape) for shape, _ in taken) > MOST[PROGRAM]:
        return f"found {_line(taken)}, expected at most {MOST[PROGRAM]:,} numbers"
    names = facts.get("columns") or []
    if not isinstance(names, list) or len(names) not in (0, observation):
        return f"found no columns, expected {observation} names or none"
    if not all(isinstance(name, str) for name in names):
        return "found no columns, expected names"
    for name, size in (("action_low", action), ("action_high", action), ("offset", observation)):
        bound = facts.get(name)
        numbers = isinstance(bound, list) and len(bound) == size
        if bound is not None and not (
            numbers and all(type(x) in (int, float) and math.isfinite(x) for x in bound)
        ):
            return f"found no {name}, expected {size} numbers or null"
    return ""


def _line(text: Any) -> str:
    """Another library's message on one line, not too long and without control characters."""
    plain = "".join(c if c.isprintable() else " " for c in str(text))
    return " ".join(plain.split())[:200] or type(text).__name__


def deserialize(program: bytes) -> Any:
    """`jax.export.deserialize`; `ImportError` with what to install where flatbuffers is missing."""
    import jax.export

    try:
        return jax.export.deserialize(bytearray(program))
    except ImportError as error:
        raise ImportError(needs_flatbuffers("reading an exported policy")) from error


def needs_flatbuffers(feature: str) -> str:
    """One line where it is not installed."""
    return (
        f"{feature} needs the package flatbuffers, which is not installed; pip install flatbuffers"
    )

"""Names of columns: ours (D4RL's), and what other libraries and users call the same.

Gymnasium says terminations and truncations, d3rlpy `episode_terminals`, RLlib `new_obs` and
`dones`, jaxrl `masks` and `dones_float`, Spinning Up `obs2`, `act` and `rew`, RLDS `is_last` and
`is_terminal` (`rlds`). They are mapped by name, in capitals too; `Renamed.read_as` reports what was
read as what.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.errors import DataError

from .checks import as_flags
from .rlds import DISCOUNTS, find_steps, read_as, rows_of_steps, terminates

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations")
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "observations": ("obs", "observation", "states", "state"),
    "actions": ("action", "acts", "act"),
    "rewards": ("reward", "rews", "rew"),
    "terminals": (
        "terminations",
        "terminal",
        "termination",
        "terminated",
        "terminateds",
        "masks",
        *DISCOUNTS,
    ),
    "timeouts": ("truncations", "timeout", "truncation", "truncated", "truncateds"),
    "next_observations": (
        "next_obs",
        "new_obs",
        "next_observation",
        "obs_next",
        "next_states",
        "next_state",
        "obs2",
    ),
}
# Flags of the last row of an episode, whatever ended it.
ENDS = ("episode_terminals", "episode_ends", "dones_float", "dones", "done")
EITHER = ("dones", "done")  # without other flags these may be terminations alone
MASKS = "masks"  # 0 where an episode terminates, so that no value follows
ZEROS = (MASKS, *DISCOUNTS)


class Renamed(NamedTuple):
    """Arrays under our names.

    Attributes:
        names: our name of a column: the name in the file, where these differ.
        ends: name of the flags in the file that mark every end, "" where there are none.
        read_as: sentence on what was read as what; "" where all names are ours.
        steps: RLDS's names, where the arrays are its steps.
        rows: `[N]`, which steps the rows are; None unless `steps`.
    """

    names: dict[str, str]
    ends: str
    read_as: str
    steps: Mapping[str, str] = {}
    rows: np.ndarray | None = None

    @property
    def worked_out(self) -> bool:
        """Whether flags are not those of the file, but worked out from them."""
        return bool(self.ends or self.steps) or self.names.get("terminals", "").lower() in ZEROS

    @property
    def facts(self) -> dict[str, str]:
        """What a dataset's attributes say of it."""
        return {"read_as": self.read_as} if self.read_as else {}


class View:
    """An open file whose arrays are accessed under our names."""

    def __init__(self, file: Any, names: Mapping[str, str]) -> None:
        self._file, self._names = file, names

    def __getitem__(self, key: str) -> Any:
        return self._file[self._names.get(key, key)]

    def __contains__(self, key: str) -> bool:
        return self._names.get(key, key) in self._file

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def get(self, key: str) -> Any:
        """The array, or None."""
        return self._file.get(self._names.get(key, key))


@contextmanager
def naming(found: Renamed) -> Iterator[None]:
    """Name columns in a `DataError` as the file does."""
    try:
        yield
    except DataError as error:
        key = found.names.get(error.key)
        if key is None:
            raise
        raise DataError(error.source, key, error.found, error.expected, error.hint) from error


def find_names(source: str | Path, keys: Collection[str]) -> Renamed:
    """What the columns are called here."""
    names: dict[str, str] = {}
    plain = {key.lower(): key for key in sorted(keys)}  # small letters last: they go first
    for ours, others in SYNONYMS.items():
        found = [plain[key] for key in (ours, *others) if key in plain]
        if found == ["terminals", MASKS] and "timeouts" not in plain:
            names[ours] = MASKS  # as OGBench has them: its terminals are all ends
            continue
        while len(found) > 1 and found[-1].lower() in ZEROS:
            found.pop()
        if len(found) > 1 and ours not in found:
            raise DataError(source, ours, " and ".join(found), "one of them", "leave one out")
        if found and found[0] != ours:
            names[ours] = found[0]
    there = {*keys} & {"terminals", "timeouts"} | {*names} & {"terminals", "timeouts"}
    ends = next((plain[key] for key in ENDS if key in plain), "")
    if names.get("terminals") == MASKS and "terminals" in keys:
        ends = "terminals"
    if ends and len(there) == 2:
        ends = ""  # nothing is left for it to say
    weak = {plain[key] for key in DISCOUNTS if key in plain}
    steps = find_steps(keys) if not ends and {names.get(key) for key in there} <= weak else {}
    if steps:
        names.pop("terminals", None)
    renamed = [
        f"{theirs} as {ours}{' where 0' * (theirs.lower() in ZEROS)}"
        for ours, theirs in names.items()
    ] + [read_as(steps)] * bool(steps)
    if ends:
        rest = next(iter(there), "")
        renamed.append(
            f"{ends} as the ends of episodes: {_other(rest)} where {rest} has none"
            if rest
            else f"{ends} as terminals, after which no value follows (where they mark time limits, "
            "too, give the limit: --max-episode-steps, max_episode_steps)"
        )
    text = f"{source}: read {'; '.join(renamed)}." if renamed else ""
    return Renamed(names, ends, text, steps)


def check_present(source: str | Path, arrays: Any, given: Iterable[str] = ()) -> None:
    """`DataError` unless a mapping, or a file, has every array that is needed.

    Args:
        given: the file's own keys; left out, the keys of `arrays`.
    """
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        names = [str(name) for name in given or arrays]
        hints = [f"needed as well: {', '.join(missing[1:])}"] if missing[1:] else []
        if close := difflib.get_close_matches(missing[0], names, 1, 0.75):
            hints.append(f"is it {close[0]}?")
        if "is_terminal" in map(str.lower, names):
            hints.append("RLDS's is_terminal needs is_last beside it")
        found = f"only {', '.join(sorted(names)) or 'nothing'}"
        expected = f"an array {missing[0]} (or {', '.join(SYNONYMS[missing[0]][:2])})"
        raise DataError(source, missing[0], found, expected, "; ".join(hints))


def _other(key: str) -> str:
    return "timeouts" if key == "terminals" else "terminals"


def rename(
    source: str | Path, arrays: Mapping[str, Any], limit: int | None = None
) -> tuple[dict[str, Any], Renamed]:
    """`arrays` under our names, the ends of episodes worked out; others keep theirs."""
    found = find_names(source, arrays.keys())
    taken = {*found.names.values(), found.ends}
    renamed = {key: arrays[key] for key in arrays if key not in taken}
    renamed |= {ours: arrays[theirs] for ours, theirs in found.names.items()}
    masks = found.names.get("terminals", "")
    if masks.lower() == MASKS:
        renamed["terminals"] = ~as_flags(source, masks, arrays[masks])
    elif masks.lower() in ZEROS:
        renamed["terminals"] = terminates(source, masks, arrays[masks])
    if found.steps:
        with naming(found):
            renamed, rows = rows_of_steps(source, renamed, found.steps)
        return renamed, found._replace(rows=rows)
    if not found.ends:
        return renamed, found
    ends = as_flags(source, found.ends, arrays[found.ends])
    known = [key for key in ("terminals", "timeouts") if key in renamed]
    if known:
        flags = as_flags(source, known[0], renamed[known[0]])
        if len(flags) == len(ends):
            renamed[_other(known[0])] = ends & ~flags
    elif found.ends.lower() not in EITHER:
        raise DataError(
            source,
            found.ends,
            "ends of episodes, and no terminals",
            "terminals, after which no value follows",
            "add an array terminals; zeros where episodes were only cut",
        )
    else:
        lengths = np.diff(np.flatnonzero(ends), prepend=-1)
        cut = np.zeros_like(ends)
        if limit is not None:
            cut[np.flatnonzero(ends)[lengths >= limit]] = True
        renamed["terminals"] = ends & ~cut
        if limit is not None or "next_observations" not in renamed:
            renamed["timeouts"] = cut
    return renamed, found

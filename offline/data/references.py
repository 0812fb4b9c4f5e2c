"""D4RL's reference returns and the normalised score.

`score = 100 (R - low) / (high - low)`: 0 is a random policy, 100 the expert of Fu et al. 2020.
The returns are D4RL's (Apache-2.0, `d4rl/infos.py`, `d4rl/pointmaze/__init__.py`). A score is
comparable with published ones only if the data and the environment are D4RL's; the datasets of the
package (`hopper-medium-mini-v1`) use the same references, and their names differ from D4RL's. A
Minari dataset brings references of its own (`ref_min_score`, `ref_max_score`), and the score is
then Minari's. NeoRL data have no entry: their environments are others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from .catalogue import ADROIT_KINDS, ANTMAZES, LOCOMOTION_KINDS
from .transitions import Dataset

OWN = ("ref_min_score", "ref_max_score")  # Minari's names of its own references
Returns = TypeVar("Returns", float, np.ndarray)

_LOCOMOTION = {
    "halfcheetah": (-280.178953, 12135.0),
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
    "ant": (-325.6, 3879.7),
}
_ADROIT = {
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "relocate": (-6.425911, 4233.877797728884),
    "door": (-56.512833, 2880.5693087298737),
}
_MAZE2D = {
    "open-v0": (0.01, 20.66),
    "umaze-v0": (0.94, 62.6),
    "medium-v0": (5.77, 85.14),
    "large-v0": (4.83, 191.99),
    "open-dense-v0": (11.17817, 27.166538620695782),
    "umaze-dense-v0": (23.249793, 81.78995240126592),
    "medium-dense-v0": (19.477620, 96.03474232952358),
    "large-dense-v0": (27.388310, 215.09965671563742),
    "umaze-v1": (23.85, 161.86),
    "medium-v1": (13.13, 277.39),
    "large-v1": (6.7, 273.99),
    "umaze-dense-v1": (68.537689, 193.66285642381482),
    "medium-dense-v1": (44.264742, 297.4552547777125),
    "large-dense-v1": (30.569041, 303.4857382709002),
}


def _table() -> Iterator[tuple[str, tuple[float, float]]]:
    for family, scores in _LOCOMOTION.items():
        for version, kinds in LOCOMOTION_KINDS.items():
            yield from ((f"{family}-{kind}-{version}", scores) for kind in kinds)
    for kind in ANTMAZES:
        yield from ((f"antmaze-{kind}-{version}", (0.0, 1.0)) for version in ("v0", "v1", "v2"))
    for maze, scores in _MAZE2D.items():
        yield f"maze2d-{maze}", scores
    for task, scores in _ADROIT.items():
        for kind in ADROIT_KINDS:
            yield from ((f"{task}-{kind}-{version}", scores) for version in ("v0", "v1"))
    for kind in ("complete", "partial", "mixed"):
        yield f"kitchen-{kind}-v0", (0.0, 4.0)


REFERENCE_SCORES: dict[str, tuple[float, float]] = dict(_table())


def reference_scores(data: str | Dataset) -> tuple[float, float] | None:
    """Returns of a random and an expert policy, None if there are none.

    The package's datasets (`hopper-medium-mini-v1`) have those of their environment.

    Args:
        data: a dataset, whose own references count first, or the name of one.
    """
    if not isinstance(data, str):
        own = [data.attributes.get(key) for key in OWN]
        if all(isinstance(value, int | float) and np.isfinite(value) for value in own):
            low, high = map(float, own)  # type: ignore[arg-type]
            return (low, high) if high > low else None
        if data.benchmark not in ("", "d4rl", "made"):
            return None
        data = data.name
    if data.endswith("-mini-v1"):
        return _LOCOMOTION.get(data.split("-")[0])
    return REFERENCE_SCORES.get(data)


def score_label(data: str | Dataset) -> str:
    """Whose normalised score it is: "D4RL score", or "Minari score"."""
    own = not isinstance(data, str) and all(key in data.attributes for key in OWN)
    return "Minari score" if own else "D4RL score"


def normalised_score(data: str | Dataset, returns: Returns) -> Returns | None:
    """Normalised score of undiscounted returns; None without references, never a number.

    For a standard deviation or an interval's width use `normalised_spread`: this formula would
    shift it by `-low / (high - low)`.

    Args:
        data: as for `reference_scores`.
        returns: a number or an array.
    """
    references = reference_scores(data)
    if references is None:
        return None
    low, high = references
    return 100.0 * (returns - low) / (high - low)


def normalised_spread(data: str | Dataset, spread: Returns) -> Returns | None:
    """A spread of returns (standard deviation, interval width) on the normalised scale."""
    references = reference_scores(data)
    return None if references is None else 100.0 * spread / (references[1] - references[0])

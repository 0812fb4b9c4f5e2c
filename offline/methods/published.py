"""What public codes chose for single datasets: horizons, penalties, floors, numbers of critics.

MOPO and MOBILE: OfflineRL-Kit's tables, whose MOPO penalises in units of raw targets; RAVL: N of
10, and 50 on Hopper, as CORL's EDAC has it (RAVL's own code names no dataset). Where nothing was
chosen for a dataset a method stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ..environments.terminations import family
from .mobile import Mobile
from .mopo_old import Mopo
from .ravl import Ravl
from .registry import MethodConfig


class Choice(NamedTuple):
    """A method's rollouts and coefficient on a dataset."""

    horizon: int
    penalty: float


# A `mixed` set of `data make` stands where D4RL has a medium-replay one.
KINDS = {"mixed": "medium-replay", "replay": "medium-replay"}

MOPO: Mapping[str, Choice] = {
    "halfcheetah-medium": Choice(5, 0.5),
    "hopper-medium": Choice(5, 5.0),
    "walker2d-medium": Choice(5, 0.5),
    "halfcheetah-medium-replay": Choice(5, 0.5),
    "hopper-medium-replay": Choice(5, 2.5),
    "walker2d-medium-replay": Choice(1, 2.5),
    "halfcheetah-medium-expert": Choice(5, 2.5),
    "hopper-medium-expert": Choice(5, 5.0),
    "walker2d-medium-expert": Choice(1, 2.5),
}
MOBILE: Mapping[str, Choice] = {
    "halfcheetah-random": Choice(5, 0.5),
    "hopper-random": Choice(5, 5.0),
    "walker2d-random": Choice(5, 2.0),
    "halfcheetah-medium": Choice(5, 0.5),
    "hopper-medium": Choice(5, 1.5),
    "walker2d-medium": Choice(5, 0.5),
    "halfcheetah-medium-replay": Choice(5, 0.1),
    "hopper-medium-replay": Choice(5, 0.1),
    "walker2d-medium-replay": Choice(1, 0.5),
    "halfcheetah-medium-expert": Choice(5, 2.0),
    "hopper-medium-expert": Choice(5, 1.5),
    "walker2d-medium-expert": Choice(1, 1.5),
}
HOPPER_CRITICS = 50
LEAST_TARGET = 0.0  # of MOBILE in every task there


def kind_of(dataset: str) -> str:
    """`hopper-medium-replay` of `hopper-medium-replay-v2`, `hopper-mixed` and a path to either."""
    stem = dataset.replace("\\", "/").rpartition("/")[2].partition(".")[0].replace("_", "-")
    words = [word for word in stem.split("-") if word and not _is_version(word)][1:]
    kind = "-".join(words)
    return f"{family(stem)}-{KINDS.get(kind, kind)}"


def _is_version(word: str) -> bool:
    return word[0] == "v" and word[1:].isdigit()


def published(
    method: str, dataset: str, config: MethodConfig, horizon: int
) -> tuple[MethodConfig, int]:
    """`config` and the rollouts' horizon as `method`'s public code has them for a dataset.

    Args:
        method: its name.
        dataset: its name; versions do not matter, and a `mixed` set counts as a medium-replay one.
        config: whose other settings stay.
        horizon: where nothing was chosen.
    """
    kind = kind_of(dataset)
    if method == "mopo" and kind in MOPO:
        mine: Mopo = replace(config.mopo, penalty=MOPO[kind].penalty)
        return replace(config, mopo=mine), MOPO[kind].horizon
    if method == "mobile" and kind in MOBILE:
        choice = MOBILE[kind]
        theirs: Mobile = replace(config.mobile, penalty=choice.penalty, min_target=LEAST_TARGET)
        return replace(config, mobile=theirs), choice.horizon
    if method == "ravl" and kind.startswith("hopper-"):
        many: Ravl = replace(config.ravl, num_critics=HOPPER_CRITICS)
        return replace(config, ravl=many), horizon
    return config, horizon

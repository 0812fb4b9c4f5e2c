"""Colours of methods, the same in every picture of every experiment."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from jaxrl_rollouts.offline.report import COLOURS as AGENTS
from jaxrl_rollouts.reports import pictures

COLOURS: Mapping[str, str] = {
    **AGENTS,
    "mse": "#0072B2",
    "pushforward": "#E69F00",
    "correction": "#CC79A7",
    "refiner": "#009E73",
    "real": "#777777",
    "synther": "#E69F00",
    "unguided": "#56B4E9",
    "guided": "#0072B2",
    "data": "#777777",
    "truth": "#000000",
}


def colour(name: str) -> str:
    """The colour of what begins with a name above; others get one of the palette."""
    return pictures.colour(name, COLOURS)


curve_with_band = functools.partial(pictures.curve_with_band, colours=COLOURS)

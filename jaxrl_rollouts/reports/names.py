"""Name and colour of methods, emulators and sources in pictures: each has one, in every picture.

Keys are those of the command line. A table of text, so that the engine imports no method.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

# Okabe and Ito's palette, without its yellow (too pale on white): distinct for all common kinds
# of colour vision. Colours of what has no entry below.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


class Shown(NamedTuple):
    """How something is shown.

    Attributes:
        name: in legends.
        colour: a matplotlib colour.
    """

    name: str
    colour: str


SHOWN: Mapping[str, Shown] = {
    "base": Shown("MBPO", "#D55E00"),
    "mopo": Shown("MOPO", "#E69F00"),
    "mobile": Shown("MOBILE", "#CC79A7"),
    "ravl": Shown("RAVL", "#0072B2"),
    "neubay": Shown("NEUBAY", "#56B4E9"),
    "neubay_markov": Shown("NEUBAY, no memory", "#A6CEE3"),
    "combo": Shown("COMBO", "#CC6677"),
    "morel": Shown("MOReL", "#AA4499"),
    "rambo": Shown("RAMBO", "#661100"),
    "mobrac": Shown("MoBRAC", "#117777"),
    "leq": Shown("LEQ", "#6699CC"),
    "admpo": Shown("ADMPO", "#DDAA33"),
    "cvar": Shown("CVaR targets", "#AA7744"),
    "bc": Shown("BC", "#222222"),
    "sac": Shown("SAC-N", "#66C2A5"),
    "edac": Shown("EDAC", "#009E73"),
    "cql": Shown("CQL", "#999933"),
    "td3_bc": Shown("TD3+BC", "#882255"),
    "iql": Shown("IQL", "#117733"),
    "rebrac": Shown("ReBRAC", "#332288"),
    "td3_awr": Shown("TD3-AWR", "#774411"),
    "fql": Shown("FQL", "#E7298A"),
    "ifql": Shown("IFQL", "#F781BF"),
    "synther": Shown("SynthER", "#A65628"),
    "pgd": Shown("Policy-guided diffusion", "#7570B3"),
    "planner": Shown("Planner", "#66A61E"),
    "online_sac": Shown("SAC, online", "#1B9E77"),
    "behaviour": Shown("behaviour", "#777777"),
    "mse": Shown("MSE", "#0072B2"),
    "pushforward": Shown("Pushforward", "#E69F00"),
    "unrolled": Shown("Unrolled", "#D55E00"),
    "sobolev": Shown("Sobolev", "#56B4E9"),
    "correction": Shown("Correction", "#CC79A7"),
    "refiner": Shown("PDE-Refiner", "#009E73"),
    "crps": Shown("CRPS", "#882255"),
    "persistence": Shown("Persistence", "#888888"),
    "linear": Shown("Linear per wavenumber", "#DDAA33"),
    "solver": Shown("Solver", "#AA4499"),
    "truth": Shown("truth", "#000000"),
}


def named(label: str) -> str:
    """The name of a key; any other label as it is."""
    return SHOWN[label].name if label in SHOWN else label


def known(label: str) -> str:
    """The key that a label is or begins with, by key or by name; "" for none."""
    text = label.lower()
    starts = [
        (len(start), key)
        for key, shown in SHOWN.items()
        for start in (key, shown.name.lower())
        if text.startswith(start)
    ]
    return max(starts)[1] if starts else ""


def colour(label: str, others: Mapping[str, str] | None = None) -> str:
    """The colour of a label: the same in every figure, whatever else is drawn beside it.

    Two labels without an entry may share one; `pictures.curve_with_band` then gives the later one
    another.

    Args:
        label: a key or a name of `SHOWN`, or what begins with one; others get one of the palette.
        others: beginning of a label -> colour, before those of `SHOWN`.
    """
    for beginning, shade in (others or {}).items():
        if label.lower().startswith(beginning):
            return shade
    key = known(label)
    return SHOWN[key].colour if key else PALETTE[zlib.crc32(label.encode()) % len(PALETTE)]

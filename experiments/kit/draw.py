"""The library's drawings in the experiments' colours."""

from __future__ import annotations

import functools

from jaxrl_rollouts.compare import draw
from jaxrl_rollouts.reports import pictures

from .colours import COLOURS

curve_with_band = functools.partial(pictures.curve_with_band, colours=COLOURS)
intervals = functools.partial(pictures.intervals, colours=COLOURS)
curves = functools.partial(draw.curves, colours=COLOURS)
sweep = functools.partial(draw.sweep, colours=COLOURS)

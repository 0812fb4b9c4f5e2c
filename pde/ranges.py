"""Parameters of fields outside the range of an emulator's training data."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from .fieldset import FieldSet

if TYPE_CHECKING:
    from .trained import TrainedEmulator


def check_parameters(own: TrainedEmulator, fields: FieldSet) -> None:
    """Warn of parameters outside the range that an emulator was trained on, or not in the file.

    Those that are conditions are checked where they are scaled.
    """
    outside, absent = [], []
    for name, (low, high) in own.parameters.items():
        if name in own.conditions:
            continue
        values = fields.parameters.get(name)
        if values is None or not np.isfinite(values).all():
            absent.append(name)
            continue
        near = 0.01 * max(abs(low), abs(high), high - low)
        if values.min() < low - near or values.max() > high + near:
            outside.append(
                f"{name}: found {_span(values.min(), values.max())}, expected {_span(low, high)}"
            )
    if outside:
        warnings.warn(
            f"{fields.path}: {'; '.join(outside)}: the emulator was trained on no others and does "
            "not see this parameter",
            stacklevel=3,
        )
    if absent:
        warnings.warn(
            f"{fields.path}: {', '.join(absent)}: not in the file, so not checked against the "
            "emulator's training data",
            stacklevel=3,
        )


def _span(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys(f"{value:.4g}" for value in (low, high)))

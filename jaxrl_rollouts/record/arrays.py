"""Arrays that a run measured and need not measure again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from .context import RunContext


def remember(
    context: RunContext | None,
    stage: str,
    name: str,
    measure: Callable[[], Mapping[str, ArrayLike]],
) -> dict[str, np.ndarray]:
    """`measure()`'s arrays, from the stage's folder if an earlier session left them there.

    Args:
        context: of the run; None measures and keeps nothing.
        stage: whose folder they are kept in, as `name.npz` (written whole or not at all).
        name: of the file.
        measure: makes the arrays.

    Raises:
        TypeError: something measured is no array of numbers or text.
    """
    path = context.folder.stage(stage) / f"{name}.npz" if context else None
    if path and path.exists():
        with np.load(path) as stored:
            return dict(stored)
    arrays = {key: np.asarray(value) for key, value in measure().items()}
    for key, array in arrays.items():
        if array.dtype.hasobject:  # could be written and not be read
            raise TypeError(f"{stage}/{name}: {key}: expected an array of numbers or text")
    if path:
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    return arrays

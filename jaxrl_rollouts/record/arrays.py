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
    """
    path = context.folder.stage(stage) / f"{name}.npz" if context else None
    if path and path.exists():
        with np.load(path) as stored:
            return dict(stored)
    arrays = {key: np.asarray(value) for key, value in measure().items()}
    if path:
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, allow_pickle=False, **arrays)
        part.replace(path)
    return arrays

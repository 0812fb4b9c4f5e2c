"""Arrays that a run measured and need not measure again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from .context import RunContext, poll
from .files import is_sealed, replacing, seal_file


def remember(
    context: RunContext | None,
    stage: str,
    name: str,
    measure: Callable[[], Mapping[str, ArrayLike]],
) -> dict[str, np.ndarray]:
    """`measure()`'s arrays, from the stage's folder if an earlier session left them there whole.

    Args:
        context: context of the run; None measures and keeps nothing.
        stage: the stage in whose folder they are stored as `name.npz`, with a digest.
        name: name of the file.
        measure: makes the arrays.
    """
    path = context.folder.stage(stage) / f"{name}.npz" if context else None
    if path and is_sealed(path):
        with np.load(path) as stored:
            return dict(stored)
    if path and path.exists():
        warnings.warn(f"{path}: damaged or not finished, measured again", stacklevel=2)
    poll(context, f"before measuring {stage}: {name}")
    arrays = {key: np.asarray(value) for key, value in measure().items()}
    for key, array in arrays.items():
        if array.dtype.hasobject:  # could be written and not be read
            raise TypeError(f"{stage}/{name}: {key}: expected an array of numbers or text")
    if path:
        with replacing(path, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        seal_file(path)
    return arrays

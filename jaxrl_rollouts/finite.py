"""Training that has become non-finite is stopped, and told by metric, iteration and seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DivergenceError
from .record import checkpoint


def checked_means(
    stage: str, iteration: int, metrics: Mapping[str, np.ndarray], seeds: int, folder: Path | None
) -> dict[str, np.ndarray]:
    """Means over the chunk, `[seeds]`, of metrics that are all finite."""
    metrics = {name: value[:, :seeds] for name, value in metrics.items()}
    _check_finite(stage, iteration, metrics, folder)
    return {name: value.mean(0) for name, value in metrics.items()}


def _check_finite(stage: str, iteration: int, metrics: dict[str, np.ndarray], folder: Any) -> None:
    """Raise for the earliest iteration at which any metric `[chunk, seeds]` is not finite."""
    for name, value in metrics.items():
        if value.ndim != 2:
            raise ValueError(f"metric {name}: found shape {value.shape[2:]}, expected a scalar")
    bad = {name: np.argwhere(~np.isfinite(value)) for name, value in metrics.items()}
    firsts = [(*map(int, rows[0]), name) for name, rows in bad.items() if len(rows)]
    if not firsts:
        return
    step, seed, name = min(firsts)
    steps = checkpoint.steps(folder) if folder else []
    kept = f"the last good checkpoint is {folder / str(steps[-1])}" if steps else "none was saved"
    value = metrics[name][step, seed]
    raise DivergenceError(
        f"stage {stage}, iteration {iteration + step + 1}, seed {seed}: metric {name} is {value}, "
        f"expected a finite number; {kept}"
    )

"""Seeds whose training becomes non-finite: they end the training, or only the others continue."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from .errors import DivergenceError
from .record import checkpoint
from .trees import PyTree

DIVERGED = "diverged.json"  # beside a checkpoint
OnDivergence = Literal["raise", "drop"]


class Seeds:
    """Which seeds of a training are finite, and at which iteration the others diverged.

    What a diverged seed computes is replaced: its row of the state by that of a finite seed, so
    that evaluations never see a non-finite number, and all of its metrics by NaN. Rows do not
    depend on each other, so that the finite seeds compute the same bits as in any case.

    Args:
        stage: name of the training.
        count: number of seeds.
        on_divergence: "raise" at the first that diverges, or "drop" it and raise at the last.
        kept: `text` of a checkpoint from which the training resumes.

    Attributes:
        diverged: iteration by seed.
        newly: whether the last chunk added some.
    """

    def __init__(
        self, stage: str, count: int, on_divergence: OnDivergence = "raise", kept: str | None = None
    ) -> None:
        self.stage, self.count, self.on_divergence = stage, count, on_divergence
        self.diverged = {int(seed): at for seed, at in json.loads(kept or "{}").items()}
        self.newly = False

    @property
    def lost(self) -> np.ndarray:
        """`[seeds]` bool, which of them diverged."""
        return np.isin(np.arange(self.count), list(self.diverged))

    @property
    def text(self) -> str:
        """For a checkpoint."""
        return json.dumps(self.diverged)

    def means(
        self, iteration: int, metrics: Mapping[str, np.ndarray], folder: Path | None
    ) -> dict[str, np.ndarray]:
        """Means over a chunk, `[seeds]`, of metrics `[chunk, seeds or more]`.

        Args:
            iteration: number of iterations before the chunk.
            metrics: metrics of the chunk, on the host.
            folder: folder of the training's checkpoints.
        """
        metrics = {name: value[:, : self.count] for name, value in metrics.items()}
        for name, value in metrics.items():
            if value.ndim != 2:
                raise ValueError(f"metric {name}: found shape {value.shape[2:]}, expected a scalar")
        firsts = _first_bad(metrics)
        self.newly = False
        for seed in sorted(set(firsts) - set(self.diverged), key=lambda seed: firsts[seed]):
            step, name = firsts[seed]
            self.diverged[seed], self.newly = iteration + step + 1, True
            what = f"stage {self.stage}, iteration {iteration + step + 1}, seed {seed}: metric "
            what += f"{name} is {metrics[name][step, seed]}, expected a finite number"
            if self.on_divergence == "raise" or len(self.diverged) == self.count:
                raise DivergenceError(f"{what}; {self._kept(folder)}")
            left = self.count - len(self.diverged)
            warnings.warn(f"{what}; the other {left} of {self.count} seeds continue", stacklevel=3)
        return self.masked({name: value.mean(0) for name, value in metrics.items()})

    def masked(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Values `[seeds]` or `[seeds, ...]` with NaN for those that diverged."""
        if not self.diverged:
            return {name: np.asarray(value) for name, value in values.items()}
        masked = {}
        for name, value in values.items():
            masked[name] = np.array(value, np.float64)
            masked[name][list(self.diverged)] = np.nan
        return masked

    def filled(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Metrics `[seeds]` with a finite seed's in place of NaN: what decides about all."""
        return {name: value[self._rows()] for name, value in means.items()}

    def mended(self, state: PyTree) -> PyTree:
        """The state with a finite seed's rows in place of diverged ones; the old one is gone."""
        return _taken(state, self._rows()) if self.diverged else state

    def marked(self, state: PyTree) -> PyTree:
        """The state with NaN for all numbers of seeds that diverged: none is used by mistake."""
        return marked_rows(state, self.lost)

    def _rows(self) -> np.ndarray:
        """Of every seed whose row stands for it."""
        rows = np.arange(self.count)
        good = next(seed for seed in rows if seed not in self.diverged)
        return np.where(self.lost, good, rows)

    def _kept(self, folder: Path | None) -> str:
        steps = checkpoint.steps(folder) if folder else []
        if not steps or not folder:
            return "none was saved"
        return f"the last good checkpoint is {folder / str(steps[-1])}"


def _first_bad(metrics: Mapping[str, np.ndarray]) -> dict[int, tuple[int, str]]:
    """For every seed with a metric that is not finite the first step and the metric."""
    firsts: dict[int, tuple[int, str]] = {}
    for name, value in metrics.items():
        for step, seed in np.argwhere(~np.isfinite(value)).tolist():
            firsts[seed] = min(firsts.get(seed, (step, name)), (step, name))
    return firsts


def _taken(state: PyTree, rows: np.ndarray) -> PyTree:
    """Leaves `[seeds or more, ...]` with other rows, lying on the devices as before."""
    length = jax.tree.leaves(state)[0].shape[0]
    rows = rows[np.minimum(np.arange(length), len(rows) - 1)]  # copies of the last fill a mesh
    leaves, structure = jax.tree.flatten(state)
    taken = _take(tuple(leaf.sharding for leaf in leaves))(leaves, rows)
    return jax.tree.unflatten(structure, taken)


@functools.lru_cache(maxsize=8)
def _take(shardings: tuple[Any, ...]) -> Any:
    def take(leaves: list[jax.Array], rows: jax.Array) -> list[jax.Array]:
        return [leaf[rows] for leaf in leaves]

    return jax.jit(take, donate_argnums=0, out_shardings=list(shardings))


@jax.jit
def marked_rows(state: PyTree, bad: jax.Array | np.ndarray) -> PyTree:
    """Leaves `[seeds, ...]` with NaN for all numbers of the `bad` seeds."""

    def mark(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.where(bad.reshape(-1, *[1] * (leaf.ndim - 1)), jnp.nan, leaf)

    return jax.tree.map(mark, state)

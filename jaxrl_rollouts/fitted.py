"""Gaussian ensembles in one call: standardise, hold out, fit, keep the elites.

fitted = fit_ensemble(x, y, EnsembleConfig(hidden_dims=(64, 64)))   # x [n, I], y [n, O]
prediction = fitted.predict(x)                                 # mean and std [E, n, O]
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .devices import MEMBER
from .draws import as_key
from .ensemble import take_members
from .ensemble_config import EnsembleConfig
from .errors import DataError
from .fit_data import split_holdout
from .fitting import FitState, Fitter, elite_members, make_fitter
from .gaussian import Gaussian
from .loop import Trained, train_loop
from .outside import find_offset, subtract, to_numbers
from .record.context import RunContext
from .scaler import Scaler, fit_scaler
from .trees import PyTree


class FittedEnsemble(NamedTuple):
    """Ensembles of several seeds.

    Attributes:
        fitter: its functions; `fitter.ensemble.apply_all` takes standardised rows.
        elites: parameters of the best members, leaves `[seeds, E, ...]`, best first.
        inputs, targets: how rows are standardised, less their `offsets`.
        trained: history and times of the fit.
        offsets: `[I]` and `[O]` float64, subtracted from inputs and targets before float32 is
            taken; None where float32 holds their changes.
    """

    fitter: Fitter
    elites: PyTree
    inputs: Scaler
    targets: Scaler
    trained: Trained
    offsets: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    def predict(self, inputs: ArrayLike, seed: int = 0) -> Gaussian:
        """What every elite expects, in the data's units: mean and std `[E, B, O]` of `[B, I]`.

        Means of targets that had an offset are numpy's float64.
        """
        elites = jax.tree.map(lambda leaf: leaf[seed], self.elites)
        of_inputs, of_targets = self.offsets
        given = inputs if of_inputs is None else subtract(np.asarray(inputs), of_inputs)
        rows = self.inputs.normalise(jnp.asarray(given, jnp.float32))
        mean, log_var = self.fitter.ensemble.apply_all(elites, rows)
        std = jnp.exp(0.5 * log_var) * self.targets.std
        means = self.targets.denormalise(mean)
        if of_targets is not None:
            whole: Any = np.asarray(means, np.float64) + of_targets
            return Gaussian(whole, std)
        return Gaussian(means, std)


def fit_ensemble(
    inputs: ArrayLike,
    targets: ArrayLike,
    config: EnsembleConfig | None = None,
    *,
    seeds: int = 1,
    key: jax.Array | int = 0,
    stage: str = "ensemble",
    context: RunContext | None = None,
) -> FittedEnsemble:
    """Fit `seeds` independent ensembles of Gaussian regressors to the same rows, side by side.

    Args:
        inputs, targets: `[n, I]` and `[n, O]`, in any units.
        config: members, networks and optimisation.
        seeds: number of ensembles.
        key: consumed, or the number to make one of.
        stage, context: as for `train_loop`.

    Raises:
        DataError: rows that do not match, or are not finite.
        DivergenceError: the fit became non-finite.

    Warns:
        UserWarning: float32 loses the changes of a column, whatever is subtracted from it.
    """
    config = config or EnsembleConfig()
    given = [
        to_numbers("ensemble", name, rows)
        for name, rows in (("inputs", inputs), ("targets", targets))
    ]
    x, y = given
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not len(x):
        expected = "[n, I] and [n, O]"
        raise DataError(
            "ensemble", "inputs, targets", f"{list(x.shape)}, {list(y.shape)}", expected
        )
    offsets = find_offset("ensemble", "inputs", x), find_offset("ensemble", "targets", y)
    x, y = (subtract(rows, offset) for rows, offset in zip(given, offsets, strict=True))
    for name, rows in (("inputs", x), ("targets", y)):
        if not np.isfinite(rows).all():
            bad = int(np.argwhere(~np.isfinite(rows))[0, 0])
            raise DataError("ensemble", name, f"{rows[bad]} in row {bad}", "finite numbers")
    scalers = fit_scaler(jnp.asarray(x)), fit_scaler(jnp.asarray(y))
    scaled = (np.asarray(s.normalise(jnp.asarray(v))) for s, v in zip(scalers, (x, y), strict=True))
    fitter = make_fitter(config, x.shape[1], y.shape[1])
    trained = train_loop(
        fitter.update,
        fitter.init,
        jax.random.split(as_key(key), seeds),
        split_holdout(config, *scaled),
        iterations=config.max_epochs,
        stage=stage,
        unit="epochs",
        finished=fitter.finished,
        batch_axis=(MEMBER, config.members),
        context=context,
        about=config,
    )
    best = jax.jit(jax.vmap(functools.partial(_elites, config.elites)))(trained.state)
    return FittedEnsemble(fitter, best, *scalers, trained, offsets)


def _elites(count: int, state: FitState) -> PyTree:
    return take_members(state.best, elite_members(state, count))

"""Standardisation of features, as a pytree that travels with the parameters."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Scaler(NamedTuple):
    """Column-wise mean and standard deviation, each `[F]`."""

    mean: jax.Array
    std: jax.Array

    def normalise(self, x: jax.Array) -> jax.Array:
        """`[..., F]` in data units to zero mean and unit variance."""
        return (x - self.mean) / self.std

    def denormalise(self, x: jax.Array) -> jax.Array:
        """The inverse of `normalise`."""
        return x * self.std + self.mean


def fit_scaler(rows: jax.Array, *, tiny: float = 1e-6) -> Scaler:
    """Scaler of `[n, F]` rows; a column that hardly varies (std < `tiny`) is left unscaled."""
    std = rows.std(0)
    return Scaler(rows.mean(0), jnp.where(std < tiny, 1.0, std))


def identity_scaler(features: int) -> Scaler:
    """A scaler that changes nothing."""
    return Scaler(jnp.zeros((features,)), jnp.ones((features,)))

"""Standardisation of features, as a pytree that travels with the parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 65_536  # rows that are summed at once


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


class Moments(NamedTuple):
    """Of rows seen so far: how many, their means and summed squared deviations `[F]`."""

    count: jax.Array
    mean: jax.Array
    squares: jax.Array

    def plus(self, rows: jax.Array) -> Moments:
        """With `[n, F]` rows more (Chan et al. 1979, equation 2.1)."""
        mean, new = rows.mean(0), len(rows)
        squares = jnp.square(rows - mean).sum(0)
        total, change = self.count + new, mean - self.mean
        between = jnp.square(change) * self.count * (new / total)
        return Moments(total, self.mean + change * (new / total), self.squares + squares + between)

    def scaler(self, tiny: float = 1e-6) -> Scaler:
        """As `fit_scaler` makes it."""
        return _scaler(self.mean, jnp.sqrt(self.squares / self.count), tiny)


def fit_scaler(rows: jax.Array, *, tiny: float = 1e-6) -> Scaler:
    """Scaler of `[n, F]` rows; a nearly constant column is left unscaled.

    That is one whose deviation is below `tiny` or, as rounding grows with the numbers, below `tiny`
    times its mean: a constant 101,325.7 has a deviation of 0.04 in float32.

    Many rows are summed in blocks: one float32 sum over millions loses digits.
    """
    if len(rows) <= BLOCK:
        return _scaler(rows.mean(0), rows.std(0), tiny)
    whole = len(rows) // BLOCK

    def add(index: jax.Array, moments: Moments) -> Moments:
        return moments.plus(jax.lax.dynamic_slice_in_dim(rows, index * BLOCK, BLOCK))

    moments = jax.lax.fori_loop(0, whole, add, no_moments(rows.shape[1]))
    rest = rows[whole * BLOCK :]
    return (moments.plus(rest) if len(rest) else moments).scaler(tiny)


@jax.jit
def _scaler(mean: jax.Array, std: jax.Array, tiny: float) -> Scaler:
    return Scaler(mean, jnp.where(std < tiny * jnp.maximum(1.0, jnp.abs(mean)), 1.0, std))


def fit_scaler_by_blocks(rows: Any, *, tiny: float = 1e-6) -> Scaler:
    """`fit_scaler` of `[n, F]` rows on the host, of which one block at a time is on the device."""
    if len(rows) <= BLOCK:
        return _fit(jnp.asarray(rows), tiny)
    moments = no_moments(rows.shape[1])
    for begin in range(0, len(rows), BLOCK):
        moments = _plus(moments, jnp.asarray(rows[begin : begin + BLOCK]))
    return moments.scaler(tiny)


def no_moments(features: int) -> Moments:
    """Of no rows."""
    zeros = jnp.zeros((features,))
    return Moments(jnp.float32(0), zeros, zeros)


_plus = jax.jit(Moments.plus)
_fit = jax.jit(lambda rows, tiny: fit_scaler(rows, tiny=tiny))


def identity_scaler(features: int) -> Scaler:
    """A scaler that changes nothing."""
    return Scaler(jnp.zeros((features,)), jnp.ones((features,)))

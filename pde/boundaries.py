"""Boundary conditions of an axis, as names and as padding of networks.

An axis is `periodic`, or each of its ends is one of

    wall                 unspecified: networks see zeros there, the mean of a channel
    open                 the last value continues
    neumann              no gradient: the last value continues
    dirichlet=0.5        this value one point beyond the last, in the data's units;
                         `dirichlet` is 0, `dirichlet=0,300` has one for each channel that changes

Ends that differ are `LOW|HIGH`: `dirichlet=1|neumann`. "" is not known. Files have other kinds, and
several in an order of their own (`open/wall`): those continue as open ends do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from .emulator import FieldNetwork
from .fieldset import Scaling

ENDS = ("wall", "open", "neumann", "dirichlet")
EXPECTED = "periodic, or wall, open, neumann or dirichlet=VALUE for both ends or LOW|HIGH"


class End(NamedTuple):
    """One end of an axis.

    Attributes:
        kind: kind of end, one of `ENDS`, or any string of a file.
        values: values of a Dirichlet end: one, or one for each channel.
    """

    kind: str
    values: tuple[float, ...] = ()


def ends_of(boundary: str) -> tuple[End, End] | None:
    """The lower and the upper end of an axis; None where it is periodic or not known."""
    if boundary in ("", "periodic"):
        return None
    low, _, high = boundary.partition("|")
    return _end(low), _end(high or low)


def _end(text: str) -> End:
    kind, _, values = text.partition("=")
    if kind != "dirichlet":
        return End(text)
    try:
        return End(kind, tuple(float(value) for value in (values or "0").split(",")))
    except ValueError:
        return End(text)


def is_known(boundary: str) -> bool:
    """Whether a text is a kind above with finite values, or ""."""
    ends = ends_of(boundary)
    if ends is None:
        return True
    return all(e.kind in ENDS and all(map(math.isfinite, e.values)) for e in ends)


@functools.lru_cache(maxsize=32)
def between_ends(
    net: FieldNetwork, boundaries: tuple[str, ...], units: tuple[Scaling, ...]
) -> FieldNetwork:
    """A network that sees fields minus `lift`, so that zeros beyond a Dirichlet end are its value.

    The same network where no end has a value.
    """
    if not any(end.kind == "dirichlet" for kind in boundaries for end in ends_of(kind) or ()):
        return net
    grid = net.shape.grid if net.shape else ()
    offset = np.tile(lift(grid, boundaries, units), (net.history, *(1,) * len(grid)))

    def apply(
        params: PyTree, field: jax.Array, noised: jax.Array, index: Any, conditions: Any
    ) -> jax.Array:
        return net.apply(params, field - jnp.asarray(offset), noised, index, conditions)

    return net._replace(apply=apply)


def lift(grid: Sequence[int], boundaries: Sequence[str], units: Sequence[Scaling]) -> np.ndarray:
    """Values at Dirichlet ends, carried on between them: `[C, *grid]` float32, in networks' units.

    The mean of the ends' values, weighted by one over the distance to each: along a single axis a
    straight line from end to end.
    """
    total, weights = np.zeros((len(units), *grid)), np.zeros(tuple(grid))
    for axis, (points, boundary) in enumerate(zip(grid, boundaries, strict=True)):
        at = np.arange(points).reshape(-1, *(1,) * (len(grid) - axis - 1))
        for end, distance in zip(ends_of(boundary) or (), (at + 1.0, points - at), strict=False):
            if end.kind != "dirichlet":
                continue
            if len(end.values) not in (1, len(units)):
                expected = f"one value, or one for each of {len(units)} channels"
                raise ConfigError("boundaries", boundary, expected)
            values = np.broadcast_to(end.values, (len(units),))
            seen = np.array([(v - u.shift) * u.factor for v, u in zip(values, units, strict=True)])
            total += seen.reshape(-1, *(1,) * len(grid)) / distance
            weights += 1.0 / distance
    return (total / weights).astype(np.float32)

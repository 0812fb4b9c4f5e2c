"""Measures of flows in the plane: vorticity, kinetic energy, structure functions."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import metrics
from .fieldset import FieldSet
from .flows import to_velocity, to_vorticity

# Names of the channels of a flow: its vorticity, or its velocity.
KNOWN = (("vorticity",), ("w",), ("velocity_x", "velocity_y"), ("vx", "vy"), ("u", "v"))


class Flow(NamedTuple):
    """Which channels of a set are a flow: one of vorticity, or two of velocity, axis 0 first.

    Attributes:
        channels: their numbers.
    """

    channels: tuple[int, ...]

    def vorticity(self, fields: jax.Array) -> jax.Array:
        """`[..., C, N, N] -> [..., 1, N, N]`, of a domain of length one."""
        own = fields[..., jnp.asarray(self.channels), :, :]
        return own if len(self.channels) == 1 else to_vorticity(own, 1.0)

    def velocity(self, fields: jax.Array) -> jax.Array:
        """`[..., C, N, N] -> [..., 2, N, N]`, of a domain of length one."""
        own = fields[..., jnp.asarray(self.channels), :, :]
        return to_velocity(own, 1.0) if len(self.channels) == 1 else own


class FlowErrors(NamedTuple):
    """Rollouts of a flow compared with the truth.

    Attributes:
        vorticity: `[T, B]` correlation of the vorticities.
        energy: `[T, B]` difference of the kinetic energies over the true one, with its sign.
        structure: `[B]` relative error of the second-order structure function of the velocity over
            the last quarter, mean over distances.
    """

    vorticity: jax.Array
    energy: jax.Array
    structure: jax.Array


def find_flow(found: FieldSet) -> Flow | None:
    """The flow in a set over a square that is periodic along both axes; None where there is none
    by a known name."""
    grid, names = found.shape[3:], [name.lower() for name in found.channels]
    if len(grid) != 2 or grid[0] != grid[1] or set(found.boundaries) != {"periodic"}:
        return None
    for wanted in KNOWN:
        if set(wanted) <= set(names):
            return Flow(tuple(names.index(name) for name in wanted))
    return None


def flow_errors(flow: Flow, prediction: jax.Array, truth: jax.Array) -> FlowErrors:
    """Compare `[T, B, C, N, N]` in the data's own units."""
    correlation = metrics.correlation(flow.vorticity(prediction), flow.vorticity(truth))
    velocities = [flow.velocity(fields) for fields in (prediction, truth)]
    predicted, true = (metrics.energy(v, 2) for v in velocities)
    late, true_late = (
        metrics.structure_function(v[3 * len(v) // 4 :], 2).mean(0) for v in velocities
    )
    structure = (jnp.abs(late - true_late) / true_late).mean(-1)
    return FlowErrors(correlation, (predicted - true) / true, structure)

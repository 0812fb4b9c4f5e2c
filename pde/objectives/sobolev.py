"""The error of one step and of its derivatives (Lippe et al. 2023, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import check, number, positive

from ..emulator import FieldNetwork, Scale, check_scale
from ..spectral import ratios
from .one_step import Error, OneStep, StepObjective, check_circles


@dataclass(frozen=True)
class Sobolev(StepObjective):
    """Mean square error of a scaled change and of its spectral derivatives; periodic fields only.

    Attributes:
        order: highest derivative in the norm.
        frequency_weight: as of `OneStepObjective`.
    """

    order: int = positive(1)
    frequency_weight: float = number(0.0, least=0)

    def one_step(self, net: FieldNetwork, scale: Scale) -> OneStep:
        """The step with this error, on periodic fields."""
        check(self)
        check_scale(scale)
        check_circles("objective", "sobolev", net)
        error = sobolev_error(self.order, net.shape.extent if net.shape else ())
        return OneStep(net, scale, error=error, frequency_weight=self.frequency_weight)


def sobolev_error(order: int, extent: tuple[float, ...] = ()) -> Error:
    """Squared error of a field and of its first `order` derivatives, as a mean over space.

    Derivatives are spectral on a domain whose longest axis is 2 pi long, so a unit sine of physical
    wavenumber k counts `1 + k^2 + ... + k^(2 order)` times.
    """

    def error(prediction: jax.Array, target: jax.Array) -> jax.Array:
        shape, axes = target.shape[1:], tuple(range(1, target.ndim))
        grids = [
            jnp.fft.fftfreq(n, 1.0 / n) * ratio
            for n, ratio in zip(shape, ratios(shape, extent), strict=True)
        ]
        squared = sum(jnp.square(k) for k in jnp.meshgrid(*grids, indexing="ij"))
        weight = sum(squared**i for i in range(order + 1))
        modes = jnp.fft.fftn(prediction - target, axes=axes)
        points = target[0].size
        return (weight * jnp.square(jnp.abs(modes))).sum() / points**2

    return error

"""A linear recurrence over a tape of episodes, in logarithmic depth or not, and its layer."""

from __future__ import annotations

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts import draws
from jaxrl_rollouts.networks import Initializer, uniform, uniform_fan_in

Form = Literal["auto", "associative", "sequential"]


def use_associative(form: Form) -> bool:
    """Whether a recurrence runs in log depth; `auto` decides by the platform.

    One core after another gains nothing from depth: there a plain scan does a third of the work
    and compiles in a tenth of the time.
    """
    return form == "associative" or (form == "auto" and jax.default_backend() != "cpu")


def _associative(decay: jax.Array, drive: jax.Array, starts: jax.Array, reverse: bool) -> jax.Array:
    flags = jnp.broadcast_to(starts[:, None], drive.shape)
    powers = jnp.broadcast_to(decay, drive.shape)

    def join(left: tuple, right: tuple) -> tuple:
        (reset_l, power_l, drive_l), (reset_r, power_r, drive_r) = left, right
        joined = jnp.where(reset_r, drive_r, power_r * drive_l + drive_r)
        return reset_l | reset_r, power_l * power_r, joined

    return jax.lax.associative_scan(join, (flags, powers, drive), reverse=reverse)[2]


def _sequential(decay: jax.Array, drive: jax.Array, starts: jax.Array, reverse: bool) -> jax.Array:
    def one(h: jax.Array, row: tuple) -> tuple:
        drive, start = row
        h = jnp.where(start, drive, decay * h + drive)
        return h, h

    return jax.lax.scan(one, jnp.zeros_like(drive[0]), (drive, starts), reverse=reverse)[1]


def _scan(
    decay: jax.Array, drive: jax.Array, starts: jax.Array, form: Form, reverse: bool = False
) -> jax.Array:
    """`h_t = decay * h_before + drive_t`, or `drive_t` where `starts`, from zero."""
    scan = _associative if use_associative(form) else _sequential
    return scan(decay, drive, starts, reverse)


def _linear_scan(
    decay: jax.Array, drive: jax.Array, starts: jax.Array, before: jax.Array, form: Form = "auto"
) -> jax.Array:
    """`h_t = decay * h_{t-1} + drive_t`, or `drive_t` where an episode starts.

    Its gradient is the same recurrence backwards, so no level of the scan has to be kept.

    Args:
        decay: `[N]`.
        drive: `[L, N]`.
        starts: `[L]` bool.
        before: `[N]`, the state before the first timestep.
        form: `associative`, in logarithmic depth; `sequential`, timestep by timestep; `auto`, the
            faster one on the default backend. They differ by rounding.

    Returns:
        `[L, N]`. A start is a selection, not a product with zero: what was before an episode
        does not get through even if it is infinite or NaN.
    """
    first = jnp.where(starts[0], drive[0], decay * before + drive[0])
    return _scan(decay, drive.at[0].set(first), starts, form)


linear_scan = jax.custom_vjp(_linear_scan, nondiff_argnums=(4,))


def _forward(
    decay: jax.Array, drive: jax.Array, starts: jax.Array, before: jax.Array, form: Form
) -> tuple[jax.Array, tuple]:
    h = linear_scan(decay, drive, starts, before, form)
    return h, (decay, starts, before, h)


def _backward(form: Form, kept: tuple, cotangent: jax.Array) -> tuple:
    decay, starts, before, h = kept
    # What follows timestep t depends on it unless timestep t + 1 starts an episode.
    cut = jnp.append(starts[1:], True)
    slope = _scan(decay, cotangent, cut, form, reverse=True)
    previous = jnp.concatenate([before[None], h[:-1]])
    carried = jnp.where(starts[:, None], 0.0, slope)
    remembered = jnp.where(starts[:, None], 0.0, previous)  # may not be finite
    return (carried * remembered).sum(0), slope, None, decay * carried[0]


linear_scan.defvjp(_forward, _backward)


class LinearRecurrentUnit(nn.Module):
    """One residual layer (Orvieto et al. 2023, arXiv 2303.06349; as in NEUBAY)."""

    width: int
    state: int
    radius: tuple[float, float]

    def setup(self) -> None:
        n, d, (low, high) = self.state, self.width, self.radius

        def normal(std: float) -> Initializer:
            return lambda key, shape: std * draws.normal(key, shape)

        def buffer(key: jax.Array) -> jax.Array:
            squared = jax.random.uniform(key, (n,), minval=low**2, maxval=high**2)
            # |decay| = exp(-exp(nu)); an exact zero would need an infinite nu
            return jnp.log(-0.5 * jnp.log(jnp.maximum(squared, 1e-12)))

        def angle(key: jax.Array) -> jax.Array:
            return jnp.log(jax.random.uniform(key, (n,), minval=1e-6, maxval=6.28))

        self.nu, self.theta = self.param("nu", buffer), self.param("theta", angle)
        self.log_gain = self.param(
            "log_gain", lambda _: 0.5 * jnp.log1p(-jnp.exp(-2.0 * jnp.exp(self.nu)))
        )
        # real and imaginary part on the first axis: parameters stay real for every optimiser
        self.inward = self.param("inward", normal(1.0 / math.sqrt(2 * d)), (2, d, n))
        self.outward = self.param("outward", normal(1.0 / math.sqrt(n)), (2, n, d))
        self.skip = self.param("skip", normal(1.0), (d,))
        self.norm = nn.LayerNorm(epsilon=1e-5)
        self.value, self.gate = dense(d, d), dense(d, d)

    def _decay(self) -> jax.Array:
        return jnp.exp(jax.lax.complex(-jnp.exp(self.nu), jnp.exp(self.theta)))

    def _drive(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = self.norm(x)
        gain = jnp.exp(self.log_gain)
        return y, jax.lax.complex(gain * (y @ self.inward[0]), gain * (y @ self.inward[1]))

    def _read(self, x: jax.Array, y: jax.Array, h: jax.Array) -> jax.Array:
        z = h.real @ self.outward[0] - h.imag @ self.outward[1] + self.skip * y
        z = nn.gelu(z, approximate=False)
        return x + self.value(z) * nn.sigmoid(self.gate(z))

    def scan(
        self, x: jax.Array, starts: jax.Array, carry: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        y, drive = self._drive(x)
        h = linear_scan(self._decay(), drive, starts, carry)
        return self._read(x, y, h), h

    def step(self, x: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, drive = self._drive(x)
        h = self._decay() * carry + drive
        return self._read(x, y, h), h


def dense(inputs: int, outputs: int) -> nn.Dense:
    """A linear layer as torch starts it, bias included."""
    bias = uniform(1.0 / math.sqrt(inputs))
    return nn.Dense(outputs, kernel_init=uniform_fan_in(), bias_init=bias)

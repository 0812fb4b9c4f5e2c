"""An emulator: a network, how its output becomes the next field, and how it is trained.

Every emulator steps a field by `u + c * net(...)`, with `c` the residual scale: targets and noise
then have about unit variance. Networks share one signature, so that objectives can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PyTree = Any
Metrics = dict[str, jax.Array]


class FieldNetwork(NamedTuple):
    """A network on periodic fields; see `operators`.

    Attributes:
        init: `key -> params`.
        apply: `(params, field [C, *space], noised [C, *space], index, conditions [P]) -> [C,
            *space]`; `noised` is a second input of the field's shape (zeros where there is
            none), `index` a scalar in [0, 1000] that says which refinement this is, and
            `conditions` are the equation's parameters, scaled to about [0, 10].
    """

    init: Callable[[jax.Array], PyTree]
    apply: Callable[..., jax.Array]


class Step(Protocol):
    """See `Emulator.step`; positional arguments only."""

    def __call__(
        self, params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array, /
    ) -> jax.Array: ...


class Emulator(NamedTuple):
    """Functions of one emulator; see `objectives` and `refiner`.

    Attributes:
        init: `key -> params`.
        step: `(params, key, field [C, *space], conditions [P]) -> field`, one step of one field;
            deterministic emulators ignore the key.
        loss: `(params, key, window [W, C, *space], conditions [P]) -> (loss, metrics)` of one
            training window, to be mapped over a batch.
        frames: `W`, the frames a training window has.
        calls: of the network per step.
    """

    init: Callable[[jax.Array], PyTree]
    step: Step
    loss: Callable[[PyTree, jax.Array, jax.Array, jax.Array], tuple[jax.Array, Metrics]]
    frames: int
    calls: int


def residual(before: jax.Array, after: jax.Array, scale: float) -> jax.Array:
    """The target `(u(t + dt) - u(t)) / c`."""
    return (after - before) / scale


def squared_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Mean over space, sum over channels (the reference's reduction) of one sample."""
    return jnp.square(prediction - target).mean(tuple(range(1, target.ndim))).sum()

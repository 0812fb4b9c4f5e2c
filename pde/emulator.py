"""An emulator: a network, how its output becomes the next field, and how it is trained.

Every emulator steps a field by `u + c * net(...)`, with `c` the residual scale: targets and noise
then have about unit variance. Networks share one signature, so that objectives can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.field_networks import FIRST_INDEX as FIRST_INDEX
from jaxrl_rollouts.field_networks import About, FieldNetwork
from jaxrl_rollouts.field_networks import FieldShape as FieldShape
from jaxrl_rollouts.field_networks import NetworkConfig as NetworkConfig
from jaxrl_rollouts.field_networks import Points as Points
from jaxrl_rollouts.field_networks import grid_of as grid_of
from jaxrl_rollouts.trees import PyTree

Metrics = dict[str, jax.Array]
Scale = float | tuple[float, ...]


class Conditioning(NamedTuple):
    """What is known of a trajectory whose fields have constant channels; see `constant`.

    Attributes:
        conditions: `[P]`, the equation's parameters, scaled to about [0, 10].
        constant: `[S, *space]`, channels that are seen and never predicted, standardised.
    """

    conditions: jax.Array
    constant: jax.Array


# What objectives hand on to a network: `[P]`, or `Conditioning` where there are constant channels.
Conditions = Any


class EmulatorStep(Protocol):
    """See `Emulator.step`; positional arguments only."""

    def __call__(
        self, params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions, /
    ) -> jax.Array: ...


class Emulator(NamedTuple):
    """Functions of one emulator; see `objectives` and `refiner`.

    Fields are what changes; channels that are constant in time come with the conditions, as
    `Conditioning`.

    Attributes:
        init: `key -> params`.
        step: `(params, key, field [H * C, *space], conditions [P]) -> field`, one step of one
            field with its history; deterministic emulators ignore the key.
        loss: `(params, key, window [W, C, *space], conditions [P]) -> (loss, metrics)` of one
            training window, to be mapped over a batch.
        frames: `W`, the frames a training window has.
        calls: network calls per step.
        history: `H`, frames in a field, oldest first.
        stages: as `step`, but `[K + 1, H * C, *space]`, the field after 0, 1, ... K refinements;
            the last is what `step` returns. None where nothing is refined.
        bundle: `k`, frames that a step makes; of more than `H` the field after it holds k.
        random: whether a step draws noise from its key.
        paced: whether the loss takes a fifth argument, the gradient steps before this one.
        about: settings of it and its network, by name: a training's checkpoints store them, so
            that they are not taken for another emulator's (`train_loop`).
    """

    init: Callable[[jax.Array], PyTree]
    step: EmulatorStep
    loss: Callable[..., tuple[jax.Array, Metrics]]
    frames: int
    calls: int
    history: int = 1
    stages: EmulatorStep | None = None
    about: About = ()
    bundle: int = 1
    paced: bool = False
    random: bool = False

    @property
    def held(self) -> int:
        """Frames of a field after a step."""
        return max(self.history, self.bundle)

    def made(self, field: jax.Array) -> jax.Array:
        """The frames `[k, C, *space]` that a step added to a field."""
        frames = field.reshape(self.held, -1, *field.shape[1:])
        return frames[-self.bundle :]


def kind_and_settings(what: str, config: Any) -> About:
    """Of a network or an objective, as `about` has them: settings alone do not say whose they are,
    and different kinds have some of the same name."""
    return (f"kind of {what}", type(config).__name__), (what, config)


class Objective(Protocol):
    """How an emulator steps and what it is trained on, a frozen dataclass: `Mse`, ..., or yours.

    Others' are announced in the entry-point group `jaxrl_rollouts.objectives`.
    """

    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """The emulator of a network; equal arguments give the same functions.

        Args:
            net: the network.
            scale: c, the standard deviation of a step's change: one for all channels, or each.
        """
        ...


def latest(field: jax.Array, history: int) -> jax.Array:
    """The newest frame `[C, *space]` of `[H * C, *space]`."""
    return field[-(len(field) // history) :]


def pushed(field: jax.Array, change: jax.Array, history: int = 0) -> jax.Array:
    """The next field: its newest frame changed by `change` `[C, *space]`, its oldest forgotten.

    Args:
        history: frames of the field; given, `change` may be that of k frames, `[k * C, *space]`,
            each from the newest one. More than there are frames stay all.
    """
    size = len(field) // history if history else len(change)
    newest = field[-size:] if size == len(change) else jnp.tile(field[-size:], _times(change, size))
    return jnp.concatenate([field, newest + change])[-max(len(field), len(change)) :]


def _times(change: jax.Array, size: int) -> tuple[int, ...]:
    return len(change) // size, *(1,) * (change.ndim - 1)


def opening(window: jax.Array, history: int) -> tuple[jax.Array, jax.Array]:
    """A window `[W, C, *space]` as its first field `[H * C, *space]` and the frames that follow."""
    return window[:history].reshape(-1, *window.shape[2:]), window[history:]


def per_channel(scale: Scale, field: jax.Array) -> float | jax.Array:
    """A residual scale, one for all or one per channel, as it multiplies `[C, *space]`."""
    if not isinstance(scale, tuple):
        return scale
    return jnp.asarray(scale, field.dtype).reshape(-1, *(1,) * (field.ndim - 1))


def residual(field: jax.Array, after: jax.Array, scale: Scale) -> jax.Array:
    """The target `(u(t + dt) - u(t)) / c` for the field's newest frame and the one `after` it."""
    return (after - field[-len(after) :]) / per_channel(scale, after)


def check_scale(scale: Scale) -> None:
    """`ConfigError` for a residual scale that is not above 0."""
    if min(scale if isinstance(scale, tuple) else (scale,), default=0.0) <= 0:
        raise ConfigError("residual_scale", scale, "above 0, one for all channels or one for each")


def persistence(history: int = 1) -> Emulator:
    """The emulator that nothing changes: what every other one has to beat. It has no parameters."""

    def step(params: PyTree, key: jax.Array, field: jax.Array, conditions: jax.Array) -> jax.Array:
        del params, key, conditions
        return pushed(field, jnp.zeros_like(latest(field, history)))

    def loss(
        params: PyTree, key: jax.Array, window: jax.Array, conditions: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        field, following = opening(window, history)
        return squared_error(
            latest(step(params, key, field, conditions), history), following[0]
        ), {}

    return Emulator(lambda key: (), step, loss, history + 1, 0, history)


def squared_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Mean over space, sum over channels (the reference's reduction) of one sample."""
    return jnp.square(prediction - target).mean(tuple(range(1, target.ndim))).sum()

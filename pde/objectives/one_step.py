"""What the objectives without refinement share: the step `u + c * net(u)` and its losses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import draws
from jaxrl_rollouts.configs import check, number
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import PyTree

from ..emulator import (
    FIRST_INDEX,
    Conditions,
    Emulator,
    FieldNetwork,
    Metrics,
    Scale,
    check_scale,
    kind_and_settings,
    latest,
    opening,
    per_channel,
    pushed,
    residual,
    squared_error,
)
from ..spectral import waves

cached = functools.lru_cache(maxsize=32)
Error = Callable[[jax.Array, jax.Array], jax.Array]
Loss = tuple[jax.Array, Metrics]
Distance = Literal["squared", "relative_l1"]


class OneStep(NamedTuple):
    """A network, the scale of its output and the error of a scaled change.

    Attributes:
        net: the network.
        scale: c, for all channels or for each.
        distance: `squared` or `relative_l1`; see `OneStepObjective`.
        error: error function of `squared`: `(prediction, target) -> []`, both scaled changes `[C,
            *space]`.
        frequency_weight: weight of `frequency_error`.
        input_noise: standard deviation of `noisy`.
    """

    net: FieldNetwork
    scale: Scale
    distance: Distance = "squared"
    error: Error = squared_error
    frequency_weight: float = 0.0
    input_noise: float = 0.0

    def change(self, params: PyTree, field: jax.Array, conditions: Conditions) -> jax.Array:
        """The scaled change `[C, *space]` that the network predicts, without a second input."""
        nothing = jnp.zeros_like(latest(field, self.net.history))
        return self.net.apply(params, field, nothing, FIRST_INDEX, conditions)

    def loss(self, prediction: jax.Array, field: jax.Array, after: jax.Array) -> jax.Array:
        """Error of a scaled change, for the frame that comes `after` a field."""
        target = residual(field, after, self.scale)
        if self.distance == "relative_l1":
            by = per_channel(self.scale, prediction)
            value = relative_error(by * prediction, by * target, after)
        else:
            value = self.error(prediction, target)
        if self.frequency_weight:
            extent = self.net.shape.extent if self.net.shape else ()
            value += self.frequency_weight * frequency_error(prediction, target, extent)
        return value

    def losses(
        self,
        params: PyTree,
        window: jax.Array,
        conditions: Conditions,
        between: Callable[[int, jax.Array], jax.Array] = lambda step, field: field,
    ) -> list[jax.Array]:
        """One-step errors along the network's own rollout from a window's first field.

        Args:
            between: `(step, field) -> field`, of each field that the network predicted, 1 for the
                first, before the next step.
        """
        field, following = opening(window, self.net.history)
        found = []
        for step, after in enumerate(following, start=1):
            prediction = self.change(params, field, conditions)
            found.append(self.loss(prediction, field, after))
            field = between(step, self.next_field(field, prediction))
        return found

    def noisy(self, key: jax.Array, window: jax.Array) -> jax.Array:
        """A window `[W, C, *space]` whose first field has noise of `input_noise` times c.

        The frames that follow are the true ones, so the step learns to take the noise away
        (Sanchez-Gonzalez et al. 2020).
        """
        if not self.input_noise:
            return window
        first = window[: self.net.history]
        drawn = draws.normal(key, first.shape, first.dtype) * per_channel(self.scale, first[0])
        noisy = first + self.input_noise * drawn
        return jnp.concatenate([noisy, window[self.net.history :]])

    def next_field(self, field: jax.Array, prediction: jax.Array) -> jax.Array:
        """The field after a scaled change, `u + c * prediction`; of a bundle after each of its."""
        frames = self.changes(field, prediction)
        by = per_channel(self.scale, frames[0])
        return pushed(field, (by * frames).reshape(prediction.shape), self.net.history)

    def changes(self, field: jax.Array, prediction: jax.Array) -> jax.Array:
        """A prediction as the scaled changes `[k, C, *space]` of its frames."""
        return prediction.reshape(-1, len(field) // self.net.history, *field.shape[1:])


class StepObjective:
    """An objective whose step is `u + c * change`: a subclass has its settings, and `error`.

    Attributes:
        ahead: frames that a training window has beyond the history.
        calls: network calls per step.
        bundle: frames that it makes.
        paced: whether `error` takes the number of gradient steps, too.
    """

    ahead: ClassVar[int] = 1
    calls: ClassVar[int] = 1
    bundle: ClassVar[int] = 1
    paced: ClassVar[bool] = False

    def one_step(self, net: FieldNetwork, scale: Scale) -> OneStep:
        """The step and its loss, with settings checked."""
        raise NotImplementedError

    def change(
        self, one: OneStep, params: PyTree, field: jax.Array, conditions: Conditions
    ) -> jax.Array:
        """The scaled change `[C, *space]` of a step."""
        return one.change(params, field, conditions)

    def error(
        self, one: OneStep, params: PyTree, window: jax.Array, conditions: Conditions
    ) -> Loss:
        """Loss and metrics of a window `[history + ahead, C, *space]`."""
        field, following = opening(window, one.net.history)
        return one.loss(one.change(params, field, conditions), field, following[0]), {}

    @cached
    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        """The emulator of a network; equal arguments give the same functions.

        Raises:
            ConfigError: a setting is out of range, or one that needs periodic fields has others.
        """
        one = self.one_step(net, scale)

        def loss(
            params: PyTree, key: jax.Array, window: jax.Array, conditions: Conditions, *count: Any
        ) -> Loss:
            return self.error(one, params, one.noisy(key, window), conditions, *count)

        def step(
            params: PyTree, key: jax.Array, field: jax.Array, conditions: Conditions
        ) -> jax.Array:
            del key
            return one.next_field(field, self.change(one, params, field, conditions))

        about = net.about + kind_and_settings("objective", self) + (("scale", scale),)
        frames = net.history + self.ahead
        emulator = Emulator(net.init, step, loss, frames, self.calls, net.history, about=about)
        return emulator._replace(bundle=self.bundle, paced=self.paced)


@dataclass(frozen=True)
class OneStepObjective(StepObjective):
    """What the losses of one-step objectives have in common.

    Attributes:
        loss: averaged error: `squared` differences of scaled changes; `relative_l1`, absolute
            differences of the fields over the mean size of the true one, channel by channel
            (Poseidon's and DRIFT-Net's is by groups of channels, a velocity being one).
        frequency_weight: weight of the additional `frequency_error`, on periodic fields. It is
            DRIFT-Net's; the released code divides it by the number of points, which makes it a
            millionth of the loss.
        input_noise: standard deviation of noise on the first field of a training window, in units
            of a step's change.
    """

    loss: Distance = "squared"
    frequency_weight: float = number(0.0, least=0)
    input_noise: float = number(0.0, least=0)

    def one_step(self, net: FieldNetwork, scale: Scale) -> OneStep:
        """The step and its loss, with settings checked."""
        check(self)
        check_scale(scale)
        if self.frequency_weight:
            check_circles("frequency_weight", self.frequency_weight, net)
        weights = self.frequency_weight, self.input_noise
        return OneStep(net, scale, self.loss, squared_error, *weights)


def check_circles(setting: str, value: Any, net: FieldNetwork) -> None:
    """`ConfigError` where a network's fields end at walls: a Fourier transform joins the ends."""
    kinds = net.shape.boundaries if net.shape else ()
    if {*kinds} - {"", "periodic"}:
        expected = (
            f"periodic boundaries with it, not {', '.join(kind or 'unknown' for kind in kinds)}"
        )
        hint = "its derivatives are Fourier's, which take the ends of an axis for joined"
        raise ConfigError(setting, value, expected, hint)


def relative_error(prediction: jax.Array, target: jax.Array, truth: jax.Array) -> jax.Array:
    """`mean |p - t| / (mean |truth| + 1e-10)` of every channel of `[C, *space]`, their mean."""
    space = tuple(range(1, target.ndim))
    size = jnp.abs(truth).mean(space) + 1e-10
    return (jnp.abs(prediction - target).mean(space) / size).mean()


def frequency_error(
    prediction: jax.Array, target: jax.Array, extent: tuple[float, ...] = ()
) -> jax.Array:
    """`mean (|k| / k_max)^1.5 |F(p - t)|^2` over channels and the bins of a unitary transform.

    `|k|` is physical; its largest is that of the grid's corner (DRIFT-Net, on a square).

    Args:
        prediction, target: `[C, *space]`.
    """
    shape, axes = target.shape[1:], tuple(range(1, target.ndim))
    both = waves(shape, extent)
    highest = max(float(np.abs(both).max()), 1.0)
    length = np.sqrt(np.square(both / highest).sum(0))
    modes = jnp.fft.rfftn(prediction - target, axes=axes, norm="ortho")
    return ((length / max(length.max(), 1e-8)) ** 1.5 * jnp.square(jnp.abs(modes))).mean()

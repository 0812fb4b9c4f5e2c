"""What the operators share: convolutions over any axes, and embeddings. Channels come last inside.

On a CPU a short convolution is a matrix product of shifted copies: the gradients of XLA's own are
many times slower there inside a scan (jax issue 12868). Both forms hold the same parameters.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Dense, uniform_fan_in

from ..boundaries import ends_of
from ..emulator import FieldNetwork, FieldShape, kind_and_settings
from .convolution import Padding, convolution, products, shifted

Form = Literal["auto", "matmul", "conv"]
Gelu = Literal["erf", "tanh"]
CIRCLE: tuple[Padding, ...] = ("periodic",)
zeros = nn.initializers.zeros
torch_default = uniform_fan_in()


def gelu(x: jax.Array) -> jax.Array:
    """The exact GELU by erf, as torch has it; flax's erfc costs a CPU three times as much."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


def gelu_of(form: Gelu) -> Callable[[jax.Array], jax.Array]:
    """The exact GELU, or `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, 5e-4 from it."""
    return gelu if form == "erf" else nn.gelu


def at_least_float32(x: jax.Array) -> jax.Array:
    """What a Fourier transform takes."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def paddings(boundaries: Sequence[str], axes: int) -> tuple[Padding, ...]:
    """How each axis goes on: around where it is periodic, with zeros at walls, else as it ends."""
    kinds = tuple(boundaries) or ("",) * axes
    if len(kinds) != axes:
        raise ConfigError("boundaries", list(kinds), f"one for each of {axes} axes")
    return tuple(_padding(kind) for kind in kinds)


def _padding(boundary: str) -> Padding:
    ends = ends_of(boundary)
    if ends is None:
        return "periodic"
    low, high = ("zero" if end.kind in ("wall", "dirichlet") else "edge" for end in ends)
    known: dict[tuple[str, str], Padding] = {
        ("zero", "zero"): "zero",
        ("edge", "edge"): "edge",
        ("zero", "edge"): "zero|edge",
        ("edge", "zero"): "edge|zero",
    }
    return known[low, high]


def use_matmul(form: Form) -> bool:
    """Whether a convolution is done as a matrix product; `auto` depends on the backend."""
    return form == "matmul" or (form == "auto" and jax.default_backend() == "cpu")


class PeriodicConv(nn.Module):
    """Convolution over axes of space, `[..., *N, Cin] -> [..., *N / stride, features]`; odd widths.

    As many axes as `padding` has entries; by default one circle. The kernel is `[width] * axes`
    wide and `[Cin, features]` deep.
    """

    features: int
    width: int = 3
    stride: int = 1
    dilation: int = 1
    padding: tuple[Padding, ...] = CIRCLE
    kernel_init: Callable[..., Any] = torch_default
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        axes, reach = len(self.padding), self.width // 2 * self.dilation
        shortest = min(x.shape[-1 - axes : -1])
        if reach > shortest:
            hint = "take smaller dilations, or another network"
            raise ConfigError("points", shortest, f"at least {reach}, a kernel's reach", hint)
        shape = (*(self.width,) * axes, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = self.param("bias", zeros, (self.features,))
        apply = products if use_matmul(self.form) else convolution
        return apply(x, kernel, self.stride, self.dilation, self.padding) + bias


# Which entries of a kernel of width 4 meet at even and at odd points, and whose values they take.
_TAPS = (((1, 0), (3, -1)), ((2, 0), (0, 1)))


class PeriodicUpsample(nn.Module):
    """Transposed convolution of width 4 and stride 2, `[..., *N, C] -> [..., *2N, C]`.

    In torch's terms `ConvTranspose(C, C, 4, 2, 1)`; what lies beyond the ends is `padding`'s, as of
    the `PeriodicConv`: torch's own is "zero" along every axis.
    """

    padding: tuple[Padding, ...] = CIRCLE

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        axes, channels = len(self.padding), x.shape[-1]
        kernel = self.param("kernel", torch_default, (*(4,) * axes, channels, channels))
        bias = self.param("bias", zeros, (channels,))
        lead, space = x.shape[: -1 - axes], x.shape[-1 - axes : -1]

        def at(phase: tuple[int, ...]) -> jax.Array:
            """The points that are even or odd along each axis."""
            parts = []
            for taps in itertools.product(*(_TAPS[p] for p in phase)):
                moved = x
                for axis, (_, by) in enumerate(taps):
                    moved = shifted(moved, by, len(lead) + axis, self.padding[axis])
                parts.append(moved @ kernel[tuple(i for i, _ in taps)])
            return functools.reduce(operator.add, parts)

        both = jnp.stack([at(phase) for phase in itertools.product((0, 1), repeat=axes)], -2)
        both = both.reshape(*lead, *space, *(2,) * axes, channels)
        # Phases beside their axes: [..., N0, N1, 2, 2, C] -> [..., N0, 2, N1, 2, C].
        first = len(lead)
        woven = [first + axis + part * axes for axis in range(axes) for part in (0, 1)]
        order = (*range(first), *woven, both.ndim - 1)
        out = both.transpose(order).reshape(*lead, *(2 * n for n in space), channels)
        return out + bias


def sinusoid(value: jax.Array, size: int) -> jax.Array:
    """`[cos, sin]` of `value * 10000^(-i / (size / 2))`, shape `[size]`."""
    half = size // 2
    angles = value * jnp.exp(-math.log(10_000.0) * jnp.arange(half) / half)
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])


class Embedding(nn.Module):
    """One MLP for the refinement index and one for every condition, summed: `[features]`."""

    size: int
    features: int
    gelu: Gelu = "erf"

    @nn.compact
    def __call__(self, index: jax.Array, conditions: jax.Array) -> jax.Array:
        scalars = [jnp.asarray(index, jnp.float32), *conditions]
        out = jnp.zeros((self.features,))
        for value in scalars:
            hidden = Dense(self.features)(sinusoid(value, self.size))
            out = out + Dense(self.features)(gelu_of(self.gelu)(hidden))
        # In a `lean` network as the index is, or all that follows would be float32 again.
        half = jnp.asarray(index).dtype == jnp.bfloat16
        return out.astype(jnp.bfloat16) if half else out


def field_network(module: nn.Module, shape: FieldShape) -> FieldNetwork:
    """A module `(x [*N, Cin], index, conditions) -> [*N, C]` as a `FieldNetwork` on `[C, *N]`.

    Equal arguments give the same functions; so do those of all networks here, which end here.
    """
    if shape.history < 1:
        raise ConfigError("history", shape.history, "at least 1: the frame to step from")
    known: Any = module  # it has a hash, but its type does not say so
    # Written in one way, so that the same circles are the same functions.
    kinds = shape.boundaries or ("periodic",) * len(shape.grid)
    return _field_network(known, shape._replace(points=shape.grid, boundaries=kinds))


@functools.lru_cache(maxsize=32)
def _field_network(module: nn.Module, shape: FieldShape) -> FieldNetwork:
    grid, scalars = shape.grid, (shape.conditions,)

    def init(key: jax.Array) -> Any:
        inputs = jnp.zeros((*grid, (shape.history + 1) * shape.channels))
        return module.init(key, inputs, jnp.zeros(()), jnp.zeros(scalars))["params"]

    def apply(
        params: Any, field: jax.Array, noised: jax.Array, index: Any, conditions: jax.Array
    ) -> jax.Array:
        check_shapes(field, conditions, (shape.history * shape.channels, *grid), scalars)
        x = jnp.moveaxis(jnp.concatenate([field, noised]), 0, -1)
        prediction: Any = module.apply({"params": params}, x, index, conditions)
        return jnp.moveaxis(prediction, -1, 0)

    about = (
        *kind_and_settings("network", getattr(module, "config", module)),
        ("points", grid),
        ("padding", getattr(module, "padding", ())),
    )
    return FieldNetwork(jax.jit(init), jax.jit(apply), shape.history, about, shape)


def check_shapes(
    field: jax.Array, conditions: jax.Array, shape: tuple[int, ...], given: tuple[int, ...]
) -> None:
    """`ConfigError` for a field or conditions of another shape than a network was made for."""
    if field.shape != shape:
        found, expected = (
            f"{c} channels (history counted) on {' x '.join(map(str, n))} points"
            for c, *n in (field.shape, shape)
        )
        raise ConfigError("field", found, expected)
    if conditions.shape != given:
        raise ConfigError(
            "conditions", f"{list(conditions.shape)}", f"{list(given)} of the network"
        )


def check_embedding(size: int, conditions: int = 0) -> None:
    """`ConfigError` for a size of an `Embedding` that cannot be, or 0 beside conditions."""
    if size < 0 or size % 2:
        raise ConfigError("embedding", size, "0, or an even number of at least 2")
    if conditions and not size:
        raise ConfigError("embedding", size, "above 0: it shows the network the conditions")


def check_powers(grid: tuple[int, ...], levels: int) -> None:
    """`ConfigError` unless every axis can be halved `levels` times."""
    for points in grid:
        if points % 2**levels:
            raise ConfigError(
                "points",
                points,
                f"a multiple of {2**levels}: the net halves the grid {levels} times",
                "take fewer multipliers, or a network that does not: resnet, fno",
            )

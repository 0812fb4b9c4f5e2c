"""Convolutions whose channels come last: as products of shifted copies, and the backend's own.

jax takes the gradients of shifts and products one by one: a shift's is a sum of padded parts, and
every product's has transposed operands. Around a circle, or with zeros beyond the ends, those of

    y[r] = sum_i x[r + o_i] K_i

are of the same form, `dx[r] = sum_i dy[r - o_i] K_i^T` and `dK_i = sum_r x[r + o_i] dy[r]^T`. The
copies of x that are shifted along the last axis serve y and dK, those of dy along the first axis
serve dx and dK. A gradient step of seven layers of 16 channels on 64 x 64 points takes a third of
the CPU time.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

# What lies beyond the ends of an axis: the other end, nothing, or the last value; LOW|HIGH.
Padding = Literal["periodic", "zero", "edge", "zero|edge", "edge|zero"]
_PAD = {"zero": "constant", "edge": "edge"}
LIKE_FORWARD = ("periodic", "zero")  # a shift's gradient is the shift back


def shifted(x: jax.Array, by: int, axis: int, padding: Padding = "periodic") -> jax.Array:
    """`y[r] = x[r + by]` along an axis that goes on as of `padding`."""
    if not by:
        return x
    if padding in LIKE_FORWARD:
        return shift_p.bind(x, by=by, axis=axis, padding=padding)
    return _shifted(x, by=by, axis=axis, padding=padding)


def _shifted(x: jax.Array, *, by: int, axis: int, padding: Padding) -> jax.Array:
    if padding == "periodic":
        return jnp.roll(x, -by, axis)
    wide, begin = extended(x, abs(by), axis, padding), abs(by) + by
    return jax.lax.slice_in_dim(wide, begin, begin + x.shape[axis], axis=axis)


def extended(x: jax.Array, reach: int, axis: int, padding: Padding) -> jax.Array:
    """`reach` more points before and behind an axis."""
    if padding == "periodic":
        points = x.shape[axis]
        before = jax.lax.slice_in_dim(x, points - reach, points, axis=axis)
        behind = jax.lax.slice_in_dim(x, 0, reach, axis=axis)
        return jnp.concatenate([before, x, behind], axis)
    low, _, high = padding.partition("|")
    for mode, sides in ((low, (reach, 0)), (high or low, (0, reach))):
        beyond = [(0, 0)] * x.ndim
        beyond[axis] = sides
        x = jnp.pad(x, beyond, mode=_PAD[mode])
    return x


def products(
    x: jax.Array, kernel: jax.Array, stride: int, dilation: int, padding: tuple[Padding, ...]
) -> jax.Array:
    """A convolution as matrix products, `[..., *N, Cin] -> [..., *N / stride, Cout]`.

    `kernel` is `[*widths, Cin, Cout]` of odd widths, with an axis for each entry of `padding`.
    """
    if stride == 1 and set(padding) <= set(LIKE_FORWARD):
        common = jnp.promote_types(x.dtype, kernel.dtype)
        given = x.astype(common), kernel.astype(common)
        how = {"dilation": dilation, "padding": padding, "along": len(padding) - 1}
        # Read here: what a primitive stands for is traced when a program is compiled, outside of
        # the caller's `jax.default_matmul_precision`.
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        return moved_p.bind(*given, **how, precision=precision)
    return _products(x, kernel, stride, dilation, padding, len(padding) - 1)


def _beside(
    x: jax.Array, width: int, stride: int, dilation: int, padding: tuple[Padding, ...], along: int
) -> jax.Array:
    """Copies of `x` shifted along one axis of space beside each other, `[..., *N, width C]`."""
    at, reach = x.ndim - 1 - len(padding) + along, width // 2 * dilation
    every = (slice(None),) * at + (slice(None, None, stride),)
    copies = (shifted(x, by, at, padding[along]) for by in range(-reach, reach + 1, dilation))
    return jnp.concatenate([copy[every] for copy in copies], -1)


def _moved(
    x: jax.Array, by: dict[int, int], stride: int, padding: tuple[Padding, ...]
) -> jax.Array:
    """`x` shifted along axes of space, every `stride`th point along them."""
    for axis, points in by.items():
        at = x.ndim - 1 - len(padding) + axis
        x = shifted(x, points, at, padding[axis])
        x = x[(slice(None),) * at + (slice(None, None, stride),)]
    return x


def _products(
    x: jax.Array,
    kernel: jax.Array,
    stride: int,
    dilation: int,
    padding: tuple[Padding, ...],
    along: int,
) -> jax.Array:
    """Copies shifted along one axis beside each other; along the others, products are moved.

    A product for every offset along the others, moved there and added up: of the forms that a CPU
    runs well inside a scan, the fastest.
    """
    width, parts = kernel.shape[0], []
    others = [axis for axis in range(len(padding)) if axis != along]
    columns = _beside(x, width, stride, dilation, padding, along)
    kernel = jnp.moveaxis(kernel, along, -3)
    for index in itertools.product(range(width), repeat=len(others)):
        weights = kernel[index].reshape(-1, kernel.shape[-1])
        by = {axis: (i - width // 2) * dilation for axis, i in zip(others, index, strict=True)}
        move = functools.partial(_moved, by=by, stride=stride, padding=padding)
        # The fewer rows first: a product is moved, but what a stride drops is not multiplied.
        parts.append(move(columns @ weights) if stride == 1 else move(columns) @ weights)
    return functools.reduce(operator.add, parts)


def _forward(x: jax.Array, kernel: jax.Array, *, precision: str | None, **how: Any) -> jax.Array:
    with jax.default_matmul_precision(precision):
        return _products(x, kernel, 1, **how)


def _gradient(x: jax.Array, g: jax.Array, *, precision: str | None, **how: Any) -> jax.Array:
    with jax.default_matmul_precision(precision):
        return _taps(x, g, **how)


def _taps(
    x: jax.Array,
    g: jax.Array,
    *,
    width: int,
    dilation: int,
    padding: tuple[Padding, ...],
    along: int,
) -> jax.Array:
    """`K_i = sum_r x[r + o_i] g[r]^T`, `[*widths, Cin, Cout]`; leading axes are summed over.

    Copies of x are beside each other along the first or last axis, those of g along the other one.
    """
    axes, deep, features = len(padding), x.shape[-1], g.shape[-1]
    columns, summed = _beside(x, width, 1, dilation, padding, along), tuple(range(g.ndim - 1))
    if axes == 1:
        return jnp.tensordot(columns, g, (summed, summed)).reshape(width, deep, features)
    rows, parts = _beside(g, width, 1, dilation, padding, axes - 1 - along), []
    for index in itertools.product(range(width), repeat=axes - 2):
        by = {1 + axis: (width // 2 - i) * dilation for axis, i in enumerate(index)}
        product = jnp.tensordot(columns, _moved(rows, by, 1, padding), (summed, summed))
        parts.append(product.reshape(width, deep, width, features))
    # g is shifted the other way than x would be.
    taps = jnp.flip(jnp.stack(parts), -2).reshape(*(width,) * (axes - 2), *parts[0].shape)
    inner = range(axes - 2)
    x_at, depth, g_at, last = range(axes - 2, axes + 2)
    ends = (g_at, x_at) if along else (x_at, g_at)
    return taps.transpose(ends[0], *inner, ends[1], depth, last)


def _turned(kernel: jax.Array) -> jax.Array:
    """`K_{-i}^T`."""
    return jnp.flip(kernel, tuple(range(kernel.ndim - 2))).swapaxes(-1, -2)


def _primitive(name: str, work: Callable[..., jax.Array]) -> Primitive:
    """A linear operation that is compiled as the function that it stands for."""
    made = Primitive(name)
    made.stands_for = work  # type: ignore[attr-defined]  # see `trees.equations`

    def shape_of(*given: Any, **how: Any) -> Any:
        out = jax.eval_shape(functools.partial(work, **how), *given)
        return ShapedArray(out.shape, out.dtype)

    made.def_impl(lambda *given, **how: jax.jit(functools.partial(work, **how))(*given))
    made.def_abstract_eval(shape_of)
    mlir.register_lowering(made, mlir.lower_fun(work, multiple_results=False))
    batching.primitive_batchers[made] = lambda given, at, **how: (
        jax.vmap(functools.partial(work, **how), in_axes=at)(*given),
        0,
    )
    return made


# jax's own derivatives of all orders follow from these: each is linear, and their transposes are
# they themselves.
shift_p = _primitive("shift", _shifted)
moved_p = _primitive("moved_products", _forward)
taps_p = _primitive("taps_of_products", _gradient)


def _back(g: Any, kernel: Any, *, padding: Any, along: int, **how: Any) -> jax.Array:
    how |= {"padding": padding, "along": len(padding) - 1 - along}
    return moved_p.bind(g, _turned(kernel), **how)


ad.deflinear2(shift_p, lambda ct, x, *, by, **how: [shift_p.bind(ct, by=-by, **how)])
ad.defbilinear(
    moved_p,
    lambda ct, x, kernel, **how: _back(ct, kernel, **how),
    lambda ct, x, kernel, **how: taps_p.bind(x, ct, width=kernel.aval.shape[0], **how),
)
ad.defbilinear(
    taps_p,
    lambda ct, x, g, *, width, **how: _back(g, ct, **how),
    lambda ct, x, g, *, width, **how: moved_p.bind(x, ct, **how),
)


def _batched_shift(given: Any, at: Any, *, axis: int, **how: Any) -> tuple[jax.Array, int]:
    (x,), (lead,) = given, at
    return shift_p.bind(jnp.moveaxis(x, lead, 0), axis=axis + 1, **how), 0


def _batched_products(given: Any, at: Any, **how: Any) -> tuple[jax.Array, int]:
    (x, kernel), (of_x, of_kernel) = given, at
    if of_kernel is None:  # one more leading axis
        return moved_p.bind(jnp.moveaxis(x, of_x, 0), kernel, **how), 0
    return jax.vmap(functools.partial(_forward, **how), in_axes=at)(x, kernel), 0


batching.primitive_batchers[shift_p] = _batched_shift
batching.primitive_batchers[moved_p] = _batched_products


def convolution(
    x: jax.Array, kernel: jax.Array, stride: int, dilation: int, padding: tuple[Padding, ...]
) -> jax.Array:
    """The same as `products` by the backend's own convolution."""
    axes, reach = len(padding), kernel.shape[0] // 2 * dilation
    padded = x
    for axis, kind in enumerate(padding):
        padded = extended(padded, reach, x.ndim - 1 - axes + axis, kind)
    lead, space = padded.shape[: -1 - axes], "XYZ"[:axes]
    out = jax.lax.conv_general_dilated(
        padded.reshape(-1, *padded.shape[-1 - axes :]),
        kernel,
        (stride,) * axes,
        "VALID",
        rhs_dilation=(dilation,) * axes,
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
    )
    return out.reshape(*lead, *out.shape[1:])

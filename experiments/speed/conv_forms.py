"""What a convolution in the plane costs in each of its forms, in a training step on this device.

Training steps run inside a scan (`loop.train`), where XLA's own convolution is another program on a
CPU than outside: both are timed, in CPU seconds, since others may use the machine meanwhile.

rows = time_forms(context, FormSizes())
report.table("convolutions in the plane: CPU ms a training step", rows)
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_rollouts.compare.timing import in_turns
from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, gelu, use_matmul
from jaxrl_rollouts.record.context import RunContext

RATE = 0.1  # of the gradient steps; speed does not depend on it
Params = list[dict[str, jax.Array]]


@dataclass(frozen=True)
class FormSizes:
    """What is timed: a stack of equal periodic convolutions with GELU between them.

    Attributes:
        points: per axis of each grid, which has two axes.
        channels: of every layer.
        width: of the kernels, odd.
        layers: convolutions one after the other.
        batch: fields in a gradient step.
        steps: gradient steps in the scan.
        repeats: rounds in which every form is timed once.
    """

    points: tuple[int, ...] = (32, 64)
    channels: int = positive(32)
    width: int = positive(3)
    layers: int = positive(2)
    batch: int = positive(8)
    steps: int = positive(4)
    repeats: int = positive(3)

    def validate(self) -> None:
        if self.width % 2 == 0:
            raise ConfigError("width", self.width, "an odd number")


def patches(x: jax.Array, layer: Mapping[str, jax.Array]) -> jax.Array:
    """All shifted copies beside each other and one product ("im2col"): `[..., N, N, C]`, periodic.

    As much arithmetic as `matmul`, which shifts along one axis before its products and along the
    other after them, and `width` times as much memory.
    """
    width = layer["kernel"].shape[0]
    offsets = range(width // 2, width // 2 - width, -1)
    copies = [jnp.roll(x, by, (-3, -2)) for by in itertools.product(offsets, repeat=2)]
    columns = jnp.concatenate(copies, -1)
    return columns @ layer["kernel"].reshape(columns.shape[-1], -1) + layer["bias"]


def _ours(form: Any) -> Callable[[jax.Array, Any], Any]:
    def apply(x: jax.Array, layer: Any) -> Any:
        features, width = layer["bias"].size, layer["kernel"].shape[0]
        conv = PeriodicConv(features, width, padding=("periodic", "periodic"), form=form)
        return conv.apply({"params": layer}, x)

    return apply


# Name -> `(x [B, N, N, C], {kernel, bias}) -> [B, N, N, C]`.
FORMS: dict[str, Callable[[jax.Array, Any], Any]] = {
    "conv": _ours("conv"),
    "patches": patches,
    "matmul": _ours("matmul"),
}


def chosen() -> str:
    """The form that `auto` takes here."""
    return "matmul" if use_matmul("auto") else "conv"


def make_layers(key: jax.Array, sizes: FormSizes) -> Params:
    """Random kernels, one for each layer, that keep the size of a field."""
    shape = (sizes.width, sizes.width, sizes.channels, sizes.channels)
    scale = (sizes.width**2 * sizes.channels) ** -0.5
    kernels = [scale * jax.random.normal(k, shape) for k in jax.random.split(key, sizes.layers)]
    return [{"kernel": kernel, "bias": jnp.zeros(sizes.channels)} for kernel in kernels]


def gradient_step(form: str, params: Params, x: jax.Array) -> Params:
    """One step down the mean square of what comes out of `[B, N, N, C]`."""

    def loss(params: Params) -> jax.Array:
        h = x
        for layer in params:
            h = gelu(FORMS[form](h, layer))
        return jnp.square(h).mean()

    return jax.tree.map(lambda p, g: p - RATE * g, params, jax.grad(loss)(params))


def gradient_steps(form: str, params: Params, x: jax.Array, steps: int) -> Params:
    """As many in a scan, each on the fields moved by one point: none can be taken out of it."""

    def body(params: Params, by: jax.Array) -> tuple[Params, None]:
        return gradient_step(form, params, jnp.roll(x, by, 1)), None

    return jax.lax.scan(body, params, jnp.arange(steps))[0]


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Of all threads of this process, until the result is there."""
    begin = time.process_time()
    jax.block_until_ready(work())
    return time.process_time() - begin


def _timer(program: Callable[..., Any], *at: Any, count: int) -> Callable[[], float]:
    """CPU seconds of each of `count` steps of a compiled program."""
    jax.block_until_ready(program(*at))  # a first call allocates
    return lambda: cpu_seconds(lambda: program(*at)) / count


def time_forms(context: RunContext, sizes: FormSizes) -> list[dict[str, Any]]:
    """A row for each grid and form: CPU seconds of a gradient step, medians over the rounds.

    Columns: whether `auto` takes it; milliseconds of a step inside the scan and by itself; how many
    times the first is the second, and that of the fastest form; billions of operations (three
    passes) per CPU second inside; CPU seconds to compile the scan. Only on a CPU are CPU seconds
    the time of the work.

    Raises:
        ConfigError: a size below 1, or an even width.
    """
    check(sizes)
    rows = []
    for points in sizes.points:
        params = make_layers(jax.random.key(0), sizes)
        shape = (sizes.batch, points, points, sizes.channels)
        x = jax.random.normal(jax.random.key(1), shape)
        timers, compiling = {}, {}
        for form in FORMS:
            scan = jax.jit(functools.partial(gradient_steps, form, steps=sizes.steps))
            alone = jax.jit(functools.partial(gradient_step, form))
            for kind, step, count in (("scan", scan, sizes.steps), ("alone", alone, 1)):
                begin = time.process_time()
                program = step.lower(params, x).compile()
                compiling[kind, form] = time.process_time() - begin
                timers[kind, form] = _timer(program, params, x, count=count)
        label = f"convolutions on {points} x {points} points"
        seconds = in_turns(context, label, sizes.repeats, timers)
        best = min(seconds.median(("scan", form)) for form in FORMS)
        work = 3 * 2 * sizes.layers * x.size * sizes.width**2 * sizes.channels
        for form in FORMS:
            inside, outside = (seconds.median((kind, form)) for kind in ("scan", "alone"))
            rows.append(
                {
                    "grid": f"{points} x {points}",
                    "form": form,
                    "auto": "yes" if form == chosen() else "",
                    "in a scan, ms": 1e3 * inside,
                    "alone, ms": 1e3 * outside,
                    "scan / alone": inside / outside,
                    "x fastest": inside / best,
                    "GFLOP/s": work / inside / 1e9,
                    "compile s": compiling["scan", form],
                }
            )
    return rows

"""Memory: features of an episode so far, as pure functions.

The same network is applied to a whole tape, many episodes behind one another with a flag where each
begins, or to one more observation. After a start flag nothing of what was before is left, so tapes
need no padding. Linen is an implementation detail of this file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl_rollouts.configs import check, positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import orthogonal
from jaxrl_rollouts.trees import PyTree

from .linear_recurrence import LinearRecurrentUnit, dense

Rate = float | optax.Schedule


@dataclass(frozen=True)
class MemoryConfig:
    """A stack of recurrent layers; defaults are NEUBAY's (Ni et al. 2025, arXiv 2512.04341).

    Attributes:
        kind: `lru` (linear recurrent unit, an associative scan where that is faster), `gru`,
            `lstm`, or `none`, which uses the present observation only (a Markov agent).
        width: width of the features and of everything between layers.
        state: complex units of an LRU layer; the others remember `width` numbers.
        layers: recurrent layers.
        radius: |eigenvalue| of an LRU is drawn between these; below 1 it forgets.
    """

    kind: Literal["lru", "gru", "lstm", "none"] = "lru"
    width: int = positive(256)
    state: int = positive(128)
    layers: int = positive(2)
    radius: tuple[float, float] = (0.0, 0.9)

    def validate(self) -> None:
        if not 0 <= self.radius[0] < self.radius[1] < 1:
            raise ConfigError("radius", self.radius, "0 <= low < high < 1")


class Parts(NamedTuple):
    """Parameters of a memory and of the head on it, which learn at rates of their own."""

    memory: PyTree
    head: PyTree


def parts_optimiser(
    memory_lr: Rate, head_lr: Rate, clip: float | None
) -> optax.GradientTransformation:
    """Adam with a rate (or schedule) for each part, and the largest norm of each one's gradient."""

    def adam(rate: Rate) -> optax.GradientTransformation:
        limit = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
        return optax.chain(limit, optax.adam(rate))

    return optax.partition(
        {"memory": adam(memory_lr), "head": adam(head_lr)}, Parts("memory", "head")
    )


class Memory(NamedTuple):
    """Functions of one memory; `carry` is a pytree, `()` where there is nothing to remember.

    Attributes:
        init: `key -> params`.
        start: `batch -> carry` of rows that have seen nothing, leaves `[batch, ...]`.
        scan: `(params, observations [L, D], starts [L] bool, carry=None) -> (features [L, F],
            carries)`. `carry` is a single row without a batch axis, what was before the tape;
            `carries` (leaves `[L, ...]`) is what is remembered after each observation.
        step: `(params, carry, observations [B, D]) -> (features [B, F], carry)`.
        features: `F`.
    """

    init: Callable[[jax.Array], PyTree]
    start: Callable[[int], PyTree]
    scan: Callable[..., tuple[jax.Array, PyTree]]
    step: Callable[[PyTree, PyTree, jax.Array], tuple[jax.Array, PyTree]]
    features: int


class _Cell(nn.Module):
    """A Linen recurrent cell as a layer; its tape is a sequential scan over time."""

    width: int
    kind: str

    def setup(self) -> None:
        cell = nn.GRUCell if self.kind == "gru" else nn.OptimizedLSTMCell
        self.cell = cell(self.width, recurrent_kernel_init=orthogonal())

    def scan(self, x: jax.Array, starts: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        if self.kind == "gru":
            return gru_tape(self.cell.variables["params"], x, starts, carry)
        fresh = _zeros(self.kind, self.width, ())

        def one(cell: nn.Module, carry: PyTree, row: tuple) -> tuple[PyTree, tuple]:
            observation, start = row
            carry = jax.tree.map(lambda new, old: jnp.where(start, new, old), fresh, carry)
            carry, out = cell(carry, observation)
            return carry, (out, carry)

        over = nn.scan(one, variable_broadcast="params", split_rngs={"params": False})
        return over(self.cell, carry, (x, starts))[1]

    def step(self, x: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        carry, out = self.cell(carry, x)
        return out, carry


def gru_tape(
    params: PyTree, x: jax.Array, starts: jax.Array, carry: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Run `nn.GRUCell` over a tape with two matrix products where the cell has six per step.

        r, z = sigmoid(x W_r + b_r + h U_r), sigmoid(x W_z + b_z + h U_z)
        n = tanh(x W_n + b_n + r (h U_n + c_n)),    h' = (1 - z) n + z h

    Args:
        x: inputs `[L, D]`.
        starts: `[L]` bool, where an episode begins.
        carry: `[H]`, the state before the tape.

    Returns:
        Outputs and states after each input, `[L, H]` both: they are the same.
    """
    gates, width = ("r", "z", "n"), carry.shape[-1]
    into = jnp.concatenate([params[f"i{gate}"]["kernel"] for gate in gates], 1)
    bias = jnp.concatenate([params[f"i{gate}"]["bias"] for gate in gates])
    again = jnp.concatenate([params[f"h{gate}"]["kernel"] for gate in gates], 1)

    def one(h: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        given, start = row
        h = jnp.where(start, 0.0, h)
        kept = h @ again
        reset, update = jnp.split(jax.nn.sigmoid((given + kept)[: 2 * width]), 2)
        new = jnp.tanh(given[2 * width :] + reset * (kept[2 * width :] + params["hn"]["bias"]))
        h = (1.0 - update) * new + update * h
        return h, h

    # Inputs do not depend on the state: one product for the whole tape. A step alone is too small
    # to keep a core busy, hence eight per iteration of the loop.
    out = jax.lax.scan(one, carry, (x @ into + bias, starts), unroll=8)[1]
    return out, out


def _zeros(kind: str, units: int, shape: tuple[int, ...]) -> PyTree:
    """What a layer that has seen nothing remembers."""
    if kind == "lru":
        return jnp.zeros((*shape, units), jnp.complex64)
    zero = jnp.zeros((*shape, units), jnp.float32)
    return (zero, zero) if kind == "lstm" else zero


class _Stack(nn.Module):
    """Linear, layer normalisation, LeakyReLU; then the recurrent layers."""

    config: MemoryConfig
    inputs: int

    def setup(self) -> None:
        c = self.config
        self.before, self.norm = dense(self.inputs, c.width), nn.LayerNorm(epsilon=1e-5)
        if c.kind == "lru":
            self.layers = [LinearRecurrentUnit(c.width, c.state, c.radius) for _ in range(c.layers)]
        else:
            count = 0 if c.kind == "none" else c.layers
            self.layers = [_Cell(c.width, c.kind) for _ in range(count)]

    def _embed(self, observations: jax.Array) -> jax.Array:
        return nn.leaky_relu(self.norm(self.before(observations)))

    def scan(
        self, observations: jax.Array, starts: jax.Array, carry: PyTree
    ) -> tuple[jax.Array, PyTree]:
        x, carries = self._embed(observations), []
        for layer, own in zip(self.layers, carry, strict=True):
            x, kept = layer.scan(x, starts, own)
            carries.append(kept)
        return x, tuple(carries)

    def step(self, observations: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        x, carries = self._embed(observations), []
        for layer, own in zip(self.layers, carry, strict=True):
            x, kept = layer.step(x, own)
            carries.append(kept)
        return x, tuple(carries)


@functools.lru_cache(maxsize=32)
def make_memory(config: MemoryConfig, inputs: int) -> Memory:
    """Build the functions. Equal arguments give the same functions."""
    check(config)
    module = _Stack(config, inputs)

    units = config.state if config.kind == "lru" else config.width
    count = 0 if config.kind == "none" else config.layers

    def rows(shape: tuple[int, ...]) -> PyTree:
        return tuple(_zeros(config.kind, units, shape) for _ in range(count))

    def start(batch: int) -> PyTree:
        return rows((batch,))

    def init(key: jax.Array) -> PyTree:
        return module.init(key, jnp.zeros((1, inputs)), start(1), method="step")["params"]

    def scan(
        params: PyTree, observations: jax.Array, starts: jax.Array, carry: PyTree = None
    ) -> tuple[jax.Array, PyTree]:
        carry = rows(()) if carry is None else carry
        return module.apply({"params": params}, observations, starts, carry, method="scan")

    def step(params: PyTree, carry: PyTree, observations: jax.Array) -> tuple[jax.Array, PyTree]:
        return module.apply({"params": params}, observations, carry, method="step")

    return Memory(jax.jit(init), start, jax.jit(scan), jax.jit(step), config.width)

"""Networks of one's own in the place of this library's: whatever maps a field to a field.

    pde.fit("mse", fields, network=MyLinen())                    # x [*space, Cin] -> [*space, C]
    pde.fit("mse", fields, network=from_equinox(lambda key: eqx.nn.MLP(...)))      # [Cin, *space]
    pde.fit("mse", fields, network=Network(init, apply))          # as MyLinen, two pure functions

The input's channels are the history's fields, the second input of objectives that have one (zeros
for the others), the conditions and the index, each of the last two as a constant plane.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.networks import Network

from .emulator import FIRST_INDEX, FieldNetwork


class FieldShape(NamedTuple):
    """What a network is built for.

    Attributes:
        channels: `C` of a frame.
        grid: points of every axis.
        conditions: `P` scalars.
        history: frames that are seen.
        boundaries: of every axis; () where nobody says.
    """

    channels: int
    grid: tuple[int, ...]
    conditions: int = 0
    history: int = 1
    boundaries: tuple[str, ...] = ()

    @property
    def inputs(self) -> int:
        """Channels of what a network of one's own is shown."""
        return (self.history + 1) * self.channels + self.conditions + 1


@functools.lru_cache(maxsize=32)
def field_network_of(given: Any, shape: FieldShape) -> FieldNetwork:
    """A network of one's own as a `FieldNetwork` on fields of this shape.

    Args:
        given: a `FieldNetwork`, a `Network` (two functions), a Linen module, or `from_equinox`.
        shape: of the fields.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(given, FieldNetwork):
        return given
    if isinstance(given, nn.Module):
        example = jnp.zeros((*shape.grid, shape.inputs))
        module: Any = given
        given = Network(lambda key: module.init(key, example), module.apply)
    if not isinstance(given, Network):
        expected = "a name, settings, a FieldNetwork, (init, apply), a Linen module or from_equinox"
        raise ConfigError("network", type(given).__name__, expected)
    init, call = given

    def apply(
        params: Any, field: jax.Array, noised: jax.Array, index: Any, conditions: jax.Array
    ) -> jax.Array:
        scalars = jnp.append(conditions, index / FIRST_INDEX)
        planes = jnp.broadcast_to(
            scalars.reshape(-1, *(1,) * len(shape.grid)), (len(scalars), *shape.grid)
        )
        x = jnp.moveaxis(jnp.concatenate([field, noised, planes]), 0, -1)
        found = call(params, x)
        if found.shape != (*shape.grid, shape.channels):
            raise ConfigError(
                "network", f"output {list(found.shape)}", f"{[*shape.grid, shape.channels]}"
            )
        return jnp.moveaxis(found, -1, 0)

    return FieldNetwork(
        jax.jit(init), apply, shape.history, (("kind of network", repr(given)[:80]),)
    )


def from_equinox(make: Callable[[jax.Array], Any]) -> Network:
    """An Equinox module, channels first as there: `make(key)` builds it.

    Its arrays are the parameters; the rest is kept beside them.
    """
    import equinox as eqx

    static = eqx.filter_eval_shape(make, jax.random.key(0))
    static = eqx.partition(static, lambda x: isinstance(x, jax.ShapeDtypeStruct))[1]

    def init(key: jax.Array) -> Any:
        return eqx.partition(make(key), eqx.is_array)[0]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        module = eqx.combine(params, static)
        return jnp.moveaxis(module(jnp.moveaxis(x, -1, 0)), 0, -1)

    return Network(init, apply)

"""Networks of one's own in the place of this library's: whatever maps a field to a field.

    pde.fit("mse", fields, network=MyLinen())                  # x [*space, C_in] -> [*space, C]
    pde.fit("mse", fields, network=Network(init, apply))       # as MyLinen, two pure functions
    pde.fit("mse", fields, network=pde.from_equinox(lambda key: eqx.nn.Conv1d(...)))  # channels 1st

The input's channels are the history's fields, the second input of objectives that have one (zeros
for the others), the conditions and the index, each of the last two as a constant plane. A
`FieldNetwork` sees them apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError, MissingExtraError
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.trees import PyTree

from .emulator import FIRST_INDEX, About, FieldNetwork, FieldShape, NetworkConfig
from .registries import NETWORKS

EXPECTED = "a name, settings, a FieldNetwork, (init, apply), a Linen module or from_equinox(...)"
# What `fit` takes for a network, besides a name.
NetworkLike = NetworkConfig | FieldNetwork | Network | nn.Module


def network_like(given: Any) -> NetworkLike:
    """A network, or settings of one, of what `fit` was given."""
    if isinstance(given, str):
        return NETWORKS[given]()
    if type(given) is tuple and len(given) == 2 and all(map(callable, given)):
        given = Network(*given)
    makes = callable(getattr(given, "make", None)) and not isinstance(given, type)
    if not makes and not isinstance(given, FieldNetwork | Network | nn.Module):
        hint = "give an object of it: network=MyNetwork()" if isinstance(given, type) else ""
        found = given.__name__ if isinstance(given, type) else type(given).__name__
        raise ConfigError("network", found, EXPECTED, hint)
    try:
        hash(given)
    except TypeError as error:
        expected = "one whose attributes are hashable (tuples, not lists or arrays)"
        raise ConfigError("network", f"{type(given).__name__}: {error}", expected) from None
    network: Any = given
    return network


def built(given: NetworkLike, shape: FieldShape) -> FieldNetwork:
    """The network on fields of a shape."""
    if not isinstance(given, FieldNetwork | Network | nn.Module):
        net = given.make(shape)
        return net if net.shape else net._replace(shape=shape)
    if isinstance(given, FieldNetwork):
        if given.history != shape.history:
            raise ConfigError("history", shape.history, f"the network's ({given.history})")
        return given._replace(shape=shape, about=given.about or _named(given.init))
    known: Any = given  # it has a hash, but its type does not say so
    return _adapted(known, shape._replace(points=shape.grid))


@functools.lru_cache(maxsize=32)
def _adapted(given: Network | nn.Module, shape: FieldShape) -> FieldNetwork:
    grid = shape.grid
    init, call = _functions(given, jnp.zeros((*grid, shape.inputs)))

    def apply(
        params: PyTree, field: jax.Array, noised: jax.Array, index: Any, conditions: jax.Array
    ) -> jax.Array:
        scalars = jnp.append(conditions, index / FIRST_INDEX)
        planes = jnp.broadcast_to(scalars.reshape(-1, *(1,) * len(grid)), (len(scalars), *grid))
        return jnp.moveaxis(
            call(params, jnp.moveaxis(jnp.concatenate([field, noised, planes]), 0, -1)), -1, 0
        )

    params = jax.eval_shape(init, jax.random.key(0))
    example = jax.ShapeDtypeStruct((*grid, shape.inputs), jnp.float32)
    output = jax.eval_shape(call, params, example)
    expected = (*grid, shape.outputs)
    if getattr(output, "shape", None) != expected:
        found = list(output.shape) if hasattr(output, "shape") else type(output).__name__
        raise ConfigError("network", f"output {found}", f"{list(expected)}: [*space, channels]")
    about = (*_named(given), ("points", grid))
    return FieldNetwork(jax.jit(init), jax.jit(apply), shape.history, about, shape)


def _functions(
    given: Network | nn.Module, example: jax.Array
) -> tuple[Callable[[jax.Array], PyTree], Callable[..., Any]]:
    if isinstance(given, Network):
        return given.init, given.apply
    module: Any = given

    def init(key: jax.Array) -> PyTree:
        variables = module.init(key, example)
        if {*variables} - {"params"}:
            others = ", ".join(sorted({*variables} - {"params"}))
            raise ConfigError("network", f"variables {others}", "parameters only: no running state")
        return variables["params"]

    def call(params: PyTree, x: jax.Array) -> Any:
        return module.apply({"params": params}, x)

    return init, call


def _named(given: Any) -> About:
    """What a checkpoint records of a network: a module's settings, or a function's name."""
    if isinstance(given, nn.Module):
        return (("kind of network", " ".join(repr(given).split())),)
    function = given.init if isinstance(given, Network) else given
    function = getattr(function, "__wrapped__", function)
    name = getattr(function, "__qualname__", type(function).__name__)
    return (("kind of network", f"{getattr(function, '__module__', '')}.{name}"),)


def from_equinox(make: Callable[[jax.Array], Any]) -> Network:
    """An Equinox module as a network: `[C_in, *space] -> [C, *space]`, channels first as there.

    Its arrays are the parameters; the rest is stored separately.

    Args:
        make: `key -> module`.

    Raises:
        MissingExtraError: equinox is not installed.
    """
    try:
        import equinox as eqx
    except ImportError:
        raise MissingExtraError("networks of Equinox", "equinox", "pde") from None
    whole = eqx.filter_eval_shape(make, jax.random.key(0))
    static = eqx.partition(whole, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    def init(key: jax.Array) -> PyTree:
        return eqx.partition(make(key), eqx.is_array)[0]

    def apply(params: PyTree, x: jax.Array) -> jax.Array:
        module = eqx.combine(params, static)
        return jnp.moveaxis(module(jnp.moveaxis(x, -1, 0)), 0, -1)

    return Network(init, apply)

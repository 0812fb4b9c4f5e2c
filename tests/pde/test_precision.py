"""Training in less memory: the same gradients from recomputed activations, bfloat16 where it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import on_devices

from jaxrl_rollouts import pde
from jaxrl_rollouts.pde.emulator import FIRST_INDEX, FieldShape
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.fitting import Fitted
from jaxrl_rollouts.pde.precision import lean
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.trees import equations

SMALL = pde.Resnet(width=4, blocks=1, dilations=(1, 2), embedding=4)
NETWORKS: dict[str, Any] = {
    "resnet": SMALL,
    "unet": pde.Unet(hidden=8, multipliers=(1, 2)),
    "convnext": pde.ConvNext(width=4, stages=2),
    "fno": pde.Fno(width=4, layers=2, modes=4, embedding=4),
    "drift": pde.Drift(dims=(8, 16), depths=(1, 1)),
    "transolver": pde.Transolver(width=8, layers=1, heads=2, slices=4, embedding=4),
}


def fields() -> FieldSet:
    u = np.random.default_rng(0).normal(size=(4, 8, 1, 32)).cumsum(1).astype(np.float32)
    return pde.from_arrays(u, dt=[0.1, 0.2, 0.3, 0.4])


def trained(objective: Any = "mse", **settings: Any) -> Fitted:
    training = Training(steps=4, batch=3, warmup=0, per_iteration=2, **settings)
    return pde.fit(objective, fields(), network=SMALL, seeds=2, key=3, training=training)


def test_nothing_asked_is_the_same_network() -> None:
    net = SMALL.make(FieldShape(1, 32))
    assert lean(net, "float32", False) is net
    plain, same = trained(), trained(precision="float32", remat=False)
    for a, b in zip(jax.tree.leaves(plain.params), jax.tree.leaves(same.params), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("objective", ["mse", pde.Unrolled(length=3), "refiner"])
def test_recomputed_activations_give_the_same_training(objective: Any) -> None:
    plain, other = trained(objective), trained(objective, remat=True)
    for a, b in zip(jax.tree.leaves(plain.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)
    at = [np.stack([r.metrics["loss"] for r in f.history.records]) for f in (plain, other)]
    np.testing.assert_allclose(*at, rtol=1e-4)


def gradient_of(net: Any, params: Any, u: jax.Array) -> Any:
    def loss(params: Any) -> jax.Array:
        return jnp.square(net.apply(params, u, jnp.zeros_like(u), FIRST_INDEX, jnp.ones(1))).mean()

    return jax.grad(loss)(params)


@pytest.mark.parametrize("name", NETWORKS)
def test_initial_weights_are_made_without_lapack(name: str) -> None:
    """Its kernels may wait for each other for ever on one or two cores."""
    grid = (16, 16) if name == "drift" else (32,)
    init = jax.jit(NETWORKS[name].make(FieldShape(1, grid, conditions=1)).init)
    assert "lapack" not in init.lower(jax.random.key(0)).as_text()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_half_precision_is_close_and_not_the_same(name: str) -> None:
    grid = (16, 16) if name == "drift" else (32,)
    net = NETWORKS[name].make(FieldShape(1, grid, conditions=1))
    half, again = lean(net, "bfloat16", False), lean(net, "float32", True)
    leaves, tree = jax.tree.flatten(net.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), len(leaves))  # the last layer begins at zero
    moved = [x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    params, u = jax.tree.unflatten(tree, moved), jax.random.normal(jax.random.key(2), (1, *grid))
    rest = jnp.zeros_like(u), FIRST_INDEX, jnp.ones(1)
    whole, low = (n.apply(params, u, *rest) for n in (net, half))
    assert low.dtype == whole.dtype == jnp.float32
    apart = float(jnp.abs(low - whole).max() / jnp.abs(whole).max())
    assert 0.0 < apart < 0.05, apart
    plain, same = (jax.tree.leaves(gradient_of(n, params, u)) for n in (net, again))
    for a, b in zip(plain, same, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(jnp.abs(a).max()))


@pytest.mark.parametrize("name", ["resnet", "unet", "convnext"])
def test_products_along_the_grid_are_in_half_precision(name: str) -> None:
    net = lean(NETWORKS[name].make(FieldShape(1, 48, conditions=1)), "bfloat16", False)
    params, u = net.init(jax.random.key(0)), jnp.ones((1, 48))
    traced = jax.make_jaxpr(net.apply)(params, u, u, FIRST_INDEX, jnp.ones(1))
    kinds = ("dot_general", "conv_general_dilated")
    does = [each for each in equations(traced.jaxpr) if each.primitive.name in kinds]
    operands = [x.aval for each in does for x in each.invars]
    large = [x for x in operands if {48, 24} & {*x.shape}]
    assert len(large) > 3 and {str(x.dtype) for x in large} == {"bfloat16"}


def test_half_precision_trains_and_is_saved_whole() -> None:
    half = trained(precision="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(half.params)} == {np.dtype(np.float32)}
    whole, low = (
        np.stack([record.metrics["loss"] for record in fitted.history.records])
        for fitted in (trained(), half)
    )
    np.testing.assert_allclose(low, whole, rtol=0.02)
    assert not np.array_equal(low, whole)


CUBE = """
import json, resource
import numpy as np
from jaxrl_rollouts import pde

u = np.random.default_rng(0).normal(size=(2, 4, 1, 64, 64, 64)).cumsum(1).astype(np.float32)
fields = pde.from_arrays(u, dt=0.1, boundaries="periodic")
settings = pde.Training(steps=10, batch=2, warmup=0, per_iteration=5, remat=True)
fitted = pde.fit("mse", fields, network=pde.Fno(width=32, modes=8), training=settings)
losses = [float(row.metrics["loss"][0]) for row in fitted.history.records]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in kB
print(json.dumps({"losses": losses, "gigabytes": peak * 1024 / 1e9}))
"""


@pytest.mark.slow
def test_ten_steps_on_64_cubed_points_take_less_than_8_gigabytes() -> None:
    found = on_devices(CUBE, 1, seconds=1800)
    assert found["losses"][1] < found["losses"][0] and found["gigabytes"] < 8.0

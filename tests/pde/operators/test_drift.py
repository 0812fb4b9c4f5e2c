"""The U-shaped network: symmetry, settings, training, saving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred, wrong

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.operators.drift import Drift, DriftNet, Mixup
from jaxrl_rollouts.pde.saved import load_emulator

MIXERS = ("drift", "attention", "fourier", "conv")
# XLA's own convolutions: their gradients compile in a tenth of the time.
SMALL = Drift(
    dims=(4, 8), depths=(2, 1), embedding=4, gate_hidden=5, window=4, head=2, position_hidden=5,
    modes=2, skips=1, form="conv",
)  # fmt: skip
N = 16


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_field_moved_by_whole_patches_gives_the_answer_moved(mixer: Any) -> None:
    """By the patches of the coarsest stage's token, and of a window where there are some."""
    net = replace(SMALL, mixer=mixer).make(FieldShape(1, (N, N)))
    params, u = stirred(net), jax.random.normal(jax.random.key(2), (1, N, N))
    zero = jnp.zeros_like(u)

    @jax.jit
    def said(field: jax.Array) -> jax.Array:
        return net.apply(params, field, zero, 3.0, jnp.zeros(0))

    by = 8 if mixer == "attention" else 4  # 2 points x window 4; 2 points x 2 tokens
    if mixer == "attention":  # the coarse stage is one window: positions in it are absolute there
        net = replace(SMALL, mixer=mixer, dims=(4,), depths=(2,)).make(FieldShape(1, (N, N)))
        params = stirred(net)
    expected = jnp.roll(said(u), (by, -by), (1, 2))
    np.testing.assert_allclose(said(jnp.roll(u, (by, -by), (1, 2))), expected, atol=2e-4)
    assert np.abs(said(u)).max() > 1e-2


@pytest.mark.parametrize(
    "mixer", ["drift", *(pytest.param(name, marks=pytest.mark.slow) for name in MIXERS[1:])]
)
def test_a_fresh_network_says_nothing_and_learns(mixer: Any) -> None:
    net = replace(SMALL, mixer=mixer).make(FieldShape(1, (N, N), conditions=1))
    u = jax.random.normal(jax.random.key(2), (1, N, N))

    @jax.jit
    def said(params: Any) -> jax.Array:
        return net.apply(params, u, jnp.zeros_like(u), 0.0, jnp.ones(1))

    assert not np.asarray(said(net.init(jax.random.key(0)))).any()

    @jax.jit
    @jax.value_and_grad
    def loss(params: Any) -> jax.Array:
        return jnp.square(said(params) - jnp.roll(u, 1, 1)).mean()

    params, losses = stirred(net), []
    for _ in range(21):  # the last one looks at what twenty updates have made
        value, gradient = loss(params)
        losses.append(float(value))
        params = jax.tree.map(lambda p, g: p - 0.02 * np.asarray(g), params, gradient)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_as_many_parameters_as_the_released_drift_net() -> None:
    """19,097,956 of size T, less what the released code makes and never differentiates.

    In each of 32 blocks a norm before the mixer and two cut frequencies; in each stage of the
    decoder a convolution and a linear map of the true field.
    """
    widths, channels, depth = (48, 96, 192, 384), 4, 4
    settings = Drift("drift", patch=4, dims=widths, depths=(depth,) * 4, skips=2, output_conv=True)
    net = DriftNet(settings, channels, ("zero", "zero"), lead=0.05)
    arguments = jnp.zeros((128, 128, channels)), jnp.zeros(()), jnp.zeros(0)
    params = jax.eval_shape(net.init, jax.random.key(0), *arguments)
    norms = 2 * depth * sum(2 * (width + width) for width in widths)
    cuts = 2 * depth * len(widths) * 2
    true_field = 2 * sum(channels * width + width for width in widths)
    found = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert found == 19_097_956 - norms - cuts - true_field


@pytest.mark.parametrize("mixer", ["drift", "conv"])
def test_both_forms_of_its_convolutions_agree(mixer: Any) -> None:
    config, u = replace(SMALL, mixer=mixer, output_conv=True), jnp.ones((1, N, N)).at[0, 3].set(2)
    params = stirred(config.make(FieldShape(1, (N, N))))
    one, other = (
        jax.jit(replace(config, form=form).make(FieldShape(1, (N, N))).apply)(
            params, u, jnp.zeros_like(u), 0.0, jnp.zeros(0)
        )
        for form in ("conv", "matmul")
    )
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert np.asarray(one).std() > 1e-2


def test_walls_are_seen() -> None:
    u = jax.random.normal(jax.random.key(2), (1, N, N))
    config = replace(SMALL, mixer="conv")
    nets = [
        config.make(FieldShape(1, (N, N))),
        config.make(FieldShape(1, (N, N), boundaries=("wall", "wall"))),
    ]
    params = stirred(nets[0])
    circle, wall = (
        jax.jit(net.apply)(params, u, jnp.zeros_like(u), 0.0, jnp.zeros(0)) for net in nets
    )
    assert np.abs(circle - wall).max() > 1e-3


def test_the_last_convolution_is_the_identity_at_first() -> None:
    x = jax.random.normal(jax.random.key(0), (8, 8, 3))
    for form in ("matmul", "conv"):
        module = Mixup(5, ("periodic", "periodic"), form)
        np.testing.assert_allclose(module.init_with_output(jax.random.key(0), x)[0], x, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "points", "setting"),
    [
        *(({}, points, "points") for points in (16, (16, 16, 16), (16, 18))),
        ({}, (8, 8), "dims"),
        *(
            (change, (16, 16), name)
            for change, name in wrong(
                dict(dims=(4, 12), depths=(1,), embedding=3, cut=1.5),
                dict(dims=(), mixer="mamba"),
            )
        ),
        *(({"mixer": "attention", k: v}, (16, 16), k) for k, v in (("head", 3), ("window", 3))),
        ({"mixer": "attention", "window": 6}, (16, 16), "window"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], points: Any, setting: str) -> None:
    with pytest.raises(ConfigError) as found:
        replace(SMALL, **changes).make(FieldShape(1, points))
    assert found.value.setting == setting


@pytest.mark.slow
def test_fitted_saved_and_read_again(tmp_path: Path) -> None:
    """Two seeds side by side roll, saved and read, as they did before."""
    u = np.random.default_rng(0).normal(size=(3, 4, N, N)).astype(np.float32)
    small = replace(SMALL, depths=(1, 1), skips=0)
    fitted = fit("mse", from_arrays(u, dt=0.1, axes=2), network=small, steps=2, seeds=2)
    before = fitted.roll(u[:, 0], 2, seed=1)
    after = load_emulator(fitted.save(tmp_path)).roll(u[:, :1], 2, seed=1)
    np.testing.assert_allclose(after, before, atol=1e-6)
    assert load_emulator(tmp_path).network == small

"""Windows that go on from clean rows: what is given stays, a wish is left out or moved along."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.diffusion import (
    FlowConfig,
    Unet,
    flow_of_denoiser,
    make_denoiser,
    make_flow,
)
from jaxrl_rollouts.diffusion.continued import Given, make_continued_unet
from jaxrl_rollouts.errors import ConfigError

B, L, H, C = 3, 6, 2, 4
UNET = Unet(features=8, blocks=1)
KEY = jax.random.key(0)
NET = make_continued_unet(UNET, L, H, C)


def weights() -> Any:
    """Nothing is zero, as after a training: the condition counts."""
    leaves, tree = jax.tree.flatten(NET.init(KEY))
    keys = jax.random.split(KEY, len(leaves))
    drawn = [x + 0.2 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, drawn)


WEIGHTS = weights()


def given(wish: float = 0.7, known: float = 1.0) -> Given:
    rows = jax.random.normal(jax.random.key(1), (B, H, C))
    return Given(rows, jnp.full(B, wish), jnp.full(B, known))


X = jax.random.normal(jax.random.key(2), (B, L - H, C))
NOISE = jnp.array([-1.0, 0.0, 0.7])


def test_a_wish_that_is_left_out_does_not_count() -> None:
    told, other = (NET.apply((WEIGHTS, given(w)), X, NOISE) for w in (0.7, -0.7))
    assert told.shape == (B, L - H, C) and np.abs(told - other).max() > 1e-3
    free, none = (NET.apply((WEIGHTS, given(w, 0.0)), X, NOISE) for w in (0.7, -0.7))
    np.testing.assert_array_equal(free, none)
    without = make_continued_unet(UNET, L, H, C, 0.0).apply((WEIGHTS, given()), X, NOISE)
    np.testing.assert_array_equal(without, free)


def test_guidance_moves_the_clean_row_along_the_difference_a_wish_makes() -> None:
    def clean(w: float) -> jax.Array:
        denoiser = make_denoiser(make_continued_unet(UNET, L, H, C, w))
        return denoiser.denoise((WEIGHTS, given()), 3.0 * X, jnp.array([0.3, 1.0, 3.0]))

    none, asked, beyond = (np.asarray(clean(w)) for w in (0.0, 1.0, 2.5))
    np.testing.assert_allclose(beyond, none + 2.5 * (asked - none), atol=2e-5)


def test_given_rows_are_seen_clean_at_every_noise() -> None:
    """The network's input there is the rows themselves, however the others are scaled."""
    seen = []
    network = NET._replace(
        apply=lambda params, x, c: seen.append(params[1].rows) or NET.apply(params, x, c)
    )
    own = given()
    for sigma in (0.01, 80.0):
        make_denoiser(network).denoise((WEIGHTS, own), X, jnp.float32(sigma))
    for rows in seen:
        np.testing.assert_array_equal(rows, own.rows)
    moved = own._replace(rows=own.rows.at[:, 0].add(1.0))
    far = [
        make_denoiser(NET).denoise((WEIGHTS, g), 80.0 * X, jnp.float32(80.0)) for g in (own, moved)
    ]
    assert np.abs(far[0] - far[1]).max() > 1e-3  # in the greatest noise they still count


def test_a_flow_of_the_same_weights_begins_as_its_denoiser() -> None:
    teacher = flow_of_denoiser(make_denoiser(NET))
    flow = make_flow(NET, FlowConfig(loss="consistency", segments=1, steps=8), teacher)
    t = jnp.array([0.2, 0.5, 0.9])
    params = WEIGHTS, given()
    velocities = [f.average(params, X, t, t) for f in (flow, teacher)]
    np.testing.assert_allclose(*velocities, atol=1e-4)
    loss = flow.loss(params, KEY, X, teacher=params)
    assert np.isfinite(loss) and loss > 0


@pytest.mark.parametrize(
    ("sizes", "setting"), [((4, 0), "given"), ((4, 4), "given"), ((1, 1), "given")]
)
def test_sizes_are_checked(sizes: tuple[int, int], setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: found"):
        make_continued_unet(UNET, *sizes, C)
    with pytest.raises(ConfigError, match="length: found 5"):
        make_continued_unet(Unet(features=8, blocks=4), 3, 1, C)
    with pytest.raises(ValueError, match="windows: found"):
        NET.apply((WEIGHTS, given()), X[:, :-1], NOISE)

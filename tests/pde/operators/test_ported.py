"""PDEArena's U-Net with random weights, by its names, says what ours says with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_pdearena import NumpyUnet

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.operators import Unet, unet_from_pdearena

TIME, CONDITIONS = 250.0, (4.5, 6.25)
SMALL = Unet(hidden=8, multipliers=(1, 2), blocks=1, zero_upsampling=True)
DEEP = Unet(hidden=8, multipliers=(1, 2, 2), zero_upsampling=True)


def numpy_unet(config: Unet, **how: Any) -> NumpyUnet:
    return NumpyUnet(config.hidden, config.multipliers, config.blocks, **how)


def away(said: Any, expected: np.ndarray) -> float:
    """The largest difference, of the largest value."""
    assert np.shape(said) == expected.shape
    return np.abs(np.asarray(said) - expected).max() / np.abs(expected).max()


def difference(
    theirs: NumpyUnet,
    config: Unet,
    points: tuple[int, ...],
    conditions: int,
    history: int = 1,
    boundaries: tuple[str, ...] = (),
) -> float:
    """How far ours is away in double precision; only the sines of the embedding are in single."""
    x = np.random.default_rng(1).normal(size=((history + 1) * theirs.channels, *points))
    given = CONDITIONS[:conditions]
    expected = theirs(x, TIME, given)
    shape = FieldShape(theirs.channels, points, conditions, history, boundaries)
    net, params = config.make(shape), unet_from_pdearena(theirs.state, config, shape)
    seen = x[: -theirs.channels], x[-theirs.channels :], np.array(given)
    with jax.enable_x64(True):
        params, *seen = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), (params, *seen))
        said = net.apply(params, *seen[:2], TIME, seen[2])
        assert said.dtype == np.float64
    return away(said, expected)


def test_a_ported_checkpoint_says_the_same() -> None:
    assert difference(numpy_unet(DEEP), DEEP, (32,), 2) < 1e-7


def test_in_the_plane_with_a_history() -> None:
    """Of two channels; the only condition's embedding has the name of PDEArena's 2-D file."""
    assert difference(numpy_unet(SMALL, channels=2, single=True), SMALL, (8, 12), 1, 2) < 1e-7


def test_zeros_everywhere_are_walls() -> None:
    """PDEArena's default padding. At walls our up-sampling has zeros without the option."""
    config = Unet(hidden=8, multipliers=(1, 2), blocks=1)
    theirs = numpy_unet(config, circular=False)
    assert difference(theirs, config, (8, 12), 0, boundaries=("wall", "wall")) < 1e-7


def test_without_zero_upsampling_it_is_another_network() -> None:
    config = Unet(hidden=8, multipliers=(1, 2), blocks=1)
    assert difference(numpy_unet(config), config, (16,), 2) > 0.01


def state(config: Unet = SMALL, conditions: int = 2) -> dict[str, np.ndarray]:
    theirs = numpy_unet(config)
    theirs(np.zeros((2, 16)), TIME, CONDITIONS[:conditions])
    return theirs.state


def test_every_array_has_its_place() -> None:
    """The published model's names and size: 280 arrays; each number is there once."""
    given = state(Unet(hidden=8))
    assert len(given) == 280 and "up.14.res.shortcut.bias" in given
    params = unet_from_pdearena(given, Unet(hidden=8), FieldShape(1, 16, 2))
    ours, theirs = (
        np.sort(np.concatenate([np.ravel(x) for x in arrays]))
        for arrays in (jax.tree.leaves(params), given.values())
    )
    np.testing.assert_array_equal(ours, theirs)


def test_lightnings_prefix_and_what_else_is_in_its_file() -> None:
    given = state()
    file = {f"model.{name}": values for name, values in given.items()} | {"loss.weight": np.ones(1)}
    params = unet_from_pdearena(file, SMALL, FieldShape(1, 16, 2), prefix="model.")
    same = unet_from_pdearena(given, SMALL, FieldShape(1, 16, 2))
    jax.tree.map(np.testing.assert_array_equal, params, same)


def test_what_does_not_fit_is_named() -> None:
    given = state()

    def port(names: dict[str, Any], config: Unet = SMALL, conditions: int = 2) -> None:
        unet_from_pdearena(names, config, FieldShape(1, 16, conditions))

    without = {name: values for name, values in given.items() if "middle.res1.conv" not in name}
    with pytest.raises(DataError, match=r"middle.res1.conv1.weight, .* and 1 more: found nothing"):
        port(without)
    with pytest.raises(DataError, match=r"middle.attn.norm.weight: found 1 arrays left over"):
        port(given | {"middle.attn.norm.weight": np.ones(16)})
    with pytest.raises(DataError, match=r"pde_emb.1.0.weight, .* and 1 more: found 4 arrays left"):
        port(given, conditions=1)
    adaptive = given | {"down.0.res.cond_emb.weight": np.ones((16, 32))}
    with pytest.raises(DataError, match=r"cond_emb.weight: found \[16, 32\], expected \[8, 32\]"):
        port(adaptive)
    narrow = given | {"up.0.res.shortcut.weight": np.ones((16, 32))}
    with pytest.raises(DataError, match=r"found \[16, 32\], expected \[16, 32, 1\]; hidden, mult"):
        port(narrow)
    with pytest.raises(DataError, match="and 131 more: found nothing, expected 218 arrays"):
        port(given, DEEP)

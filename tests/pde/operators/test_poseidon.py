"""scOT with weights in Poseidon's layout, against a transcription of the authors' code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers_scot import Sizes, block, forward, shapes, weights

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import CheckpointError, ConfigError
from jaxrl_rollouts.pde.files import from_arrays

safetensors = pytest.importorskip("safetensors.numpy")
SIZES = Sizes()
N = 32  # 8 x 8 tokens in the first stage, two windows along each axis; one window in the second


def saved(folder: Path, sizes: Sizes = SIZES, **others: np.ndarray | None) -> Path:
    arrays = {name.replace("__", "."): value for name, value in others.items()}
    state = {k: v for k, v in (weights(sizes) | arrays).items() if v is not None}
    safetensors.save_file(state, folder / "model.safetensors")
    return folder / "model.safetensors"


def fields(channels: int, **kwargs: Any) -> Any:
    u = np.random.default_rng(1).normal(size=(3, 4, channels, N, N)).cumsum(1)
    return from_arrays(u, dt=0.1, dx=1 / N, boundaries="periodic", **kwargs)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        (pde.Poseidon(), 20_774_444),
        (pde.Poseidon(width=96, depths=(8, 8, 8, 8)), 157_729_988),
        (pde.Poseidon(width=192, depths=(8, 8, 8, 8)), 628_575_524),
    ],
)
def test_as_many_parameters_as_published(sizes: pde.Poseidon, count: int) -> None:
    """20.8, 157.7 and 628.6 million (T, B, L); the exact numbers are of the layout's shapes."""
    net = sizes.make(pde.FieldShape(4, (128, 128)))
    leaves = jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0)))
    layout = shapes(Sizes(4, sizes.width, sizes.depths, 3, 16, 4, 2))
    assert sum(leaf.size for leaf in leaves) == sum(map(np.prod, layout.values())) == count


def test_the_released_prediction_of_a_rolled_field(tmp_path: Path) -> None:
    """In the fields' units, boundaries periodic or not: the network pads with zeros."""
    data = fields(3)
    own = pde.load_poseidon(saved(tmp_path), data, lead=0.3, window=4)
    scale: Any = own.scale
    assert own.network == pde.Poseidon(6, (2, 2), 3, 4, lead=0.3, residual_scale=scale)
    start = data.array()[:2, 0]
    units = np.array(own.units).T[..., None, None]
    expected, rolled = start, own.roll(start, 2)
    for found in rolled:
        given = (expected - units[0]) * units[1]
        said = np.stack([forward(weights(SIZES), SIZES, one, 0.3) for one in given])
        expected = said / units[1] + units[0]
        np.testing.assert_allclose(found, expected, atol=2e-3, rtol=2e-3)
    assert np.abs(rolled[1] - rolled[0]).max() > 0.1


def test_without_fields_it_is_of_the_pretrainings_fluids(tmp_path: Path) -> None:
    """128 x 128, the authors' means and deviations of density, velocity and pressure."""
    sizes = Sizes(4, 6, (2, 1), 3, 16, 4, 1)
    own = pde.load_poseidon(saved(tmp_path, sizes), lead=0.7)
    u = np.random.default_rng(3).normal(size=(4, 128, 128))
    mean = np.array([0.8, 0.0, 0.0, 0.0])[:, None, None]
    deviation = np.array([0.31, 0.391, 0.356, 0.185])[:, None, None]
    expected = forward(weights(sizes), sizes, (u - mean) / deviation, 0.7) * deviation + mean
    np.testing.assert_allclose(own.roll(u, 1)[0], expected, atol=2e-3, rtol=2e-3)
    assert own.names == ("density", "velocity_x", "velocity_y", "pressure")


def test_a_shifted_block_hides_what_came_from_the_other_end() -> None:
    """The transcription itself: beyond a window's reach nothing is seen."""
    w = {name: value.astype(np.float64) for name, value in weights(SIZES).items()}
    x = np.random.default_rng(2).normal(size=(8, 8, 6))
    moved = x.copy()
    moved[-1] += 1.0
    name = "encoder.layers.0.blocks.1"
    said, other = (block(w, name, y, 0.3, 3, 4, True) for y in (x, moved))
    np.testing.assert_allclose(said[:6], other[:6])
    assert np.abs(said[6:] - other[6:]).min(-1).max() > 1e-3


def test_what_was_loaded_is_where_a_training_begins(tmp_path: Path) -> None:
    data = fields(3)
    own = pde.load_poseidon(saved(tmp_path), data, window=4, seeds=2)
    training = pde.Training(steps=1, batch=2, lr=1e-9, final_lr=1e-9, warmup=0, per_iteration=1)
    fitted = pde.fit("mse", data, network=own.network, start=own.params, seeds=2, training=training)
    np.testing.assert_allclose(fitted.roll(data, 1, seed=1), own.roll(data, 1), atol=1e-3)


def test_other_channels_get_new_ends(tmp_path: Path) -> None:
    """As of the authors' `--replace_embedding_recovery`: what is between them is of the file."""
    path = saved(tmp_path)
    one, three = (pde.load_poseidon(path, fields(c), window=4).params["scot"] for c in (1, 3))
    assert one["embed"]["kernel"].shape[1:] == (16, 6)
    np.testing.assert_array_equal(one["merge_0"]["kernel"], three["merge_0"]["kernel"])
    assert not np.asarray(one["recover"]["kernel"]).any()


def test_a_condition_begins_without_an_effect(tmp_path: Path) -> None:
    path, plain = saved(tmp_path), fields(3)
    told = plain._replace(parameters={"viscosity": np.array([0.1, 0.2, 0.3])})
    own = pde.load_poseidon(path, told, window=4)
    assert "viscosity" in own.conditions
    same = pde.load_poseidon(path, plain, window=4)
    np.testing.assert_allclose(own.roll(told, 1), same.roll(plain, 1), atol=1e-4)


def test_files_of_other_things(tmp_path: Path) -> None:
    data = fields(3)
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"weight": np.zeros(3, np.float32)}, path)
    with pytest.raises(CheckpointError, match=r"found weight, expected embeddings\.patch"):
        pde.load_poseidon(path, data)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="expected safetensors"):
        pde.load_poseidon(path, data)
    lost: dict[str, Any] = {"decoder__layers__1__blocks__0__output__dense__bias": None}
    with pytest.raises(CheckpointError, match=r"found no decoder\.layers\.1\.blocks\.0\.output"):
        pde.load_poseidon(saved(tmp_path, **lost), data, window=4)
    other: dict[str, Any] = {"patch_recovery__projection__bias": np.zeros(2, np.float32)}
    with pytest.raises(CheckpointError, match=r"found \[2\], expected scot/bias of \[3\]"):
        pde.load_poseidon(saved(tmp_path, **other), data, window=4)
    with pytest.raises(ConfigError, match="constant channels"):
        pde.load_poseidon(saved(tmp_path), data._replace(constant=(1,)), window=4)
    with pytest.raises(ConfigError, match="residual_scale: found"):
        pde.Poseidon(residual_scale=(1.0, 2.0)).make(pde.FieldShape(3, (128, 128)))

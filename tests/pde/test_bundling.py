"""Several frames from one call: which targets, which frames of a rollout, and one is as before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.emulator import FieldNetwork
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.objectives import Mse

N, SCALE = 8, 0.5
NETWORKS: list[Any] = [
    pde.Resnet(width=4, blocks=1, dilations=(1,), embedding=4),
    pde.Fno(width=4, layers=2, modes=4, embedding=4),
    pde.Unet(hidden=8, multipliers=(1, 2), blocks=1),
    pde.ConvNext(width=4, stages=2),
]
KEY, NONE = jax.random.key(0), jnp.zeros((0,))


def growing(bundle: int, history: int = 1) -> FieldNetwork:
    """Predicts `j (w u_newest + v u_oldest)` for frame j."""

    def apply(params: Any, u: Any, second: Any, index: Any, conditions: Any) -> jax.Array:
        change = params["w"] * u[-1:] + params["v"] * u[:1]
        return jnp.concatenate([j * change for j in range(1, bundle + 1)])

    start = {"w": jnp.float32(0.4), "v": jnp.float32(0.0 if history == 1 else 0.2)}
    return FieldNetwork(lambda key: start, apply, history)


def windows(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).normal(size=(frames, 1, N)).astype(np.float32)


def test_the_targets_are_changes_from_the_newest_frame() -> None:
    net, w = growing(3), windows(4)
    value, metrics = Mse(bundle=3).make(net, SCALE).loss(net.init(KEY), KEY, w, NONE)
    errors = [np.square(0.4 * j * w[0] - (w[j] - w[0]) / SCALE).mean() for j in (1, 2, 3)]
    assert float(value) == pytest.approx(np.mean(errors), rel=1e-5)
    assert float(metrics["loss_last"]) == pytest.approx(errors[2], rel=1e-5)


@pytest.mark.parametrize("history", [1, 2, 4])
def test_a_rollout_has_every_frame_once(history: int) -> None:
    net, w = growing(3, history), windows(history)
    emulator, params = Mse(bundle=3).make(net, SCALE), net.init(KEY)
    assert (emulator.frames, emulator.bundle) == (history + 3, 3)
    start = jnp.asarray(w).reshape(1, -1, N)
    rolled = roll_emulator(emulator, params, start, jnp.zeros((1, 0)), KEY, 7)
    frames, v = [x[0] for x in w], 0.0 if history == 1 else 0.2
    while len(frames) < history + 7:
        newest, oldest = frames[-1], frames[-history]
        frames += [newest + SCALE * j * (0.4 * newest + v * oldest) for j in (1, 2, 3)]
    expected = np.stack(frames[history : history + 7])[:, None, None]
    assert rolled.shape == (7, 1, 1, N)
    np.testing.assert_allclose(rolled, expected, rtol=1e-4)


def test_two_channels_keep_their_scales_and_places() -> None:
    def apply(params: Any, u: Any, second: Any, index: Any, conditions: Any) -> jax.Array:
        return jnp.stack([jnp.full(N, x) for x in (1.0, 10.0, 2.0, 20.0)])

    net = FieldNetwork(lambda key: (), apply)
    emulator = Mse(bundle=2).make(net, (0.5, 0.1))
    rolled = roll_emulator(emulator, (), jnp.zeros((3, 2, N)), jnp.zeros((3, 0)), KEY, 3)
    np.testing.assert_allclose(rolled[:, 0, :, 0], [[0.5, 1.0], [1.0, 2.0], [1.5, 3.0]], rtol=1e-6)


def test_one_frame_is_the_objective_without() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(4, 6, 1, 16)).cumsum(1).astype(np.float32)
    one, same = (
        pde.fit(objective, pde.from_arrays(u), network=NETWORKS[0], steps=3, key=1)
        for objective in ("mse", Mse(bundle=1))
    )
    for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(same.params), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: type(network).__name__)
def test_it_trains_is_saved_and_rolls(network: Any, tmp_path: Any) -> None:
    """A wave that moves on by a point per frame, with a channel that is constant in time."""
    rng = np.random.default_rng(1)
    first = np.sin(2 * np.pi * (np.arange(32) / 32 + rng.uniform(size=(6, 1))))
    u = np.stack([np.roll(first, t, -1) for t in range(9)], 1)[:, :, None]
    mask = np.broadcast_to(rng.normal(size=(6, 1, 1, 32)).astype(np.float32), u.shape)
    fields = pde.from_arrays(np.concatenate([u, mask], 2).astype(np.float32), names=["u", "mask"])
    fields = fields._replace(constant=(1,))
    fitted = pde.fit(
        Mse(bundle=4), fields, network=network, steps=2, seeds=2, validation=fields, evaluations=1
    )
    rolled = fitted.roll(fields, 6)
    assert rolled.shape == (6, 6, 2, 32)
    np.testing.assert_array_equal(rolled[:, :, 1], np.broadcast_to(mask[:, 0, 0], (6, 6, 32)))
    again = pde.load_emulator(fitted.save(tmp_path / "e"))
    np.testing.assert_array_equal(again.roll(fields, 6), rolled)


def test_a_bundle_has_frames() -> None:
    with pytest.raises(ConfigError, match="bundle"):
        Mse(bundle=0).make(growing(1), SCALE)

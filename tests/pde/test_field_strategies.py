"""Strategies of emulators: which are temporal bundling, what a block reads, and rectifiers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.pde.strategies import Head, fit_strategy, windows
from jaxrl_rollouts.strategies import Strategy, forecast

H, X = 4, 16
NETWORK = pde.Resnet(width=8, blocks=1, dilations=(1, 2), embedding=4)


def training(steps: int) -> pde.Training:
    return pde.Training(steps=steps, batch=8, warmup=2, lr=1e-2, per_iteration=steps)


def waves(frames: int = 7) -> pde.FieldSet:  # type: ignore[name-defined]
    """Two channels: a wave of a random phase that moves on by a point per frame, and another."""
    rng = np.random.default_rng(1)
    first = np.sin(2 * np.pi * (np.arange(X) / X + rng.uniform(size=(24, 2, 1))))
    u = np.stack([np.roll(first, t, -1) for t in range(frames)], 1)
    return pde.from_arrays(u.astype(np.float32), dx=1.0, axes=1)


def made(kind: Any, block: int, steps: int = 3) -> tuple[jnp.ndarray, tuple[Head, ...], Any]:
    fields, strategy = windows(waves(), H), Strategy(kind, block, H)
    heads = fit_strategy(strategy, fields, network=NETWORK, training=training(steps), key=2)
    return forecast(strategy, heads, jnp.asarray(fields.array()[:, 0])), heads, fields


def test_a_forced_axis_stays_where_it_is() -> None:
    made = windows(waves()._replace(equation="kolmogorov_2d"), H)
    assert made.equation == "kolmogorov_2d"


def test_windows_are_pieces_of_trajectories() -> None:
    u, cut = waves().array(), windows(waves(), H, every=2)
    assert cut.shape == (48, H + 1, 2, X)
    np.testing.assert_array_equal(cut.array()[24:], u[:, 2:7])
    np.testing.assert_allclose(cut.extent, X)


@pytest.mark.parametrize("block", [1, 2])
def test_a_recursion_of_blocks_is_the_rollout_of_a_bundle(block: int) -> None:
    found, (head,), fields = made("rec", block)
    assert head.emulator.emulator.bundle == block
    rolled = head.emulator.roll(fields.array()[:, 0], H)
    assert float(jnp.abs(found - fields.array()[:, 0]).max()) > 1e-3
    np.testing.assert_allclose(found, rolled, rtol=1e-4, atol=1e-5)


def test_of_one_block_all_are_the_same_and_a_bundle_of_the_horizon() -> None:
    rec, dir, dirrec = (made(kind, H)[0] for kind in ("rec", "dir", "dirrec"))
    np.testing.assert_array_equal(rec, dir)
    np.testing.assert_array_equal(rec, dirrec)
    fields = windows(waves(), H)
    more: dict[str, Any] = {"network": NETWORK, "training": training(3), "conditions": ()}
    key = jax.random.fold_in(jax.random.key(2), 0)
    same = pde.fit(pde.Mse(bundle=H), fields, key=key, **more)
    # Changes are taken from the newest frame and added again, which rounds.
    np.testing.assert_allclose(rec, same.roll(fields.array()[:, 0], H), atol=1e-3)


def test_a_direct_network_reads_the_first_field_and_a_dirrec_all_before() -> None:
    assert [head.emulator.history for head in made("dir", 2)[1]] == [1, 1]
    assert [head.emulator.history for head in made("dirrec", 2)[1]] == [1, 3]


@pytest.mark.parametrize("kind", ["dir", "dirrec"])
def test_every_block_is_learned(kind: Any) -> None:
    found, heads, fields = made(kind, 2, steps=150)
    truth = np.moveaxis(fields.array(), 1, 0)
    still = np.square(truth[1:] - truth[0]).mean((1, 2, 3))
    assert len(heads) == 2
    assert (np.square(np.asarray(found) - truth[1:]).mean((1, 2, 3)) < 0.2 * still).all()


def test_a_rectifier_mends_a_base_that_drifts() -> None:
    fields, strategy = windows(waves(), H), Strategy("rectifier", 2, H)
    truth = jnp.moveaxis(jnp.asarray(fields.array()), 1, 0)
    drift = 0.5 * jnp.arange(1, H + 1, dtype=jnp.float32)[:, None, None, None]
    more: dict[str, Any] = {"network": NETWORK, "training": training(100)}
    heads = fit_strategy(strategy, fields, base=truth[1:] + drift, **more)
    assert [head.emulator.history for head in heads] == [3, 5]
    found = forecast(strategy, heads, truth[0], base=truth[1:] + drift)
    gap = np.asarray(jnp.abs(found - truth[1:]).mean((1, 2, 3)))
    assert (gap < 0.2 * np.asarray(drift)[:, 0, 0, 0]).all()


def test_refused() -> None:
    fields = windows(waves(), H)
    with pytest.raises(ConfigError, match="windows: found 4, expected 2 steps"):
        fit_strategy(Strategy("dir", 1, 2), fields)
    with pytest.raises(ConfigError, match="base: found 'none'"):
        fit_strategy(Strategy("rectifier", 2, H), fields)

"""What lies beyond a wall decides what is learnt beside it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.operators.layers import PeriodicConv, paddings

ROWS, COLUMNS, RIM, FLOW = 16, 8, 2, 0.15
NETWORKS = {
    "resnet": pde.Resnet(width=8, blocks=1, dilations=(1, 1), embedding=4),
    "unet": pde.Unet(hidden=8, multipliers=(1, 2), blocks=1),
    "fno": pde.Fno(width=8, layers=2, modes=4, embedding=4),
}


def between_walls(count: int, frames: int = 5, seed: int = 0) -> np.ndarray:
    """Heat on a grid between two cold walls and around a circle, `[N, T, X, Y]`, in closed form.

    `u = sum a sin(p x) cos(q y + phase) (1 - 0.15 (4 - 2 cos p - 2 cos q))^t`: each point gives
    0.15 of the difference to its four neighbours. Waves `p = pi j / (X + 1)` are zero one point
    beyond the first and the last row.
    """
    rng = np.random.default_rng(seed)
    x, y = np.arange(1, ROWS + 1)[:, None], np.arange(COLUMNS)[None]
    u = np.zeros((count, frames, ROWS, COLUMNS))
    for j in range(1, 6):
        for m in range(3):
            p, q = np.pi * j / (ROWS + 1), 2 * np.pi * m / COLUMNS
            size, phase = rng.normal(size=count), rng.uniform(0, 2 * np.pi, count)
            wave = np.sin(p * x) * np.cos(q * y + phase[:, None, None])
            factor = 1 - FLOW * (4 - 2 * np.cos(p) - 2 * np.cos(q))
            u += (
                np.multiply.outer(size, factor ** np.arange(frames))[..., None, None]
                * wave[:, None]
            )
    return u


def test_one_convolution_is_the_step_if_it_knows_the_walls() -> None:
    """Exact with zeros beyond them; joined at the ends it is wrong in the outermost rows only."""
    before, after = between_walls(4, 2).swapaxes(0, 1)
    stencil = np.zeros((3, 3))
    stencil[1, :] = stencil[:, 1] = FLOW
    stencil[1, 1] = 1 - 4 * FLOW
    params = {"params": {"kernel": jnp.asarray(stencil[..., None, None]), "bias": jnp.zeros(1)}}

    def wrong(kind: str) -> np.ndarray:
        layer = PeriodicConv(1, padding=paddings((kind, "periodic"), 2))
        out = np.asarray(layer.apply(params, jnp.asarray(before[..., None])))[..., 0]
        return np.abs(out - after).max((0, 2))  # row by row

    assert wrong("wall").max() < 1e-5
    joined = wrong("periodic")
    assert min(joined[0], joined[-1]) > 0.01 and joined[1:-1].max() < 1e-5


@pytest.mark.slow  # `test_boundaries` asks it of one network, `test_axes` of layers
@pytest.mark.parametrize("name", NETWORKS)
def test_fields_with_walls_do_not_leak_around_the_edge(name: str) -> None:
    """In two rows beside each wall the error is a third larger where the network joins the ends.

    Only what lies beyond the ends differs: windows are never moved.
    """
    u, test = between_walls(64), between_walls(64, 2, seed=1)
    training = pde.Training(batch=16, lr=3e-3, random_shift=False)

    def errors(kind: str) -> np.ndarray:
        fields = from_arrays(u, axes=2, boundaries=(kind, "periodic"))
        fitted = fit("mse", fields, network=NETWORKS[name], steps=400, training=training)
        wrong = np.square(fitted.roll(test[:, 0], 1)[0, :, 0] - test[:, 1]).mean((0, 2))
        rim = np.concatenate([wrong[:RIM], wrong[-RIM:]])
        return np.sqrt(np.array([rim.mean(), wrong[2 * RIM : -2 * RIM].mean()]))

    rim, inside = errors("periodic") / errors("wall")
    assert rim >= 1.3 and rim > inside, (rim, inside)

"""What tests of several rooms are made of: rows of episodes, fields that move, small networks.

Imported as `from fixtures import rows`. Nothing of the library is loaded before it is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxrl_rollouts.pde.generate import Solved
    from jaxrl_rollouts.pde.operators import Resnet


def wrong(*several: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every setting alone with its wrong value, and its name: cases of a parametrised test."""
    return [({name: value}, name) for one in several for name, value in one.items()]


class StopAt:
    """A stop flag that is raised when it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def on_devices(script: str, count: int, seconds: float) -> dict[str, Any]:
    """What a script prints last, as JSON, in a process whose CPU is so many devices."""
    flags = f"--xla_force_host_platform_device_count={count}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SMOKE = ("--preset", "smoke", "--no-progress")


def smoke(experiment: str, out: Path, *words: str) -> Path:
    """The folder of a run of an experiment at smoke size, which begins in `out`."""
    from jaxrl_rollouts.cli import main as cli

    cli.dispatch(["run", experiment, *SMOKE, *words, "--out", str(out)])
    (folder,) = out.iterdir()
    return folder


def claimed(add: Callable[..., Any], *given: Any) -> list[Any]:
    """The claims that `add(report, *given)` makes."""
    made: list[Any] = []
    add(SimpleNamespace(claim=lambda claim: made.append(claim) or claim), *given)
    return made


def waves(
    count: int = 24,
    frames: int = 8,
    grid: tuple[int, ...] = (16,),
    speed: float = 1.0,
    modes: tuple[int, int] = (1, 2),
    ways: bool = False,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Plane waves that move `speed` points a frame along every axis: `[count, frames, *grid]`.

    Args:
        count, frames, grid: sizes; all axes are circles.
        speed: points a frame.
        modes: the least and the greatest number of waves along an axis.
        ways: some move back.
        seed: of waves and phases, which do not depend on `frames`.

    Returns:
        The fields, and the way of each: 1 or -1, `[count]`.
    """
    rng = np.random.default_rng(seed)
    way = rng.choice([-1.0, 1.0], count) if ways else np.ones(count)
    phase = rng.uniform(0, 6, (count, 1, *(1,) * len(grid)))
    turn = phase + np.zeros((count, frames, *grid))
    moved = speed * np.multiply.outer(way, np.arange(frames))
    for axis, points in enumerate(grid):
        mode = rng.integers(modes[0], modes[1] + 1, phase.shape)
        x = np.arange(points).reshape(-1, *(1,) * (len(grid) - axis - 1))
        turn += 2 * np.pi * mode * (x - moved.reshape(count, frames, *(1,) * len(grid))) / points
    return np.sin(turn), way


def two_units(wave: np.ndarray) -> np.ndarray:
    """Channels of 300 and of 0.01 units out of one wave: `[N, T, 2, *X]`."""
    return np.stack([300 + 50 * wave, 0.01 * wave], 2)


def solved(shape: tuple[int, ...], seed: int = 0, *, vary: bool = True) -> Solved:
    """Random fields `shape` and, one per row, extents, frame times and parameters."""
    from jaxrl_rollouts.pde.generate import Solved

    rng = np.random.default_rng(seed)
    columns = [rng.uniform(0.5, 1.5, shape[0]) for _ in range(3)]
    if not vary:
        columns = [np.full(shape[0], x) for x in (2.0, 0.25, 0.75)]
    return Solved(rng.normal(size=shape), *columns)


def joined(chunks: Any) -> Solved:
    """Chunks of solved fields as one."""
    from jaxrl_rollouts.pde.generate import Solved

    return Solved(*(np.concatenate(column) for column in zip(*chunks, strict=True)))


def tiny(width: int = 4, dilations: tuple[int, ...] = (1,)) -> Resnet:
    """The smallest network of fields that compiles quickly and learns something."""
    from jaxrl_rollouts.pde.operators import Resnet

    return Resnet(width=width, blocks=1, dilations=dilations, embedding=4)


def stirred(net: Any, size: float = 0.4) -> Any:
    """Weights of a network's shapes, none of them zero; `init` would have to be compiled."""
    import jax

    random, shapes = np.random.default_rng(1), jax.eval_shape(net.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: np.float32(size * random.normal(size=leaf.shape)), shapes)

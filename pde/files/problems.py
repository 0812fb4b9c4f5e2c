"""Sets of fields by name, made from their seed where they are first read.

    fields = pde.read("ks22")                        # or: jaxrl-rollouts pde train ks22

They are kept in the user's cache; `$JAXRL_ROLLOUTS_FIELDS` names another folder. The suite `fields`
of `bench` is built on them: their last third are test trajectories.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_rollouts.feeds import cache_folder
from jaxrl_rollouts.record.files import replacing

from ..fieldset import FieldSet
from ..generate_settings import Simulation
from .arrays import read_arrays

TAU = 2 * math.pi


class Problem(NamedTuple):
    """A set by name.

    Attributes:
        sha256: first 16 digits of the sha256 of `u`, as it was first made.
        make: the arrays of its file, as of `read_arrays`.
        equation: its name in `equations`; "" for others.
    """

    sha256: str
    make: Callable[[], Mapping[str, Any]]
    equation: str = ""


def _solved(sha256: str, equation: str, **settings: Any) -> Problem:
    """A problem of one of the equations."""

    def make() -> dict[str, Any]:
        from ..equations import equation as find
        from ..generate import generate

        config, which = Simulation(equation, seed=67, **settings), find(equation)
        parts = list(generate(config))
        solved = tuple(np.concatenate(x) for x in zip(*parts, strict=True))
        kept = varying(solved[0], which.axes)
        fields, extent, dt, values = (x[kept] for x in solved)
        low, high = config.parameter_range
        return {
            "u": fields.astype(np.float32),
            "dt": dt,
            "dx": np.repeat(extent[:, None] / config.points, which.axes, 1),
            "axes": which.axes,
            "boundaries": "periodic",
            "channels": list(which.channels),
            which.parameter: values if low < high else low,
        }

    return Problem(sha256, make, equation)


def varying(fields: np.ndarray, axes: int) -> np.ndarray:
    """Which trajectories of `[N, T, C, *space]` still vary over space in their last frame.

    An error over the variance of a field that has become uniform (a Gray-Scott pattern that died)
    would be all that is left of a mean over trajectories.
    """
    spread = fields[:, -1].std(tuple(range(-axes, 0))).max(-1)
    return spread > 1e-3 * fields.std()


def _acoustic() -> dict[str, Any]:
    from ..acoustics import acoustic

    names = ["pressure", "velocity_x", "velocity_y", "speed_of_sound"]
    u = acoustic(48, 32, 33, seed=67)
    return {"u": u, "dt": 0.05, "dx": 2 / 32, "axes": 2, "boundaries": "wall", "channels": names}


_LINE = {"trajectories": 192, "substeps": 8}
# flows are solved on 64 x 64: their fine waves are needed by the flow, not by a comparison
_PLANE = {"trajectories": 48, "frames": 33, "points": 32}
_KS = {**_LINE, "dt": (0.8, 0.8)}
PROBLEMS: dict[str, Problem] = {
    # Kuramoto-Sivashinsky on its attractor
    "ks22": _solved(
        "46b12dbe90718217", "ks", **_KS, points=64, extent=(22.0, 22.0), burn_in=100, frames=141
    ),
    "ks64": _solved(
        "e13ee9670979520b", "ks", **_KS, points=128, extent=(64.0, 64.0), burn_in=200, frames=101
    ),
    # emulators see the diffusivity
    "burgers": _solved(
        "6d9ecd8176ab0e34",
        "burgers",
        **_LINE,
        points=128,
        oversampling=2,
        extent=(TAU, TAU),
        dt=(0.1, 0.1),
        parameter_range=(0.05, 0.3),
        frames=51,
        burn_in=0,
    ),
    "kolmogorov": _solved("77fb92388222f676", "kolmogorov_2d", **_PLANE, oversampling=2),
    "decaying": _solved("25fe58cd86266cfa", "navier_stokes_2d", **_PLANE, oversampling=2),
    # emulators see the feed
    "gray_scott": _solved(
        "21a16b4fb2cde979",
        "gray_scott_2d",
        **_PLANE,
        extent=(0.5, 0.5),
        parameter_range=(0.03, 0.045),
    ),
    # walls, obstacles
    "acoustic": Problem("ca9a50d7729e932b", _acoustic),
}


def file_of(name: str) -> Path:
    """Where a problem's file is, or would be."""
    return cache_folder("fields") / f"{name}.npz"


def read_problem(name: str) -> FieldSet:
    """A set of `PROBLEMS`, made where it is not in the cache yet.

    Warns where its numbers are not those that it was published with: another processor rounds
    otherwise, and a chaotic flow amplifies that. Compare only results of the same numbers.
    """
    problem, path = PROBLEMS[name], file_of(name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, "wb") as file:
            np.savez_compressed(file, **problem.make())  # type: ignore[arg-type]
    fields = read_arrays(path)._replace(equation=problem.equation)
    found = digest(fields)
    if found != problem.sha256:
        warnings.warn(
            f"{path}: sha256: found {found}, expected {problem.sha256}: made by a processor or "
            "versions that round otherwise; compare no results with those of other files",
            stacklevel=2,
        )
    return fields


def digest(fields: FieldSet) -> str:
    """16 hexadecimal digits of all fields, as float32."""
    u = np.ascontiguousarray(fields.array(), np.float32)
    return hashlib.sha256(u.data).hexdigest()[:16]

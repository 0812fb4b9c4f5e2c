"""What to solve; apart from the solving, so that `pde generate --help` need not wait for jax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from jaxrl_rollouts.configs import number, positive
from jaxrl_rollouts.errors import ConfigError


def _read_range(texts: list[str]) -> tuple[float, float]:
    if len(texts) not in (1, 2):
        raise ValueError(f"expected a number, or a lowest and a highest, not {len(texts)}")
    return float(texts[0]), float(texts[-1])


# On the command line one number is a range of one value: `--extent 22`.
Range = Annotated[
    tuple[float, float],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="LOW [HIGH]",
        instance_from_str=_read_range,
        is_instance=lambda value: isinstance(value, tuple) and len(value) == 2,
        str_from_instance=lambda value: [str(end) for end in value],
    ),
]


# What suits an equation. PDE-Refiner's training set for those of one axis; in the plane what two
# cores solve in minutes.
LINE: dict[str, Any] = {
    "trajectories": 2048,
    "points": 256,
    "extent": (57.6, 70.4),
    "dt": (0.18, 0.22),
    "parameter_range": (1.0, 1.0),
    "frames": 140,
    "burn_in": 360,
    "substeps": 4,
    "chunk": 64,
}


def _plane(extent: float, dt: float, value: float, burn_in: int, substeps: int) -> dict[str, Any]:
    size = {"trajectories": 128, "points": 64, "frames": 60, "chunk": 16}
    drawn = {"extent": (extent, extent), "dt": (dt, dt), "parameter_range": (value, value)}
    return LINE | size | drawn | {"burn_in": burn_in, "substeps": substeps}


SUITED: dict[str, dict[str, Any]] = {
    "navier_stokes_2d": _plane(2 * math.pi, 0.1, 0.01, 0, 4),
    "kolmogorov_2d": _plane(2 * math.pi, 0.2, 0.025, 100, 8),
    "ks_2d": _plane(30.0, 0.5, 1.0, 200, 5),
    "burgers_2d": _plane(2 * math.pi, 0.05, 0.05, 0, 2),
    "gray_scott_2d": _plane(1.0, 20.0, 0.035, 5, 10),
}


_LEFT: Any = None  # a range that was not chosen


@dataclass(frozen=True)
class Simulation:
    """What to solve. Defaults depend on the equation; in one dimension, the training set of
    PDE-Refiner's Kuramoto-Sivashinsky experiment.

    Attributes:
        equation: ks, burgers, kdv or advection; in the plane navier_stokes_2d, kolmogorov_2d,
            ks_2d, burgers_2d or gray_scott_2d.
        initial_condition: initial fields: sines or faint for ks; vortices, shear_layer or
            piecewise for flows; others have one way. Left out, the first.
        trajectories: number of trajectories.
        points: points of the grid, along every axis.
        oversampling: the solver's grid has so many times the points; what is kept is cut off in
            Fourier space, not strided, so that nothing is aliased.
        extent: shortest and longest domain; each trajectory samples its own uniformly.
        dt: shortest and longest time between frames, drawn likewise.
        parameter_range: lowest and highest value of the equation's parameter (viscosity,
            diffusivity, dispersion, velocity or feed), drawn likewise.
        frames: frames kept per trajectory.
        burn_in: frames solved and dropped before them.
        substeps: substeps of the solver per frame.
        chunk: trajectories solved side by side.
        seed: decides everything that is drawn; not `chunk`.
    """

    equation: str = "ks"
    initial_condition: str = ""
    trajectories: int = positive(None)
    points: int = positive(None)
    oversampling: int = positive(1)
    extent: Range = _LEFT
    dt: Range = _LEFT
    parameter_range: Range = _LEFT
    frames: int = positive(None)
    burn_in: int = number(None, least=0)
    substeps: int = positive(None)
    chunk: int = positive(None)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in SUITED.get(self.equation, LINE).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def validate(self) -> None:
        from .equations import equation

        starts = equation(self.equation).starts
        if self.initial_condition and self.initial_condition not in starts:
            raise ConfigError(
                "initial_condition", self.initial_condition, f"one of {', '.join(starts)}"
            )
        if self.points < 8 or self.points % 2:
            raise ConfigError("points", self.points, "an even number of at least 8")
        for name in ("extent", "dt", "parameter_range"):
            low, high = getattr(self, name)
            if not low <= high or (name != "parameter_range" and low <= 0):
                raise ConfigError(name, (low, high), "a lowest and a highest value above 0")

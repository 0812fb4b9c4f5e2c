"""What to solve; apart from the solving, so that `pde generate --help` need not wait for jax."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated

import tyro

from jaxrl_rollouts.configs import positive
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


@dataclass(frozen=True)
class GenerateConfig:
    """What to solve; defaults are the training set of PDE-Refiner's Kuramoto-Sivashinsky study.

    Attributes:
        equation: ks, burgers, kdv or advection; in the plane navier_stokes_2d, kolmogorov_2d,
            ks_2d or burgers_2d, for which other settings that are left as they are here are those
            that suit it.
        trajectories: how many.
        points: of the grid, along every axis.
        extent: shortest and longest domain; each trajectory draws its own uniformly.
        dt: shortest and longest time between frames, drawn likewise.
        parameter: lowest and highest value of the equation's parameter (viscosity, diffusivity,
            dispersion or velocity), drawn likewise.
        frames: kept per trajectory.
        burn_in: frames solved and dropped before them.
        substeps: of the solver per frame.
        chunk: trajectories solved side by side.
        seed: decides everything that is drawn; not `chunk`.
    """

    equation: str = "ks"
    trajectories: int = positive(2048)
    points: int = 256
    extent: Range = (57.6, 70.4)
    dt: Range = (0.18, 0.22)
    parameter: Range = (1.0, 1.0)
    frames: int = positive(140)
    burn_in: int = 360
    substeps: int = positive(4)
    chunk: int = positive(64)
    seed: int = 0

    def validate(self) -> None:
        from .equations import equation

        equation(self.equation)
        if self.burn_in < 0:
            raise ConfigError("burn_in", self.burn_in, "at least 0")
        if self.points < 8 or self.points % 2:
            raise ConfigError("points", self.points, "an even number of at least 8")
        for name in ("extent", "dt", "parameter"):
            low, high = getattr(self, name)
            if not low <= high or (name != "parameter" and low <= 0):
                raise ConfigError(name, (low, high), "a lowest and a highest value above 0")

    def suited(self) -> GenerateConfig:
        """With what suits the equation, where a setting is still that of KS."""
        from .equations import equation

        wanted = equation(self.equation).suited
        left = {
            field.name
            for field in fields(self)
            if getattr(self, field.name) == field.default and field.name in wanted
        }
        return replace(self, **{name: wanted[name] for name in left})
